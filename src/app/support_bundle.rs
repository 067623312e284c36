//! Command `support-bundle`: facts for a support case, in one archive without secrets.
//!
//! ```text
//! gather ─► (name, text or reason) ─► redact, every file ─► archive ─► FILE
//! ```
//! In: a manager's configuration, and the options for its pages. Out: a file that only its owner may read, and an exit code: 0 if it is
//! complete, 1 if something is missing, which its `missing.txt` lists. It changes nothing but that file.

mod archive;
mod gather;
mod redact;
mod secrets;
#[cfg(all(test, feature = "sandbox", feature = "azure"))]
#[expect(clippy::unwrap_used, clippy::panic, reason = "a test fails without its fixtures")]
mod tests;

use std::{
    fs::OpenOptions,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use super::{
    app_error::AppError,
    process::{on_runtime, print},
};
use crate::{
    cli::SupportBundleOptions,
    cloud_provider::Registry,
    runtime::{clock::Clock, new_file},
};
use gather::GatheredFile;

/// Folder in the archive.
const FOLDER: &str = "ccm-support";
/// File that lists the missing facts.
const MISSING: &str = "missing.txt";

pub(super) fn run(registry: &Registry, options: &SupportBundleOptions) -> Result<ExitCode, AppError> {
    let gathered = on_runtime(async |_| gather::everything(registry, options).await)?;
    let (files, missing) = files(gathered.files, &gathered.secrets);
    let time = u64::try_from(Clock::System.wall().as_second()).unwrap_or_default();
    let written = archive::compressed(&files, time).and_then(|bytes| write(&options.file, &bytes));
    written.map_err(|error| format!("cannot write {}: {error}", options.file.display()))?;
    let mut text =
        format!("{}: {} files, secrets redacted; review them before you send them\n", options.file.display(), files.len());
    if missing > 0 {
        text += &format!("{missing} are missing; {FOLDER}/{MISSING} in the archive has the reasons\n");
    }
    Ok(print(&text, if missing == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
}

/// Returns the files of the archive, and the number of missing ones. Everything is redacted, including the reasons of
/// missing files.
fn files(gathered: Vec<GatheredFile>, secrets: &[String]) -> (Vec<(String, String)>, usize) {
    let (mut files, mut missing) = (Vec::new(), String::new());
    let path = |name: &str| format!("{FOLDER}/{name}");
    for (name, content) in gathered {
        match content {
            Ok(text) => files.push((path(name), redact::redacted(&text, secrets))),
            Err(reason) => missing += &format!("{name}: {}\n", redact::redacted(&reason, secrets).trim()),
        }
    }
    let count = missing.lines().count();
    files.push((path(MISSING), if count == 0 { "nothing\n".to_owned() } else { missing }));
    (files, count)
}

/// Writes a new file that only its owner may read.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    new_file::open(path, OpenOptions::new().create_new(true), new_file::OWNER_ONLY)?.write_all(bytes)
}
