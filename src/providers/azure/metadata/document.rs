//! Documents of the instance metadata service. Pure.
//!
//! In: JSON. Out: the used fields. Other fields are ignored; a missing or null value is empty. Upstream:
//! `pkg/provider/azure_instance_metadata.go`.

use crate::providers::azure::model::document::records;

records! {
    /// Document at `/metadata/instance`, about the machine.
    pub ImdsInstance {
        compute: Option<ImdsCompute>,
        network: ImdsNetwork,
    }
    pub ImdsCompute {
        resource_id: String,
        /// Name in ARM, which is not the host name of an instance of a scale set.
        name: String,
        os_profile: ImdsOsProfile,
        /// Subscription ID in any letter case.
        subscription_id: String,
        vm_size: String,
        location: String,
        /// Availability zone; empty if it has none.
        zone: String,
        /// Fault domain; empty if it has none.
        platform_fault_domain: String,
        /// Part of a fault domain; empty if it has none.
        platform_sub_fault_domain: String,
        tags_list: Vec<ImdsTag>,
    }
    /// Settings of the operating system.
    pub ImdsOsProfile {
        computer_name: String,
    }
    pub ImdsTag {
        name: String,
        value: String,
    }
    /// Network of the machine.
    pub ImdsNetwork {
        /// Network interfaces, the primary one first.
        interface: Vec<ImdsInterface>,
    }
    pub ImdsInterface {
        ipv4: ImdsAddressFamily,
        ipv6: ImdsAddressFamily,
    }
    /// Addresses of one family.
    pub ImdsAddressFamily {
        /// Addresses, the primary one first.
        ip_address: Vec<ImdsAddress>,
    }
    /// Private address with its public address.
    pub ImdsAddress {
        private_ip_address: String,
        /// Public address; empty without one, and for a public IP with a Standard SKU.
        public_ip_address: String,
    }
    /// Document at `/metadata/loadbalancer`, about public addresses.
    pub ImdsLoadBalancer {
        loadbalancer: ImdsPublicAddresses,
    }
    /// Public addresses with a Standard SKU.
    pub ImdsPublicAddresses {
        /// Pairs of public and private addresses. IPv6 addresses may be in brackets.
        public_ip_addresses: Vec<ImdsPublicAddress>,
    }
    /// Public address and the private address behind it.
    pub ImdsPublicAddress {
        frontend_ip_address: String,
        private_ip_address: String,
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImdsDocuments {
    pub instance: ImdsInstance,
    /// Public addresses, if `instance` has none.
    pub load_balancer: ImdsLoadBalancer,
}

impl ImdsInstance {
    /// Returns the first interface, which the kubelet uses.
    pub fn interface(&self) -> Option<&ImdsInterface> {
        self.network.interface.first()
    }

    /// Returns `true` if the public addresses must be read from the second document: like upstream, if no family's first address has
    /// one.
    pub fn lacks_public_addresses(&self) -> bool {
        let families = self.interface().into_iter().flat_map(|interface| [&interface.ipv4, &interface.ipv6]);
        families.filter_map(ImdsAddressFamily::first).all(|address| address.public_ip_address.is_empty())
    }
}

impl ImdsAddressFamily {
    /// Returns the first address, which is used, unless it is empty.
    pub fn first(&self) -> Option<&ImdsAddress> {
        self.ip_address.first().filter(|address| !address.private_ip_address.is_empty())
    }
}

impl ImdsLoadBalancer {
    /// Returns the public address in front of the private address `private`.
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
    fn missing_and_null_fields_are_empty_and_others_ignored() {
        for (text, expected) in [
            ("{}", Some(ImdsInstance::default())),
            (
                r#"{"compute": {"zone": null, "tagsList": null, "new": {}}, "network": {"interface": null}}"#,
                Some(ImdsInstance { compute: Some(ImdsCompute::default()), ..ImdsInstance::default() }),
            ),
            (r#"{"compute": {"zone": 1}}"#, None),
            ("<html>", None),
        ] {
            assert_eq!(serde_json::from_str::<ImdsInstance>(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn first_addresses_without_public_ones_need_the_document() {
        let address =
            |public: &str| ImdsAddress { private_ip_address: "10.0.0.4".into(), public_ip_address: public.to_owned() };
        let family = |all: &[&str]| ImdsAddressFamily { ip_address: all.iter().map(|public| address(public)).collect() };
        let instance = |ipv4: &[&str], ipv6: &[&str]| ImdsInstance {
            network: ImdsNetwork { interface: vec![ImdsInterface { ipv4: family(ipv4), ipv6: family(ipv6) }] },
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
