//! The instance metadata service of one machine, and the App Service style endpoint for managed identities.
//!
//! In: HTTP requests for `/metadata/identity/oauth2/token`, `/metadata/instance`, `/metadata/loadbalancer` and `/msi/token`.
//! Out: the responses of the service; tokens come from the [`Directory`]. Pure: time and the machine are arguments.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{Request, Response};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    entra::{Directory, Principal, pairs, respond},
    topology::{Machine, Topology},
};

/// A managed identity that the machine has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagedIdentity {
    /// Principal in the directory; needs no credentials there.
    pub principal: Principal,
    /// Resource ID; `None` for the machine's own identity.
    pub resource_id: Option<String>,
}

/// Subject of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    Token,
    /// A token, of the App Service style endpoint.
    AppServiceToken,
    /// Description of the machine.
    Instance,
    /// Public addresses of the machine.
    LoadBalancer,
}

/// Returns the subject of a path of the service, if it is one.
pub fn subject_of(path: &str) -> Option<Subject> {
    match path.trim_end_matches('/') {
        "/metadata/identity/oauth2/token" => Some(Subject::Token),
        "/msi/token" => Some(Subject::AppServiceToken),
        "/metadata/instance" => Some(Subject::Instance),
        "/metadata/loadbalancer" => Some(Subject::LoadBalancer),
        _ => None,
    }
}

#[derive(Debug, Clone, Default)]
pub struct Imds {
    /// Identities of the machine.
    pub identities: Vec<ManagedIdentity>,
    /// Required value of `X-IDENTITY-HEADER` at the App Service style endpoint.
    pub identity_header: String,
}

/// A refusal: status, `error` and its description.
type Refusal = (u16, &'static str, &'static str);

const INSTANCE_VERSION: &str = "2021-10-01";
const LOAD_BALANCER_VERSION: &str = "2020-10-01";

impl Imds {
    /// Responds to a request. `machine`: the one the service belongs to; `None` if it was deleted.
    pub fn handle(
        &self,
        subject: Subject,
        request: &Request<Bytes>,
        machine: Option<(&Topology, &Machine)>,
        (directory, now): (&mut Directory, Timestamp),
    ) -> Response<Bytes> {
        let query = pairs(request.uri().query().unwrap_or_default());
        let response = self.check_request(subject, request).and_then(|()| match subject {
            Subject::Token | Subject::AppServiceToken => self.token(subject, &query, directory, now),
            Subject::Instance => {
                version(&query, INSTANCE_VERSION)?;
                machine.map(|(topology, machine)| topology.instance_metadata(machine)).ok_or(MACHINE_DELETED)
            }
            Subject::LoadBalancer => {
                version(&query, LOAD_BALANCER_VERSION)?;
                let (topology, machine) = machine.ok_or(MACHINE_DELETED)?;
                let found = topology.load_balancer_metadata(machine);
                found.ok_or((404, "Not found", "No load balancer metadata is found. Please check if your VM is using any non-basic SKU load balancer and retry later."))
            }
        });
        match response {
            Ok(body) => respond(200, &body),
            Err((status, error, description)) => respond(status, &json!({"error": error, "error_description": description})),
        }
    }

    fn check_request(&self, subject: Subject, request: &Request<Bytes>) -> Result<(), Refusal> {
        let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if request.method() != http::Method::GET {
            return Err((405, "Method not allowed", "Only GET is supported."));
        }
        if subject == Subject::AppServiceToken {
            let is_valid = header("X-IDENTITY-HEADER") == self.identity_header;
            return if is_valid {
                Ok(())
            } else {
                Err((401, "unauthorized", "The value of X-IDENTITY-HEADER is not right."))
            };
        }
        if !header("Metadata").eq_ignore_ascii_case("true") {
            return Err((400, "invalid_request", "Required metadata header not specified"));
        }
        // Requests through a proxy are not from the machine.
        if request.headers().contains_key("X-Forwarded-For") {
            return Err((403, "Forbidden", "Requests must not contain an X-Forwarded-For header."));
        }
        Ok(())
    }

    fn token(
        &self,
        subject: Subject,
        query: &BTreeMap<String, String>,
        directory: &mut Directory,
        now: Timestamp,
    ) -> Result<Value, Refusal> {
        let oldest = if subject == Subject::Token { "2018-02-01" } else { "2019-08-01" };
        version(query, oldest)?;
        let resource = query.get("resource").filter(|resource| !resource.is_empty());
        let resource = resource.ok_or((400, "invalid_resource", "The request is missing the parameter 'resource'."))?;
        let identity = self.identity(query)?;
        let (token, lifetime) = directory.issue(&identity.principal, resource, now);
        let mut body = json!({
            "access_token": token,
            "client_id": identity.principal.client_id,
            "expires_on": (now.as_second() + lifetime).to_string(),
            "not_before": (now.as_second() - 300).to_string(),
            "resource": resource,
            "token_type": "Bearer",
        });
        if subject == Subject::Token {
            body["expires_in"] = json!(lifetime.to_string());
            body["ext_expires_in"] = json!(lifetime.to_string());
        }
        Ok(body)
    }

    /// Returns the requested identity. Without a name: the machine's own, else the only one.
    fn identity(&self, query: &BTreeMap<String, String>) -> Result<&ManagedIdentity, Refusal> {
        let named = |names: &[&str]| names.iter().find_map(|name| query.get(*name)).filter(|text| !text.is_empty());
        let client = named(&["client_id"]);
        let object = named(&["object_id", "principal_id"]);
        let resource = named(&["msi_res_id", "mi_res_id"]);
        if client.is_none() && object.is_none() && resource.is_none() {
            return self.unnamed();
        }
        let is =
            |expected: Option<&String>, found: &str| expected.is_none_or(|expected| expected.eq_ignore_ascii_case(found));
        let found = self.identities.iter().find(|identity| {
            is(client, &identity.principal.client_id)
                && is(object, &identity.principal.object_id)
                && is(resource, identity.resource_id.as_deref().unwrap_or_default())
        });
        found.ok_or((400, "invalid_request", "Identity not found"))
    }

    fn unnamed(&self) -> Result<&ManagedIdentity, Refusal> {
        let own = self.identities.iter().find(|identity| identity.resource_id.is_none());
        match (own, &self.identities[..]) {
            (Some(identity), _) | (None, [identity]) => Ok(identity),
            (None, []) => Err((400, "invalid_request", "Identity not found")),
            (None, _) => Err((
                400,
                "invalid_request",
                "Multiple user assigned identities exist, please specify the clientId / resourceId of the identity in the token request",
            )),
        }
    }
}

const MACHINE_DELETED: Refusal = (410, "Gone", "The machine was deleted.");

/// Refuses a request without `api-version`, or with one that is too old for the fields of the response.
fn version(query: &BTreeMap<String, String>, oldest: &str) -> Result<(), Refusal> {
    let found = query.get("api-version").map(String::as_str).unwrap_or_default();
    if found >= oldest {
        Ok(())
    } else {
        Err((400, "Bad request. api-version is invalid or was not specified in the request.", ""))
    }
}

#[cfg(test)]
mod tests;
