//! Following the configuration: what changes in the file or the Secret counts within seconds; what is bad changes nothing.
//!
//! In: a [`Loader`] and a channel with the configuration in use. Out: every other usable configuration, through the channel.
//!
//! Both sources are read again every few seconds. Symbolic links that a mounted Secret swaps are followed so without watching
//! folders, a half-written file is bad and tried again, and reading a Secret needs no more permission than `get`.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use super::{fields::AzureConfig, finding::Finding, merge::Texts, source::Loader};
use crate::runtime::shutdown::Shutdown;

/// Time between two looks.
pub const INTERVAL: Duration = Duration::from_secs(5);

/// Looks every [`INTERVAL`] until shutdown or until nobody receives; sends configurations that differ from the one before.
pub async fn follow(loader: Loader, shutdown: Shutdown, current: watch::Sender<Arc<AzureConfig>>) {
    let mut memory = Memory::default();
    while !current.is_closed() {
        let round = async {
            look(&loader, &mut memory, &current).await;
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
struct Memory {
    texts: Option<Texts>,
    unreadable: Option<String>,
}

async fn look(loader: &Loader, memory: &mut Memory, current: &watch::Sender<Arc<AzureConfig>>) {
    let texts = match loader.texts().await {
        Ok(texts) => texts,
        Err(error) => return cannot_read(error.to_string(), memory),
    };
    if memory.unreadable.take().is_some() {
        tracing::info!("The provider configuration can be read again");
    }
    if memory.texts.as_ref() == Some(&texts) {
        return;
    }
    match loader.merged(&texts) {
        Ok(loaded) => send(loaded.config, &loaded.findings, current),
        Err(error) => tracing::warn!(%error, "The provider configuration stays as it is; correct the changed one"),
    }
    memory.texts = Some(texts);
}

fn cannot_read(error: String, memory: &mut Memory) {
    if memory.unreadable.as_ref() != Some(&error) {
        tracing::warn!(%error, "The provider configuration stays as it is; it cannot be read");
        memory.unreadable = Some(error);
    }
}

fn send(config: AzureConfig, findings: &[Finding], current: &watch::Sender<Arc<AzureConfig>>) {
    let is_new = current.send_if_modified(|old| {
        let is_new = **old != config;
        if is_new {
            *old = Arc::new(config);
        }
        is_new
    });
    if is_new {
        tracing::info!("The provider configuration has changed");
        for finding in findings {
            tracing::warn!(%finding, "The changed provider configuration is strange");
        }
    }
}

#[cfg(test)]
mod tests;
