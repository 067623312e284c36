//! Load balancers: frontends and their addresses, probes, parts that are in use. Rules: [`super::load_balancer_rules`].

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Candidate, dropped, interface, load_balancer_rules, private_link_service, same, sku, text};
use crate::sandbox::azure::{kinds, refusal::Refusal, shape};

const FRONTENDS: &str = "frontendIPConfigurations";

pub(super) fn check(candidate: Candidate<'_>) -> Result<(), Refusal> {
    unique_names(candidate)?;
    immutable(candidate)?;
    shape::parts(candidate.body, FRONTENDS).try_for_each(|frontend| check_frontend(candidate, frontend))?;
    shape::parts(candidate.body, "probes").try_for_each(check_probe)?;
    interface::check_addresses(candidate, FRONTENDS)?;
    load_balancer_rules::check(candidate)?;
    check_dropped(candidate)?;
    keeps_a_frontend(candidate)
}

/// Refuses a write that removes the last frontend; only a deletion may do that.
fn keeps_a_frontend(candidate: Candidate<'_>) -> Result<(), Refusal> {
    let has_frontend = |body: &Value| shape::parts(body, FRONTENDS).next().is_some();
    if candidate.old.is_some_and(has_frontend) && !has_frontend(candidate.body) {
        let message = format!("Deleting all IP configurations of load balancer {} is not supported.", candidate.id);
        return Err(Refusal::invalid("DeletingAllIpConfigsInLoadbalancerNotSupported", message));
    }
    Ok(())
}

/// Returns `true` if a document's SKU is Standard.
pub(super) fn is_standard(body: &Value) -> bool {
    text(&body["sku"], "name").eq_ignore_ascii_case("Standard")
}

fn unique_names(candidate: Candidate<'_>) -> Result<(), Refusal> {
    let kind = kinds::kind_of("Microsoft.Network/loadBalancers");
    for list in kind.iter().flat_map(|kind| kind.parts) {
        let mut seen = BTreeSet::new();
        for part in shape::parts(candidate.body, list) {
            let name = text(part, "name").to_ascii_lowercase();
            if name.is_empty() || !seen.insert(name.clone()) {
                let message = format!(
                    "Parts of {} in {list} must have names of their own; `{name}` is missing or there twice.",
                    candidate.id
                );
                return Err(Refusal::invalid("InvalidRequestFormat", message));
            }
        }
    }
    Ok(())
}

fn immutable(candidate: Candidate<'_>) -> Result<(), Refusal> {
    match candidate.old {
        Some(old) if !same(&old["sku"]["name"], &candidate.body["sku"]["name"]) => {
            let message = format!("The SKU of load balancer {} cannot be changed.", candidate.id);
            Err(Refusal::invalid("LoadBalancerSkuUpdateNotAllowed", message))
        }
        _ => Ok(()),
    }
}

fn check_frontend(candidate: Candidate<'_>, frontend: &Value) -> Result<(), Refusal> {
    let id = text(frontend, "id");
    let properties = &frontend["properties"];
    let address = properties["publicIPAddress"]["id"].as_str();
    let prefix = !properties["publicIPPrefix"].is_null();
    if address.is_none() && !prefix && properties["subnet"]["id"].is_null() {
        let message = format!(
            "Frontend IP configuration {id} must reference either a subnet, a public IP address or a public IP prefix."
        );
        return Err(Refusal::invalid("LoadBalancerFrontendIPConfigMustHaveSubnetOrPublicIP", message));
    }
    address.map_or(Ok(()), |address| check_public(candidate, id, address))
}

fn check_public(candidate: Candidate<'_>, frontend: &str, address: &str) -> Result<(), Refusal> {
    let key = frontend.to_ascii_lowercase();
    let public = candidate.store.get(address);
    public.map_or(Ok(()), |public| provisioned(candidate, address, &public.body))?;
    sku::check_public(candidate, address)?;
    let own = candidate.id.key();
    let elsewhere = candidate.store.referrers(address).find(|referrer| referrer.document != own);
    let twice = shape::parts(candidate.body, FRONTENDS)
        .filter(|other| text(&other["properties"]["publicIPAddress"], "id").eq_ignore_ascii_case(address))
        .map(|other| text(other, "id").to_ascii_lowercase())
        .find(|other| *other != key);
    match elsewhere.map(|referrer| referrer.element.clone()).or(twice) {
        Some(other) => {
            let message = format!(
                "Resource {frontend} is referencing public IP address {address} that is already allocated to resource {other}."
            );
            Err(Refusal::invalid("PublicIPAddressInUse", message))
        }
        None => Ok(()),
    }
}

/// Checks that the referenced public IP is neither changing nor failed.
fn provisioned(candidate: Candidate<'_>, address: &str, public: &Value) -> Result<(), Refusal> {
    let state = text(&public["properties"], "provisioningState");
    if state == "Succeeded" {
        return Ok(());
    }
    let message = format!(
        "Cannot proceed with operation since resource {address} used by resource {} is not in Succeeded state. Resource is in {state} \
         state and the last operation that updated/is updating the resource is PutPublicIPAddressOperation.",
        candidate.id
    );
    Err(Refusal::new(409, "ReferencedResourceNotProvisioned", message))
}

fn check_probe(probe: &Value) -> Result<(), Refusal> {
    let (id, properties) = (text(probe, "id"), &probe["properties"]);
    let refuse = |code: &str, reason: String| Err(Refusal::invalid(code, format!("Probe {id}: {reason}")));
    let protocol = text(properties, "protocol").to_ascii_lowercase();
    if !["tcp", "http", "https"].contains(&protocol.as_str()) {
        return refuse(
            "InvalidRequestFormat",
            format!("`{protocol}` is no protocol of probes; there are Tcp, Http and Https."),
        );
    }
    if !properties["port"].as_u64().is_some_and(|port| (1..=65535).contains(&port)) {
        return refuse("InvalidProbePort", format!("port {} is not between 1 and 65535.", properties["port"]));
    }
    if properties["intervalInSeconds"].as_u64().is_some_and(|seconds| seconds < 5) {
        return refuse("InvalidProbeInterval", "intervalInSeconds must be at least 5.".to_owned());
    }
    if protocol != "tcp" && text(properties, "requestPath").is_empty() {
        return refuse("ProbeRequestPathMissing", "requestPath is required for Http and Https.".to_owned());
    }
    if protocol == "tcp" && !text(properties, "requestPath").is_empty() {
        return refuse("ProbeRequestPathNotAllowed", "requestPath is not allowed for Tcp.".to_owned());
    }
    Ok(())
}

/// Checks that pools with members and frontends behind a private link service are not dropped.
pub(super) fn check_dropped(candidate: Candidate<'_>) -> Result<(), Refusal> {
    if let Some((pool, member)) = dropped(candidate, "backendAddressPools").next() {
        let of_scale_set = member.document.contains("/virtualmachinescalesets/");
        let end = member.document.find("/virtualmachines/").unwrap_or(member.document.len());
        let user = &member.element[..end.min(member.element.len())];
        let message = if of_scale_set {
            format!(
                "Cannot delete load balancer {} since its child resources {pool} are in use by virtual machine scale set {user}.",
                candidate.id
            )
        } else {
            format!("Load balancer backend address pool {pool} is in use by {}.", member.element)
        };
        let code = if of_scale_set {
            "LoadBalancerInUseByVirtualMachineScaleSet"
        } else {
            "InUseBackendAddressPoolCannotBeDeleted"
        };
        return Err(Refusal::invalid(code, message));
    }
    match dropped(candidate, FRONTENDS).next() {
        Some((frontend, _)) if candidate.body.is_null() && has_service(candidate, &frontend) => {
            let message = format!(
                "Cannot delete load balancer {} since its frontend IP configuration {frontend} is used by a private link service.",
                candidate.id
            );
            Err(Refusal::invalid("CannotDeleteLoadBalancerWithPrivateLinkService", message))
        }
        Some((frontend, user)) => {
            let message = format!("Frontend IP configuration {frontend} is in use by {}.", user.element);
            Err(Refusal::invalid("FrontendIPConfigurationInUse", message))
        }
        None => Ok(()),
    }
}

fn has_service(candidate: Candidate<'_>, frontend: &str) -> bool {
    private_link_service::user_of_frontend(candidate, frontend).is_some()
}
