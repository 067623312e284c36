//! Documents of the instance metadata service. Pure.
//!
//! In: JSON. Out: the fields that are used. Other fields are ignored; a value that is missing or null is empty. Upstream:
//! `pkg/provider/azure_instance_metadata.go`.

use serde::{Deserialize, Deserializer};

/// `/metadata/instance`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ImdsInstance {
    pub compute: Option<ImdsCompute>,
    pub network: Option<ImdsNetwork>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ImdsCompute {
    #[serde(deserialize_with = "or_empty")]
    pub resource_id: String,
    /// Name in ARM, which is not the host name of an instance of a scale set.
    #[serde(deserialize_with = "or_empty")]
    pub name: String,
    /// Profile of its operating system.
    #[serde(deserialize_with = "or_empty")]
    pub os_profile: ImdsOsProfile,
    /// Subscription, in whatever letter case.
    #[serde(deserialize_with = "or_empty")]
    pub subscription_id: String,
    #[serde(deserialize_with = "or_empty")]
    pub vm_size: String,
    #[serde(deserialize_with = "or_empty")]
    pub location: String,
    /// Availability zone; empty without.
    #[serde(deserialize_with = "or_empty")]
    pub zone: String,
    /// Fault domain; empty without.
    #[serde(deserialize_with = "or_empty")]
    pub platform_fault_domain: String,
    /// Part of a fault domain; empty without.
    #[serde(deserialize_with = "or_empty")]
    pub platform_sub_fault_domain: String,
    #[serde(deserialize_with = "or_empty")]
    pub tags_list: Vec<ImdsTag>,
}

/// Settings of the operating system.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ImdsOsProfile {
    #[serde(deserialize_with = "or_empty")]
    pub computer_name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ImdsTag {
    #[serde(deserialize_with = "or_empty")]
    pub name: String,
    #[serde(deserialize_with = "or_empty")]
    pub value: String,
}

/// The network of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ImdsNetwork {
    /// Network interfaces, the primary one first.
    #[serde(deserialize_with = "or_empty")]
    pub interface: Vec<ImdsInterface>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ImdsInterface {
    #[serde(deserialize_with = "or_empty")]
    pub ipv4: ImdsAddressFamily,
    #[serde(deserialize_with = "or_empty")]
    pub ipv6: ImdsAddressFamily,
}

/// Addresses of one family.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ImdsAddressFamily {
    /// The addresses, the primary one first.
    #[serde(deserialize_with = "or_empty")]
    pub ip_address: Vec<ImdsAddress>,
}

/// A private address with its public one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ImdsAddress {
    #[serde(deserialize_with = "or_empty")]
    pub private_ip_address: String,
    /// Public address; empty without, and for one of a Standard SKU.
    #[serde(deserialize_with = "or_empty")]
    pub public_ip_address: String,
}

/// `/metadata/loadbalancer`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ImdsLoadBalancer {
    #[serde(deserialize_with = "or_empty")]
    pub loadbalancer: ImdsPublicAddresses,
}

/// Public addresses of a Standard SKU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ImdsPublicAddresses {
    /// Pairs of public and private address; those of IPv6 may be in brackets.
    #[serde(deserialize_with = "or_empty")]
    pub public_ip_addresses: Vec<ImdsPublicAddress>,
}

/// A public address and the private one behind it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ImdsPublicAddress {
    #[serde(deserialize_with = "or_empty")]
    pub frontend_ip_address: String,
    #[serde(deserialize_with = "or_empty")]
    pub private_ip_address: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImdsDocuments {
    /// Description of the machine.
    pub instance: ImdsInstance,
    /// Public addresses, where the first document has none.
    pub load_balancer: ImdsLoadBalancer,
}

fn or_empty<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(value: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or_default())
}

impl ImdsInstance {
    /// Returns the interface that kubelet uses: the first.
    pub fn interface(&self) -> Option<&ImdsInterface> {
        self.network.as_ref()?.interface.first()
    }

    /// Returns `true` if the public addresses have to be looked for in the other document. Upstream: neither family's first
    /// address has one.
    pub fn lacks_public_addresses(&self) -> bool {
        let families = self.interface().into_iter().flat_map(|interface| [&interface.ipv4, &interface.ipv6]);
        families.filter_map(ImdsAddressFamily::first).all(|address| address.public_ip_address.is_empty())
    }
}

impl ImdsAddressFamily {
    /// Returns the address that counts.
    pub fn first(&self) -> Option<&ImdsAddress> {
        self.ip_address.first().filter(|address| !address.private_ip_address.is_empty())
    }
}

impl ImdsLoadBalancer {
    /// Returns the public address in front of `private`.
    pub fn in_front_of(&self, private: &str) -> Option<&str> {
        let pairs = self.loadbalancer.public_ip_addresses.iter();
        let mut pairs = pairs.filter(|pair| bare(&pair.private_ip_address) == bare(private));
        pairs.next().map(|pair| bare(&pair.frontend_ip_address)).filter(|public| !public.is_empty())
    }
}

/// Returns an address without its brackets.
fn bare(address: &str) -> &str {
    address.trim_start_matches('[').trim_end_matches(']')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_and_null_are_empty_and_the_unknown_is_left_alone() {
        for (text, expected) in [
            ("{}", Some(ImdsInstance::default())),
            (
                r#"{"compute": {"zone": null, "tagsList": null, "new": {}}, "network": {"interface": null}}"#,
                Some(ImdsInstance { compute: Some(ImdsCompute::default()), network: Some(ImdsNetwork::default()) }),
            ),
            (r#"{"compute": {"zone": 1}}"#, None),
            ("<html>", None),
        ] {
            assert_eq!(serde_json::from_str::<ImdsInstance>(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn the_other_document_is_needed_when_no_first_address_has_a_public_one() {
        let address =
            |public: &str| ImdsAddress { private_ip_address: "10.0.0.4".into(), public_ip_address: public.to_owned() };
        let family = |all: &[&str]| ImdsAddressFamily { ip_address: all.iter().map(|public| address(public)).collect() };
        let instance = |ipv4: &[&str], ipv6: &[&str]| ImdsInstance {
            network: Some(ImdsNetwork { interface: vec![ImdsInterface { ipv4: family(ipv4), ipv6: family(ipv6) }] }),
            ..ImdsInstance::default()
        };
        for (ipv4, ipv6, expected) in [
            (&[""][..], &[][..], true),
            (&["20.0.0.1"], &[""], false),
            (&[""], &["2603::1"], false),
            (&["", "20.0.0.1"], &[""], true),
        ] {
            assert_eq!(instance(ipv4, ipv6).lacks_public_addresses(), expected, "{ipv4:?} {ipv6:?}");
        }
        assert!(ImdsInstance::default().lacks_public_addresses());
    }
}
