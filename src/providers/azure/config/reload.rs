//! Following the configuration: what changes in the file or the Secret counts within seconds; what is bad changes nothing.
//!
//! In: a [`ConfigLoader`] and a channel with the configuration in use. Out: every other usable configuration, through the channel; and
//! through another one why what there is to read now is no configuration.
//!
//! Both sources are read again every few seconds. Symbolic links that a mounted Secret swaps are followed so without watching
//! folders, a half-written file is bad and tried again, and reading a Secret needs no more permission than `get`.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use super::{
    fields::AzureConfig,
    finding::ConfigFinding,
    merge::ConfigTexts,
    source::{ConfigLoadError, ConfigLoader},
};
use crate::runtime::shutdown::Shutdown;

/// Time between two looks.
pub const INTERVAL: Duration = Duration::from_secs(5);

/// Looks every [`INTERVAL`] until shutdown or until nobody receives; sends configurations that differ from the one before.
/// `problem`: why what was found last cannot be used; that the API server did not answer is not a problem of the configuration.
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
            problem.send_if_modified(|told| {
                let is_new = *told != memory.problem;
                told.clone_from(&memory.problem);
                is_new
            });
            tokio::time::sleep(INTERVAL).await;
        };
        tokio::select! {
            () = shutdown.begun() => return,
            () = round => {}
        }
    }
}

/// What was seen last, so that each change is judged once and each failure to read told once.
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
        // Whether it can be used was overwritten by that it could not be read.
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

fn send(config: AzureConfig, findings: &[ConfigFinding], current: &watch::Sender<Arc<AzureConfig>>) {
    let is_new = current.send_if_modified(|old| {
        let is_new = **old != config;
        if is_new {
            *old = Arc::new(config);
        }
        is_new
    });
    if is_new {
        tracing::info!("provider configuration changed");
        for finding in findings {
            tracing::warn!(%finding, "changed provider configuration warning");
        }
    }
}

#[cfg(test)]
mod tests;
