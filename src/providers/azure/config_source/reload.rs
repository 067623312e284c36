//! Follows the configuration: changes of the file or the Secret take effect within seconds; invalid ones change nothing.
//!
//! In: a [`ConfigLoader`] and a channel with the configuration in use. Out: every changed valid configuration, through the
//! channel; and through another channel the reason why the current text is not valid.
//!
//! Both sources are read again every few seconds. Symbolic links that a mounted Secret swaps are followed in this way
//! without watching folders, a half-written file is invalid and read again, and reading a Secret needs no more permission
//! than `get`.

use std::{sync::Arc, time::Duration};

use super::{ConfigLoadError, ConfigLoader};
use crate::{
    providers::azure::config::{AzureConfig, ConfigFinding, ConfigTexts},
    runtime::{shutdown::Shutdown, watch},
};

/// Interval at which the sources are read.
pub const INTERVAL: Duration = Duration::from_secs(5);

/// Reads every [`INTERVAL`] until shutdown or until there is no receiver; sends configurations that differ from the one
/// before.
///
/// `problem`: the reason why the latest text cannot be used; a missing response of the API server is not a problem of the
/// configuration.
pub async fn follow(
    loader: ConfigLoader,
    shutdown: Shutdown,
    current: watch::Sender<Arc<AzureConfig>>,
    problem: &watch::Sender<Option<String>>,
) {
    let mut memory = ReloadState::default();
    while !current.is_closed() {
        let round = async {
            reload_once(&loader, &mut memory, &current).await;
            send_if_new(problem, memory.problem.clone());
            tokio::time::sleep(INTERVAL).await;
        };
        if shutdown.run_until_begun(round).await.is_none() {
            return;
        }
    }
}

/// Last observation, so that each change is evaluated once and each failure to read is reported once.
#[derive(Default)]
struct ReloadState {
    texts: Option<ConfigTexts>,
    unreadable: Option<String>,
    problem: Option<String>,
}

async fn reload_once(loader: &ConfigLoader, memory: &mut ReloadState, current: &watch::Sender<Arc<AzureConfig>>) {
    let texts = match loader.texts().await {
        Ok(texts) => texts,
        Err(error) => return cannot_read(&error, memory),
    };
    if memory.unreadable.take().is_some() {
        tracing::info!("provider configuration readable again");
        // The read error has replaced the verdict on these texts, so they are evaluated again.
        memory.texts = None;
    }
    if memory.texts.as_ref() == Some(&texts) {
        return;
    }
    match loader.merged(&texts) {
        Ok(loaded) => {
            memory.problem = None;
            send(loaded.config, &loaded.findings, current);
        }
        Err(error) => {
            tracing::warn!(%error, "provider configuration change rejected, previous configuration kept; correct the changed one");
            memory.problem = Some(error.to_string());
        }
    }
    memory.texts = Some(texts);
}

fn cannot_read(error: &ConfigLoadError, memory: &mut ReloadState) {
    let reason = error.to_string();
    if memory.unreadable.as_ref() != Some(&reason) {
        tracing::warn!(%error, "cannot read the provider configuration, previous configuration kept");
    }
    if !matches!(error, ConfigLoadError::Unavailable(_)) {
        memory.problem = Some(reason.clone());
    }
    memory.unreadable = Some(reason);
}

/// Returns `true` if the value differs from the one before; only then it wakes the receivers.
fn send_if_new<T: PartialEq>(sender: &watch::Sender<T>, value: T) -> bool {
    sender.send_if_modified(|current| std::mem::replace(current, value) != *current)
}

fn send(config: AzureConfig, findings: &[ConfigFinding], current: &watch::Sender<Arc<AzureConfig>>) {
    if send_if_new(current, Arc::new(config)) {
        tracing::info!("provider configuration changed");
        for finding in findings {
            tracing::warn!(%finding, "changed provider configuration warning");
        }
    }
}

#[cfg(test)]
mod tests;
