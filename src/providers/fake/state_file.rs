//! State file of a fake cloud: keeps the state across `kill -9`, and shares it between replicas.
//!
//! The file is written completely and then renamed, so a reader never sees a partial file. It is read again before each call
//! if it changed.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    time::SystemTime,
};

use super::state::FakeCloudState;
use crate::cloud_provider::{CloudError, CloudResult};

/// Metadata that identifies a version of a file.
///
/// A file that was renamed into place has another inode, even if the modification times are equal. On Windows, the inode is
/// 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StateFileVersion {
    modified: Option<SystemTime>,
    inode: u64,
    length: u64,
}

impl StateFileVersion {
    /// Reads the version of the file at `path`; `None` if it does not exist.
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

/// State file, with the version that was read or written last.
#[derive(Debug)]
pub(super) struct StateFile {
    path: PathBuf,
    current_version: Option<StateFileVersion>,
}

impl StateFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, current_version: None }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the state if the file changed since the last read or write. A removed file is an empty state.
    pub(super) fn changed(&mut self) -> CloudResult<Option<FakeCloudState>> {
        let version = StateFileVersion::of(&self.path).map_err(|error| self.about(&error))?;
        if version == self.current_version {
            return Ok(None);
        }
        let state = match &version {
            None => FakeCloudState::default(),
            Some(_) => {
                let text = fs::read(&self.path).map_err(|error| self.about(&error))?;
                serde_json::from_slice(&text).map_err(|error| self.about(&error))?
            }
        };
        self.current_version = version;
        Ok(Some(state))
    }

    pub(super) fn save(&mut self, state: &FakeCloudState) -> CloudResult<()> {
        let result = self.replace(state);
        // After a failure, the content of the file is undetermined, so the next call reads it.
        self.current_version = if result.is_ok() { StateFileVersion::of(&self.path).ok().flatten() } else { None };
        result.map_err(|error| self.about(&error))
    }

    fn replace(&self, state: &FakeCloudState) -> std::io::Result<()> {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{}.tmp", std::process::id()));
        let result = fs::write(&name, serde_json::to_vec_pretty(state)?).and_then(|()| fs::rename(&name, &self.path));
        if result.is_err() {
            // A partial file would occupy space on a full disk.
            let _ = fs::remove_file(&name);
        }
        result
    }

    fn about(&self, error: &dyn std::fmt::Display) -> CloudError {
        CloudError::failed(format!("stateFile {}: {error}", self.path.display()))
    }
}
