//! Facts about the cluster from the API server.
//!
//! In: a client. Out: [`ClusterFacts`], each with a reason if it could not be read. Decides nothing.

use http::{Request, header::DATE};
use jiff::{Timestamp, fmt::rfc2822};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, Pod, Service},
};
use kube::{Api, Client, client::Body};
use serde_json::Value;

use crate::{
    cli::config::LeaderElectionOptions,
    runtime::client::{list_all, with_causes},
};

/// Maximum length of the response of `/version` in bytes.
const MAX_RESPONSE: usize = 64 << 10;

/// Facts, each with the reason of a failed read.
pub(crate) struct ClusterFacts {
    /// Version of the API server, and its time if the response has a `Date`.
    pub(super) server: Result<(String, Option<Timestamp>), String>,
    /// Lease of the election; `None` if it does not exist.
    pub(super) lease: Result<Option<Lease>, String>,
    /// Pods of the lease's namespace.
    pub(super) pods: Result<Vec<Pod>, String>,
    pub(crate) nodes: Result<Vec<Node>, String>,
    pub(crate) services: Result<Vec<Service>, String>,
}

impl ClusterFacts {
    /// Returns facts that all failed to be read for `reason`.
    pub(crate) fn unread(reason: &str) -> Self {
        let reason = || format!("the API server could not be read: {reason}");
        Self {
            server: Err(reason()),
            lease: Err(reason()),
            pods: Err(reason()),
            nodes: Err(reason()),
            services: Err(reason()),
        }
    }

    pub(crate) async fn read(client: &Client, election: &LeaderElectionOptions) -> Self {
        let server = server(client).await;
        if let Err(reason) = &server {
            return Self { server: Err(reason.clone()), ..Self::unread(reason) };
        }
        let leases = Api::<Lease>::namespaced(client.clone(), &election.resource_namespace);
        let pods = Api::<Pod>::namespaced(client.clone(), &election.resource_namespace);
        Self {
            server,
            lease: leases.get_opt(&election.resource_name).await.map_err(|error| with_causes(&error)),
            pods: list_all(&pods).await,
            nodes: list_all(&Api::all(client.clone())).await,
            services: list_all(&Api::all(client.clone())).await,
        }
    }
}

async fn server(client: &Client) -> Result<(String, Option<Timestamp>), String> {
    let request = Request::get("/version").body(Body::empty()).map_err(|error| error.to_string())?;
    let response = client.send(request).await.map_err(|error| with_causes(&error))?;
    let date = response.headers().get(DATE).and_then(|date| date.to_str().ok()).and_then(|date| rfc2822::parse(date).ok());
    let status = response.status();
    let body = axum::body::to_bytes(axum::body::Body::new(response.into_body()), MAX_RESPONSE).await;
    let body = body.map_err(|error| error.to_string())?;
    if !status.is_success() {
        return Err(format!("GET /version: HTTP {}", status.as_u16()));
    }
    let version: Value = serde_json::from_slice(&body).map_err(|error| format!("GET /version: {error}"))?;
    Ok((version["gitVersion"].as_str().unwrap_or_default().to_owned(), date.map(|date| date.timestamp())))
}
