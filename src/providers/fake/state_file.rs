//! The file that keeps a fake cloud's memory across `kill -9`, and shares it between replicas.
//!
//! Written whole and renamed into place, so a reader never sees half of it. Read again before each call when it changed.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    time::SystemTime,
};

use super::state::FakeCloudState;
use crate::cloud_provider::{CloudError, CloudResult};

/// What tells one version of a file from the next. A renamed file has another inode, however coarse the time; Windows shows none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StateFileVersion {
    modified: Option<SystemTime>,
    inode: u64,
    length: u64,
}

impl StateFileVersion {
    /// `None` when there is no such file.
    pub(super) fn of(path: &Path) -> std::io::Result<Option<Self>> {
        match fs::metadata(path) {
            Ok(found) => Ok(Some(Self { modified: found.modified().ok(), inode: inode(&found), length: found.len() })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(unix)]
fn inode(file: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(file)
}

#[cfg(not(unix))]
fn inode(_: &fs::Metadata) -> u64 {
    0
}

/// The file and the version of it that is in memory.
#[derive(Debug)]
pub(super) struct StateFile {
    path: PathBuf,
    seen: Option<StateFileVersion>,
}

impl StateFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, seen: None }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The memory in the file, when it is another than was seen last. A file that was removed is an empty memory.
    pub(super) fn changed(&mut self) -> CloudResult<Option<FakeCloudState>> {
        let now = StateFileVersion::of(&self.path).map_err(|error| self.about(&error))?;
        if now == self.seen {
            return Ok(None);
        }
        let memory = match &now {
            None => FakeCloudState::default(),
            Some(_) => {
                let text = fs::read(&self.path).map_err(|error| self.about(&error))?;
                serde_json::from_slice(&text).map_err(|error| self.about(&error))?
            }
        };
        self.seen = now;
        Ok(Some(memory))
    }

    pub(super) fn save(&mut self, memory: &FakeCloudState) -> CloudResult<()> {
        let written = self.replace(memory);
        // After a failure nobody knows what the file holds: read it again.
        self.seen = if written.is_ok() { StateFileVersion::of(&self.path).ok().flatten() } else { None };
        written.map_err(|error| self.about(&error))
    }

    fn replace(&self, memory: &FakeCloudState) -> std::io::Result<()> {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{}.tmp", std::process::id()));
        let replaced = fs::write(&name, serde_json::to_vec_pretty(memory)?).and_then(|()| fs::rename(&name, &self.path));
        if replaced.is_err() {
            // Half a file helps nobody, least of all on a full disk.
            let _ = fs::remove_file(&name);
        }
        replaced
    }

    fn about(&self, error: &dyn std::fmt::Display) -> CloudError {
        CloudError::failed(format!("stateFile {}: {error}", self.path.display()))
    }
}
