//! Files that this program creates.

use std::{
    fs::{File, OpenOptions},
    io,
    path::Path,
};

/// Rights of a file that only its owner may read.
pub(crate) const OWNER_ONLY: u32 = 0o600;

/// Opens `path` for writing with `options`.
///
/// A file that is created has the rights `mode`, less those that the umask removes; on Windows, which has no such bits, it
/// inherits the access control list of its folder.
pub(crate) fn open(path: &Path, options: &mut OpenOptions, mode: u32) -> io::Result<File> {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, mode);
    #[cfg(not(unix))]
    let _ = mode;
    options.write(true).open(path)
}
