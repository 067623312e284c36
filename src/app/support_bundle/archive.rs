//! Compressed archive of files, `.tar.gz`. Pure.
//!
//! In: names and texts. Out: bytes. Format: POSIX.1-1988 `ustar`, which every `tar` reads.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};

const BLOCK: usize = 512;
/// Position of the checksum in the header.
const CHECKSUM: std::ops::Range<usize> = 148..156;

/// Returns the compressed archive. `time` is the modification time of every file, in seconds since 1970.
pub(super) fn compressed(files: &[(String, String)], time: u64) -> std::io::Result<Vec<u8>> {
    let mut archive = GzEncoder::new(Vec::new(), Compression::default());
    for (name, text) in files {
        archive.write_all(&header(name, text.len(), time))?;
        archive.write_all(text.as_bytes())?;
        archive.write_all(&vec![0; text.len().next_multiple_of(BLOCK) - text.len()])?;
    }
    archive.write_all(&[0; 2 * BLOCK])?;
    archive.finish()
}

fn header(name: &str, size: usize, time: u64) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &name.as_bytes()[..name.len().min(99)]);
    put(100, b"0000600\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{size:011o}\0").as_bytes());
    put(136, format!("{time:011o}\0").as_bytes());
    put(CHECKSUM.start, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().copied().map(u32::from).sum();
    block[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_systems_tar_reads_the_archive() {
        let files = [("b/a.txt".to_owned(), "x".repeat(1_000)), ("b/empty".to_owned(), String::new())];
        let folder = tempfile::tempdir().unwrap();
        let mut tar =
            Command::new("tar").args(["-xzf", "-", "-C"]).arg(folder.path()).stdin(Stdio::piped()).spawn().unwrap();
        tar.stdin.take().unwrap().write_all(&compressed(&files, 1_700_000_000).unwrap()).unwrap();
        assert!(tar.wait().unwrap().success());
        for (name, text) in files {
            assert_eq!(std::fs::read_to_string(folder.path().join(name)).unwrap(), text);
        }
    }
}
