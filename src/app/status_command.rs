//! The command `status`: who leads, what waits and why; or one Service or Node, with its events.
//!
//! ```text
//! lease ─► pod ─► leader's page ─┐
//! Service or Node, its events  ──┴─► view ─► print
//! ```
//! In: what to look at, and a client of the API server. Out: text or JSON, and an exit code: 0 when nothing waits, 2 when something does, 1
//! when not everything could be seen, which the text names first. It only reads.

mod leader;
mod object;
mod page;
mod print;
#[cfg(test)]
mod tests;
mod view;

use std::{process::ExitCode, sync::Arc};

use super::process::{fail, on_runtime, print as print_to};
use crate::{
    cli::{StatusOptions, StatusSubject},
    metrics::Metrics,
    runtime::{
        client::{KubeClientError, KubeClients},
        clock::Clock,
    },
};
use view::StatusView;

type StatusError = Box<dyn std::error::Error + Send + Sync>;

pub(super) fn run(options: &StatusOptions) -> ExitCode {
    match on_runtime(async |_| collect(options).await) {
        Ok(Ok(view)) => {
            let text = if options.json { format!("{:#}", view.json()) } else { print::text(&view) };
            print_to(&text, ExitCode::from(view.code()))
        }
        Ok(Err(error)) => fail(&format!("no status: {error}")),
        Err(error) => fail(&format!("no status: {error}")),
    }
}

/// Pages of the leader, or of the manager behind `--url`, in the order of `page_names`.
pub(super) async fn pages(
    client: Option<&kube::Client>,
    options: &StatusOptions,
    page_names: &[&str],
) -> Vec<Result<String, String>> {
    let lease = match client {
        Some(client) => leader::lease(client, &options.lease, Clock::System.wall()).await.ok(),
        None => None,
    };
    let mut read = Vec::new();
    for page in page_names {
        read.push(page::text(client, options, lease.as_ref(), page).await);
    }
    read
}

/// Collects the facts. Without an API server, the page behind `--url` can still be read.
async fn collect(options: &StatusOptions) -> Result<StatusView, StatusError> {
    let client = match clients(options).await {
        Ok(clients) => Ok(clients.for_component("status")?),
        Err(error) if options.url.is_none() => return Err(error),
        Err(error) => Err(error.to_string()),
    };
    Ok(gather(client, options, Clock::System.wall()).await)
}

async fn clients(options: &StatusOptions) -> Result<KubeClients, StatusError> {
    let loaded: Result<KubeClients, KubeClientError> =
        KubeClients::load(options.kube_api.clone(), Arc::new(Metrics::new()?)).await;
    Ok(loaded?)
}

/// Reads everything that can be read. `client` is none, and why, when there is no way to the API server.
async fn gather(client: Result<kube::Client, String>, options: &StatusOptions, now: jiff::Timestamp) -> StatusView {
    let mut view = StatusView::default();
    let client = client.map_err(|reason| view.unseen("the cluster", &reason)).ok();
    if let Some(client) = &client {
        match leader::lease(client, &options.lease, now).await {
            Ok(lease) => view.lease = Some(lease),
            Err(reason) => view.unseen(&format!("lease {}/{}", options.lease.0, options.lease.1), &reason),
        }
    }
    let page_result = match (&options.url, &client) {
        (Some(url), _) => page::from_url(url, &options.kube_api.user_agent_base).await,
        (None, Some(client)) => page::of_leader(client, options, view.lease.as_ref()).await,
        (None, None) => return view,
    };
    match page_result {
        Ok((source, status)) => view.take_page(source, &status),
        Err(reason) => view.unseen("the manager's status page", &reason),
    }
    if let (Some(client), true) = (&client, options.subject != StatusSubject::Manager) {
        object::collect(client, &options.subject, &mut view).await;
    }
    view.keep_only(&options.subject);
    view
}
