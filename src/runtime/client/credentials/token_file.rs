//! A token in a file, which somebody renews.
//!
//! In: the path. Out: the header, read again every minute, without the blanks and line ends around the token. While the file cannot be
//! read, what it said last counts. Upstream: client-go `transport/token_source.go`.

use std::{
    fs,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::HeaderValue;
use tokio::time::Instant;

use super::bearer::bearer_header;

/// How often the file is read.
const PERIOD: Duration = Duration::from_secs(60);
/// How often at most it is read because the server refused the token.
const MIN_REREAD_INTERVAL: Duration = Duration::from_secs(1);

/// See the module.
pub(crate) struct TokenFile {
    path: PathBuf,
    cached: Mutex<CachedTokenHeader>,
}

struct CachedTokenHeader {
    header: Option<HeaderValue>,
    read_at: Instant,
}

impl TokenFile {
    /// Reads it for the first time. Unless there is `another` token, it has to be readable.
    pub(super) fn open(path: PathBuf, another: bool) -> Result<Self, String> {
        let header = match read(&path) {
            Ok(header) => Some(header),
            Err(_) if another => None,
            Err(reason) => return Err(format!("tokenFile {}: {reason}", path.display())),
        };
        Ok(Self { path, cached: Mutex::new(CachedTokenHeader { header, read_at: Instant::now() }) })
    }

    /// The header, at most a minute old.
    pub(super) fn current(&self) -> Option<HeaderValue> {
        self.not_older_than(PERIOD)
    }

    /// The header as the file has it now.
    pub(super) fn reread(&self) -> Option<HeaderValue> {
        self.not_older_than(MIN_REREAD_INTERVAL)
    }

    fn not_older_than(&self, age: Duration) -> Option<HeaderValue> {
        let mut known = self.lock_cached();
        if known.read_at.elapsed() >= age {
            known.read_at = Instant::now();
            match read(&self.path) {
                Ok(header) => known.header = Some(header),
                Err(reason) => {
                    tracing::warn!(path = %self.path.display(), reason, "cannot read the token file, previous token kept")
                }
            }
        }
        known.header.clone()
    }

    fn lock_cached(&self) -> MutexGuard<'_, CachedTokenHeader> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(path: &PathBuf) -> Result<HeaderValue, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    match text.trim() {
        "" => Err("it is empty".to_owned()),
        token => bearer_header(token).ok_or_else(|| "what it says cannot be a token".to_owned()),
    }
}
