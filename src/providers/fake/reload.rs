//! Following the configuration file: an edit counts within about a second; a bad one is logged and changes nothing.

use std::{path::Path, time::Duration};

use super::{FakeCloud, config::FakeConfig, state_file::StateFileVersion};
use crate::{cloud_provider::CloudResult, runtime::shutdown::Shutdown};

const INTERVAL: Duration = Duration::from_secs(1);

/// Looks at the file every second until shutdown.
pub(super) async fn follow(cloud: FakeCloud, shutdown: Shutdown) {
    let Some(path) = cloud.cloud.path.clone() else { return };
    // The file is read once more at first: it may have changed since the cloud was built.
    let mut seen = None;
    loop {
        let now = StateFileVersion::of(&path).ok().flatten();
        if now.is_some() && now != seen {
            seen = now;
            if let Err(error) = cloud.reload(&path) {
                tracing::error!(%error, "Fake cloud configuration rejected, previous configuration kept; correct the file");
            }
        }
        tokio::select! {
            biased;
            () = shutdown.begun() => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}

impl FakeCloud {
    fn reload(&self, path: &Path) -> CloudResult<()> {
        let config = FakeConfig::read(path)?;
        let mut inner = self.inner();
        if inner.config != config {
            inner.set_config(config);
            drop(inner);
            tracing::info!(file = %path.display(), "Fake cloud configuration changed");
            self.notify();
        }
        Ok(())
    }
}
