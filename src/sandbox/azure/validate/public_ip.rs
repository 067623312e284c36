//! Public IPs: immutable fields, their users, and names that are taken.

use serde_json::Value;

use super::{Candidate, load_balancer::is_standard, same, text};
use crate::sandbox::azure::refusal::Refusal;

/// Fields that cannot change, with the code of the refusal.
const IMMUTABLE: &[(&str, &str)] = &[
    ("publicIPAddressVersion", "PublicIPAddressVersionCannotBeChanged"),
    ("publicIPPrefix", "PublicIPPrefixCannotBeChanged"),
    ("ipTags", "PublicIPAddressIpTagsCannotBeChanged"),
];

pub(super) fn check(candidate: Candidate<'_>) -> Result<(), Refusal> {
    let properties = &candidate.body["properties"];
    let is_static = text(properties, "publicIPAllocationMethod").eq_ignore_ascii_case("Static");
    if is_standard(candidate.body) && !is_static {
        let message = format!("Standard sku public IP address {} must have allocation method Static.", candidate.id);
        return Err(Refusal::invalid("StandardSkuPublicIPAddressMustBeStatic", message));
    }
    label(candidate)?;
    if let Some(old) = candidate.old {
        unchanged(candidate, old)?;
    }
    free_label(candidate)
}

fn unchanged(candidate: Candidate<'_>, old: &Value) -> Result<(), Refusal> {
    let refuse = |code: &str, subject: &str| {
        Err(Refusal::invalid(
            code,
            format!("{subject} of public IP address {} cannot be changed after it is created.", candidate.id),
        ))
    };
    // Upstream: an unused Basic one can be made Standard in place.
    let unused = candidate.store.referrers(candidate.id.as_str()).next().is_none();
    let upgraded = !is_standard(old) && is_standard(candidate.body) && unused;
    if !same(&old["sku"]["name"], &candidate.body["sku"]["name"]) && !upgraded {
        return refuse("PublicIPAddressSkuCannotBeChanged", "The SKU");
    }
    if zones(old) != zones(candidate.body) {
        return refuse("ResourceAvailabilityZonesCannotBeModified", "The availability zone constraint");
    }
    for (field, code) in IMMUTABLE {
        let (before, now) = (&old["properties"][*field], &candidate.body["properties"][*field]);
        let unset = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        let reference = same(&before["id"], &now["id"]) && !before["id"].is_null();
        let unchanged = same(before, now) || reference || unset(before) && unset(now);
        if !unchanged {
            return refuse(code, field);
        }
    }
    Ok(())
}

fn zones(body: &Value) -> Vec<&str> {
    let mut zones: Vec<&str> = body["zones"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    zones.sort_unstable();
    zones
}

/// Checks the label with `^[a-z][a-z0-9-]{1,61}[a-z0-9]$`, which Azure's refusal names.
fn label(candidate: Candidate<'_>) -> Result<(), Refusal> {
    let Some(label) = candidate.body["properties"]["dnsSettings"]["domainNameLabel"].as_str() else { return Ok(()) };
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = label.as_bytes();
    let fits = (3..=63).contains(&bytes.len())
        && bytes.first().is_some_and(u8::is_ascii_lowercase)
        && bytes.last().is_some_and(|last| plain(*last))
        && bytes.iter().all(|byte| plain(*byte) || *byte == b'-');
    if fits {
        return Ok(());
    }
    let message = format!(
        "The domain name label {label} is invalid. It must conform to the following regular expression: \
         ^[a-z][a-z0-9-]{{1,61}}[a-z0-9]$."
    );
    Err(Refusal::invalid("InvalidDomainNameLabel", message))
}

fn free_label(candidate: Candidate<'_>) -> Result<(), Refusal> {
    let Some(name) = candidate.body["properties"]["dnsSettings"]["fqdn"].as_str() else { return Ok(()) };
    let key = candidate.id.key();
    let is_used = candidate
        .store
        .of_type("Microsoft.Network/publicIPAddresses")
        .any(|(other, document)| *other != key && document.body["properties"]["dnsSettings"]["fqdn"] == name);
    if is_used {
        return Err(Refusal::invalid("DnsRecordInUse", format!("DNS record {name} is already used by another public IP.")));
    }
    Ok(())
}

pub(super) fn check_deletion(candidate: Candidate<'_>) -> Result<(), Refusal> {
    let Some(user) = candidate.store.referrers(candidate.id.as_str()).next() else { return Ok(()) };
    let message = format!(
        "Public IP address {} can not be deleted since it is still allocated to resource {}. In order to delete the public IP, \
         disassociate/detach the Public IP address from the resource.",
        candidate.id, user.element
    );
    Err(Refusal::invalid("PublicIPAddressCannotBeDeleted", message))
}
