//! What is kept outside the process of who has which destinations in security rules. Pure.
//!
//! In: what a process remembers, the Services whose rules are planned, the security group before and after. Out: one [`RuleRecord`] for
//! each Service that has destinations there, and the entries of a ConfigMap that change. Rules of the group are shared by name, so no
//! document in Azure tells whose a destination is; a process that begins knows it from these records alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use serde::{Deserialize, Serialize};

use super::spec::ServiceIdentity;

/// The name of the ConfigMap, in `kube-system`.
pub const CONFIG_MAP: &str = "cloud-controller-manager-security-rules";

/// The destinations of one Service, and the rules in which they may be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleRecord {
    /// Addresses that are destinations.
    pub addresses: BTreeSet<IpAddr>,
    /// Names of rules, in lower case.
    pub rules: BTreeSet<String>,
}

/// Destinations of the rules of a group, by the name of the rule in lower case.
pub type ListedDestinations = BTreeMap<String, BTreeSet<IpAddr>>;

impl RuleRecord {
    /// Adds what another one has.
    pub fn add(&mut self, other: Self) {
        self.addresses.extend(other.addresses);
        self.rules.extend(other.rules);
    }

    /// What is left of it in a group; `None`: nothing.
    pub fn within(&self, listed: &ListedDestinations) -> Option<Self> {
        let mut left = Self::default();
        for (rule, destinations) in self.rules.iter().filter_map(|rule| listed.get_key_value(rule)) {
            let own: BTreeSet<IpAddr> = self.addresses.intersection(destinations).copied().collect();
            if !own.is_empty() {
                left.rules.insert(rule.clone());
                left.addresses.extend(own);
            }
        }
        (!left.rules.is_empty()).then_some(left)
    }
}

/// The records of all Services.
pub type RuleRecords = BTreeMap<ServiceIdentity, RuleRecord>;

/// Reads the data of the ConfigMap. Entries that nobody can read are left out: they prove nothing.
pub fn decode(data: &BTreeMap<String, String>) -> RuleRecords {
    let entries = data.iter().filter_map(|(key, value)| Some((identity_of(key)?, serde_json::from_str(value).ok()?)));
    entries.collect()
}

/// The entries of the ConfigMap that change; `None`: the entry is removed. The body of a merge patch.
pub fn changes(before: &RuleRecords, after: &RuleRecords) -> BTreeMap<String, Option<String>> {
    let removed = before.keys().filter(|identity| !after.contains_key(*identity)).map(|identity| (key_of(identity), None));
    let written = after.iter().filter(|(identity, record)| before.get(*identity) != Some(*record));
    let written = written.map(|(identity, record)| (key_of(identity), serde_json::to_string(record).ok()));
    removed.chain(written).collect()
}

/// `<namespace>.<name>.<beginning of its names in Azure>`. Neither of them has a dot.
fn key_of(identity: &ServiceIdentity) -> String {
    format!("{}.{}", identity.key.replace('/', "."), identity.name_prefix)
}

fn identity_of(key: &str) -> Option<ServiceIdentity> {
    let mut parts = key.split('.');
    let (namespace, name, prefix) = (parts.next()?, parts.next()?, parts.next()?);
    let identity = ServiceIdentity { key: format!("{namespace}/{name}"), name_prefix: prefix.to_owned() };
    parts.next().is_none().then_some(identity)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(addresses: &[&str], rules: &[&str]) -> RuleRecord {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        RuleRecord { addresses, rules: rules.iter().map(|rule| (*rule).to_owned()).collect() }
    }

    fn identity(key: &str) -> ServiceIdentity {
        ServiceIdentity { key: key.to_owned(), name_prefix: "a123".to_owned() }
    }

    /// As the API server applies a merge patch.
    fn patched(mut data: BTreeMap<String, String>, changes: BTreeMap<String, Option<String>>) -> BTreeMap<String, String> {
        for (key, value) in changes {
            match value {
                Some(value) => drop(data.insert(key, value)),
                None => drop(data.remove(&key)),
            }
        }
        data
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let one: RuleRecords = [
            (identity("default/web"), record(&["192.0.2.1", "2001:db8::1"], &["r1", "r2"])),
            (identity("team/db"), record(&["192.0.2.2"], &["r1"])),
        ]
        .into();
        let two: RuleRecords = [(identity("team/db"), record(&["192.0.2.3"], &["r1"]))].into();
        let data = patched(BTreeMap::new(), changes(&RuleRecords::new(), &one));
        assert_eq!(decode(&data), one);
        assert!(changes(&one, &one).is_empty());
        let data = patched(data, changes(&one, &two));
        assert_eq!((decode(&data), data.len()), (two, 1));
    }

    #[test]
    fn an_entry_that_cannot_be_read_proves_nothing() {
        let valid = r#"{"addresses": [], "rules": []}"#;
        for (key, value) in
            [("web", valid), ("a.b.c.d", valid), ("a.b.c", "{}"), ("a.b.c", "x"), ("a.b.c", r#"{"addresses": ["x"]}"#)]
        {
            let data = [(key.to_owned(), value.to_owned())].into();
            assert_eq!(decode(&data), RuleRecords::new(), "{key}: {value}");
        }
    }

    #[test]
    fn only_what_the_group_has_is_kept() {
        let listed = |rules: &[(&str, &[&str])]| -> ListedDestinations {
            let addresses = |list: &[&str]| list.iter().map(|address| address.parse().unwrap()).collect();
            rules.iter().map(|(rule, list)| ((*rule).to_owned(), addresses(list))).collect()
        };
        let own = record(&["192.0.2.1", "192.0.2.2"], &["r1", "r2"]);
        for (group, left) in [
            (listed(&[]), None),
            (listed(&[("r3", &["192.0.2.1"])]), None),
            (listed(&[("r1", &["192.0.2.9"])]), None),
            (listed(&[("r1", &["192.0.2.1", "192.0.2.9"]), ("r2", &[])]), Some(record(&["192.0.2.1"], &["r1"]))),
            (listed(&[("r1", &["192.0.2.1"]), ("r2", &["192.0.2.2"])]), Some(own.clone())),
        ] {
            assert_eq!(own.within(&group), left, "{group:?}");
        }
    }
}
