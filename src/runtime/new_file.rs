//! Files that this program creates.

use std::{
    fs::{File, OpenOptions},
    io,
    path::Path,
};

/// Mode of a file that only its owner may read.
pub(crate) const OWNER_ONLY: u32 = 0o600;

/// Opens `path` for writing with `options`.
///
/// A created file has the mode `mode` without the bits of the umask. On Windows, it inherits the access control list of its
/// folder.
pub(crate) fn open(path: &Path, options: &mut OpenOptions, mode: u32) -> io::Result<File> {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, mode);
    #[cfg(not(unix))]
    let _ = mode;
    options.write(true).open(path)
}
