//! Reload of the configuration file within about a second of a change. An invalid file is logged and changes nothing.

use std::{path::Path, time::Duration};

use super::{FakeCloud, config::FakeConfig, state_file::StateFileVersion};
use crate::{cloud_provider::CloudResult, runtime::shutdown::Shutdown};

const INTERVAL: Duration = Duration::from_secs(1);

/// Reloads the configuration file when it changes, which is checked every second until shutdown.
pub(super) async fn follow(cloud: FakeCloud, shutdown: Shutdown) {
    let Some(path) = cloud.cloud.path.clone() else { return };
    // The first iteration reads the file, which may have changed since the cloud was created.
    let mut current = None;
    loop {
        let version = StateFileVersion::of(&path).ok().flatten();
        if version.is_some() && version != current {
            current = version;
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
