//! Command `status`: the leader and pending work with reasons; or one Service or Node, with its events.
//!
//! ```text
//! lease ─► pod ─► leader's page ─┐
//! Service or Node, its events  ──┴─► view ─► print
//! ```
//! In: the subject, and a client of the API server. Out: text or JSON, and an exit code: 0 if nothing waits, 2 if something does, 1 if
//! not everything could be read, which the text lists first. It only reads.

mod leader;
mod object;
mod page;
mod print;
#[cfg(test)]
mod tests;
mod view;

use std::process::ExitCode;

use super::{
    app_error::AppError,
    doctor,
    process::{on_runtime, print as print_to},
};
use crate::{
    cli::{StatusOptions, StatusSubject},
    runtime::clock::Clock,
};
use view::StatusView;

pub(super) fn run(options: &StatusOptions) -> Result<ExitCode, AppError> {
    let collected = on_runtime(async |_| collect(options).await).map_err(AppError::from).flatten();
    let view = collected.map_err(|error| format!("no status: {error}"))?;
    let text = if options.json { format!("{:#}", view.json()) } else { print::text(&view) };
    Ok(print_to(&text, ExitCode::from(view.code())))
}

/// Reads pages of the leader, or of the manager behind `--url`, in the order of `page_names`.
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
        read.push(page::text(client, options, lease.as_ref(), page).await.map(|(_, text)| text));
    }
    read
}

/// Collects the facts. Without a connection to the API server, the page behind `--url` can still be read.
async fn collect(options: &StatusOptions) -> Result<StatusView, AppError> {
    let client = match doctor::client(&options.kube_api, "status").await {
        Ok(client) => Ok(client),
        Err(error) if options.url.is_none() => return Err(error),
        Err(error) => Err(error.to_string()),
    };
    Ok(gather(client, options, Clock::System.wall()).await)
}

/// Reads everything that can be read. `client` is the reason if there is no connection to the API server.
async fn gather(client: Result<kube::Client, String>, options: &StatusOptions, now: jiff::Timestamp) -> StatusView {
    let mut view = StatusView::default();
    let client = client.map_err(|reason| view.unseen("the cluster", &reason)).ok();
    if let Some(client) = &client {
        match leader::lease(client, &options.lease, now).await {
            Ok(lease) => view.lease = Some(lease),
            Err(reason) => view.unseen(&format!("lease {}/{}", options.lease.0, options.lease.1), &reason),
        }
    }
    if options.url.is_none() && client.is_none() {
        return view;
    }
    match page::status(client.as_ref(), options, view.lease.as_ref()).await {
        Ok((source, status)) => view.add_page(&source, &status),
        Err(reason) => view.unseen("the manager's status page", &reason),
    }
    if let (Some(client), true) = (&client, options.subject != StatusSubject::Manager) {
        object::collect(client, &options.subject, &mut view).await;
    }
    view.keep_only(&options.subject);
    view
}
