//! The command `support-bundle`: what a support case needs, in one archive without secrets.
//!
//! ```text
//! gather ─► (name, text or why there is none) ─► redact, every file ─► archive ─► FILE
//! ```
//! In: a manager's configuration, and how its pages are read. Out: a file that only its owner may read, and an exit code: 0 when everything is
//! in it, 1 when something is missing, which its `missing.txt` lists. It changes nothing but that file.

mod archive;
mod gather;
mod redact;
mod secrets;
#[cfg(all(test, feature = "sandbox", feature = "azure"))]
#[expect(clippy::unwrap_used, clippy::panic, reason = "a test ends where what it needs is missing")]
mod tests;

use std::{
    fs::OpenOptions,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    process::ExitCode,
};

use super::process::{fail, on_runtime, print};
use crate::{cli::SupportBundleOptions, cloud_provider::Registry, runtime::clock::Clock};
use gather::GatheredFile;

/// Folder in the archive.
const FOLDER: &str = "ccm-support";
/// The file that lists what could not be had.
const MISSING: &str = "missing.txt";

pub(super) fn run(registry: &Registry, options: &SupportBundleOptions) -> ExitCode {
    let gathered = match on_runtime(async |_| gather::everything(registry, options).await) {
        Ok(gathered) => gathered,
        Err(error) => return fail(&error),
    };
    let (files, missing) = files(gathered.files, &gathered.secrets);
    let time = u64::try_from(Clock::System.wall().as_second()).unwrap_or_default();
    if let Err(error) = archive::compressed(&files, time).and_then(|bytes| write(&options.file, &bytes)) {
        return fail(&format!("cannot write {}: {error}", options.file.display()));
    }
    let mut text = format!(
        "{}: {} files, without secrets; look through them before you send them\n",
        options.file.display(),
        files.len()
    );
    if missing > 0 {
        text += &format!("{missing} are missing; {FOLDER}/{MISSING} in the archive says why\n");
    }
    print(&text, if missing == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Every file as it goes into the archive, and how many are missing. Nothing goes around the redaction, the reasons of what is missing included.
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

/// A new file that nobody else may read.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)
}
