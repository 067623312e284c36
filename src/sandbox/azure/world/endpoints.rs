//! Services of the simulator's listener other than ARM: token endpoints, `/metadata/endpoints`, the metadata service of a
//! machine.
//!
//! Requests are distinguished by path alone, so that one listener serves all of them; the hosts of the public cloud work as
//! well.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use serde_json::json;

use super::Shared;
use crate::sandbox::azure::{
    Endpoint, entra,
    imds::{self, Imds},
    registry,
};

/// Path that describes the cloud.
const ENDPOINTS: &str = "/metadata/endpoints";

/// Entra, for the tenants of a world.
pub(super) struct Login(pub(super) Arc<Shared>);

#[async_trait]
impl Endpoint for Login {
    fn serves(&self, _: &str, path: &str) -> bool {
        entra::endpoint(path).is_some()
    }

    async fn respond(&self, request: Request<Bytes>) -> Response<Bytes> {
        let path = request.uri().path();
        let Some(endpoint) = entra::endpoint(path) else { return missing(path) };
        let now = self.0.now();
        self.0.with_directory(|directory| entra::handle(directory, endpoint, &request, now))
    }
}

/// The description of the cloud.
pub(super) struct CloudMetadata(pub(super) Arc<Shared>);

#[async_trait]
impl Endpoint for CloudMetadata {
    fn serves(&self, _: &str, path: &str) -> bool {
        path.trim_end_matches('/') == ENDPOINTS
    }

    async fn respond(&self, request: Request<Bytes>) -> Response<Bytes> {
        if entra::pairs(request.uri().query().unwrap_or_default()).contains_key("api-version") {
            return entra::respond(200, &self.0.endpoints().metadata("AzurePublicCloud"));
        }
        let message = "The api-version query parameter (?api-version=) is required for all requests.";
        entra::respond(400, &json!({"error": {"code": "MissingApiVersionParameter", "message": message}}))
    }
}

/// The metadata service of one machine.
pub(super) struct MachineMetadata {
    pub(super) shared: Arc<Shared>,
    pub(super) node: String,
    pub(super) imds: Imds,
}

#[async_trait]
impl Endpoint for MachineMetadata {
    fn serves(&self, _: &str, path: &str) -> bool {
        imds::subject_of(path).is_some()
    }

    async fn respond(&self, request: Request<Bytes>) -> Response<Bytes> {
        let path = request.uri().path();
        let Some(subject) = imds::subject_of(path) else { return missing(path) };
        let (topology, machine, now) = (self.shared.topology(), self.shared.machine(&self.node), self.shared.now());
        let machine = machine.as_ref().ok().map(|machine| (&topology, machine));
        self.shared.with_directory(|directory| self.imds.handle(subject, &request, machine, (directory, now)))
    }
}

/// A container registry with this host name.
pub(super) struct ContainerRegistry(pub(super) Arc<Shared>, pub(super) String);

#[async_trait]
impl Endpoint for ContainerRegistry {
    fn serves(&self, host: &str, _: &str) -> bool {
        host == self.1
    }

    async fn respond(&self, request: Request<Bytes>) -> Response<Bytes> {
        let now = self.0.now();
        self.0.with_directory(|directory| registry::handle(directory, &self.1, &request, now))
    }
}

/// The exchange of service account tokens at this host name.
pub(super) struct IdentityBinding(pub(super) Arc<Shared>, pub(super) String);

#[async_trait]
impl Endpoint for IdentityBinding {
    fn serves(&self, host: &str, path: &str) -> bool {
        host == self.1 && path == "/"
    }

    async fn respond(&self, request: Request<Bytes>) -> Response<Bytes> {
        let (now, tenant) = (self.0.now(), self.0.topology().tenant);
        let endpoint = entra::Endpoint { tenant: &tenant, adfs: false };
        self.0.with_directory(|directory| entra::handle(directory, endpoint, &request, now))
    }
}

fn missing(path: &str) -> Response<Bytes> {
    entra::respond(404, &json!({"error": "not_found", "error_description": format!("Nothing is at {path}.")}))
}
