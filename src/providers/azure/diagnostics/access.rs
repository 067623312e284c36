//! Checks whether Azure can be reached and accepts the identity.
//!
//! In: a session, and the observations of its transport. Out: findings about network, TLS, credential and clock; and whether
//! further checks make sense.

use super::{
    checks::{CLOCK, CREDENTIAL, NETWORK, TLS},
    observer::{ObservedTransport, WireSightings},
    opened::OpenedCloud,
    permissions,
};
use crate::{
    cloud_provider::diagnostics::DiagnosticFinding,
    providers::azure::model::{ArmErrorClass, ResourceId},
};

/// Words in errors of certificate verifiers.
const OF_CERTIFICATES: [&str; 3] = ["certificate", "UnknownIssuer", "SelfSigned"];

/// Remedies by code of Entra.
const ENTRA_CODES: [(&str, &str); 8] = [
    (
        "AADSTS90002",
        "tenantId names no tenant of this cloud: set the tenant of the subscription (`az account show --query tenantId`)",
    ),
    (
        "AADSTS700016",
        "the tenant has no application aadClientId: set the right tenantId, or the client id of an application of this tenant",
    ),
    ("AADSTS7000215", "aadClientSecret is not a secret of the application: set its value, not its id"),
    ("AADSTS7000222", "the secret has expired: create a new one (`az ad app credential reset`) and set aadClientSecret"),
    (
        "AADSTS700027",
        "the certificate is not registered with the application: register it, or set the right aadClientCertPath",
    ),
    ("AADSTS70021", "no federated credential matches the ServiceAccount: create one with its issuer, subject and audience"),
    ("AADSTS700024", "the assertion is not valid at this time: synchronize the clocks (NTP)"),
    ("AADSTS50034", "the identity does not exist in this tenant: set the right tenantId or client id"),
];

/// Sends one request to ARM.
pub(super) async fn examine(cloud: &OpenedCloud, findings: &mut Vec<DiagnosticFinding>) -> bool {
    let config = &cloud.session.config;
    let group = ResourceId::group_of(&config.subscription_id, &config.resource_group);
    let requested = permissions::grants(&cloud.session.compute, &group).await;
    let refused = match requested {
        // A malformed response still shows that ARM can be reached.
        Err(error) if error.class == ArmErrorClass::MalformedAnswer => None,
        Err(error) if error.class == ArmErrorClass::Unauthorized || error.status.is_none() => Some(error.to_string()),
        _ => None,
    };
    match refused {
        Some(reason) => {
            findings.extend(failure(&reason, &cloud.wire));
            false
        }
        None => {
            let host = &cloud.session.cloud.resource_manager;
            findings.extend([
                DiagnosticFinding::ok(NETWORK, format!("{host} answers")),
                DiagnosticFinding::ok(TLS, "the certificates of Entra and ARM are trusted"),
                DiagnosticFinding::ok(CREDENTIAL, format!("ARM accepts the identity in tenant {}", config.tenant_id)),
                clock(&cloud.wire.seen()),
            ]);
            true
        }
    }
}

/// Returns the reason why no request can be sent.
pub(super) fn failure(reason: &str, wire: &ObservedTransport) -> Vec<DiagnosticFinding> {
    explained(reason, &wire.seen())
}

fn explained(reason: &str, seen: &WireSightings) -> Vec<DiagnosticFinding> {
    let Some((host, cause)) = &seen.failure else {
        let credential = DiagnosticFinding::problem(CREDENTIAL, reason, credential_remedy(reason));
        if !seen.has_response {
            return vec![credential];
        }
        let reachable = DiagnosticFinding::ok(NETWORK, "Entra or ARM answers");
        return vec![reachable, DiagnosticFinding::ok(TLS, "the certificates are trusted"), credential, clock(seen)];
    };
    if OF_CERTIFICATES.iter().any(|word| cause.contains(word)) {
        let remedy = "something between this machine and Azure opens TLS, or its certificates are missing here: exempt Azure from the \
                      inspecting proxy, or trust its authority with SSL_CERT_FILE";
        let reachable = DiagnosticFinding::ok(NETWORK, format!("{host} takes connections"));
        return vec![reachable, DiagnosticFinding::problem(TLS, format!("{host}: {cause}"), remedy)];
    }
    let remedy = "allow outgoing TCP 443 and DNS to this host in firewall, security group and route table, or set HTTPS_PROXY; \
                  compare the fields cloud and resourceManagerEndpoint";
    vec![DiagnosticFinding::problem(NETWORK, format!("no route to {host}: {cause}"), remedy)]
}

fn credential_remedy(reason: &str) -> &'static str {
    let is_reported =
        |(code, _): &&(&str, &str)| reason.split(|item: char| !item.is_ascii_alphanumeric()).any(|word| word == *code);
    match ENTRA_CODES.iter().find(is_reported) {
        Some((_, remedy)) => remedy,
        None => "compare tenantId, client id and credential in azure.json with the identity in Entra",
    }
}

fn clock(seen: &WireSightings) -> DiagnosticFinding {
    match &seen.ahead {
        Some((seconds, host)) => DiagnosticFinding::clock(CLOCK, host, Some(*seconds)),
        None => DiagnosticFinding::clock(CLOCK, "Azure", None),
    }
}
