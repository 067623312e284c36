//! Token in a file that another program renews.
//!
//! In: the path. Out: the header, read again every minute, without the blanks and line ends around the token. While the file
//! is unreadable, the last content is used. Upstream: client-go `transport/token_source.go`.

use std::{fs, path::PathBuf, time::Duration};

use http::HeaderValue;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::runtime::bearer::bearer_header;

/// Interval between reads of the file.
const PERIOD: Duration = Duration::from_secs(60);
/// Shortest interval between reads because of a rejected token.
const MIN_REREAD_INTERVAL: Duration = Duration::from_secs(1);

/// Token file with its last content.
pub(crate) struct TokenFile {
    path: PathBuf,
    cached: Mutex<CachedTokenHeader>,
}

struct CachedTokenHeader {
    header: Option<HeaderValue>,
    read_at: Instant,
}

impl TokenFile {
    /// Reads the file for the first time. Unless there is `another` token, it must be readable.
    pub(super) fn open(path: PathBuf, another: bool) -> Result<Self, String> {
        let header = match read(&path) {
            Ok(header) => Some(header),
            Err(_) if another => None,
            Err(reason) => return Err(format!("tokenFile {}: {reason}", path.display())),
        };
        Ok(Self { path, cached: Mutex::new(CachedTokenHeader { header, read_at: Instant::now() }) })
    }

    /// Returns the header, at most a minute old.
    pub(super) fn current(&self) -> Option<HeaderValue> {
        self.not_older_than(PERIOD)
    }

    /// Returns the header that the file now contains.
    pub(super) fn reread(&self) -> Option<HeaderValue> {
        self.not_older_than(MIN_REREAD_INTERVAL)
    }

    fn not_older_than(&self, age: Duration) -> Option<HeaderValue> {
        let mut cached = self.cached.lock();
        if cached.read_at.elapsed() >= age {
            cached.read_at = Instant::now();
            match read(&self.path) {
                Ok(header) => cached.header = Some(header),
                Err(reason) => {
                    tracing::warn!(path = %self.path.display(), reason, "cannot read the token file, previous token kept")
                }
            }
        }
        cached.header.clone()
    }
}

fn read(path: &PathBuf) -> Result<HeaderValue, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    match text.trim() {
        "" => Err("it is empty".to_owned()),
        token => bearer_header(token).ok_or_else(|| "what it says cannot be a token".to_owned()),
    }
}
