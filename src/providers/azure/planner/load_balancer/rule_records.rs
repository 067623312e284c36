//! Records, kept outside of the process, of the Services to which destinations in security rules belong. Pure.
//!
//! In: the memory of a process, the Services whose rules are planned, the security group before and after. Out: one
//! [`RuleRecord`] for each Service with additional or former public addresses there, and the entries of a ConfigMap that
//! change. Load balancers, public IPs and Nodes show the owners of all other destinations. Services share rules of the group
//! by name, so no document in Azure shows the owners of the recorded ones.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use serde::{Deserialize, Serialize};

use super::spec::ServiceIdentity;

/// Name of the ConfigMap, in `kube-system`.
pub const CONFIG_MAP: &str = "cloud-controller-manager-security-rules";

/// Largest numbers of addresses and rules in the record of one Service: about 4 KiB.
const MAX_ADDRESSES: usize = 50;
const MAX_RULES: usize = 100;
/// Largest size of all entries, in bytes. The API server accepts 1 MiB, and each change stores the whole object.
const MAX_BYTES: usize = 512 * 1024;

/// Offset basis and prime of FNV-1a.
const HASH_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const HASH_PRIME: u64 = 0x0100_0000_01b3;

/// Hash of the name of a rule, so that names of any length take 8 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
pub struct RuleHash(u64);

impl RuleHash {
    /// Hashes a name without regard to case.
    pub fn of(name: &str) -> Self {
        let add = |hash: u64, byte: u8| (hash ^ u64::from(byte.to_ascii_lowercase())).wrapping_mul(HASH_PRIME);
        Self(name.bytes().fold(HASH_OFFSET, add))
    }
}

impl From<RuleHash> for String {
    fn from(hash: RuleHash) -> Self {
        format!("{:016x}", hash.0)
    }
}

/// Earlier versions recorded the names themselves.
impl From<String> for RuleHash {
    fn from(text: String) -> Self {
        let digits = u64::from_str_radix(&text, 16).ok().filter(|_| text.len() == 16);
        digits.map_or_else(|| Self::of(&text), Self)
    }
}

/// Destinations of one Service that only a record shows, and the rules in which they may be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleRecord {
    /// Additional and former public addresses of the Service.
    pub addresses: BTreeSet<IpAddr>,
    /// Rules by the hash of their names.
    pub rules: BTreeSet<RuleHash>,
}

/// Destinations of the rules of a group, by the hash of the rule's name.
pub type ListedDestinations = BTreeMap<RuleHash, BTreeSet<IpAddr>>;

impl RuleRecord {
    /// Adds the addresses and rules of another record.
    pub fn add(&mut self, other: Self) {
        self.addresses.extend(other.addresses);
        self.rules.extend(other.rules);
    }

    /// Returns the part of the record that a group has, or `None` if the group has no part.
    pub fn within(&self, listed: &ListedDestinations) -> Option<Self> {
        let mut left = Self::default();
        for (rule, destinations) in self.rules.iter().filter_map(|rule| listed.get_key_value(rule)) {
            let own: BTreeSet<IpAddr> = self.addresses.intersection(destinations).copied().collect();
            if !own.is_empty() {
                left.rules.insert(*rule);
                left.addresses.extend(own);
            }
        }
        (!left.rules.is_empty()).then_some(left)
    }

    /// Returns the part of the record that fits into the limits for one Service.
    fn truncated(&self) -> Self {
        Self {
            addresses: self.addresses.iter().take(MAX_ADDRESSES).copied().collect(),
            rules: self.rules.iter().take(MAX_RULES).copied().collect(),
        }
    }
}

/// Records by the Service that they belong to.
pub type RuleRecords = BTreeMap<ServiceIdentity, RuleRecord>;

/// Records around a write of the security group.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PlannedRecords {
    /// Records before the write.
    pub before: RuleRecords,
    /// Records while the group may have the destinations of both documents.
    pub during: RuleRecords,
    /// Records after the planned write.
    pub after: RuleRecords,
}

/// Returns the records that fit into the ConfigMap, and the Services whose records do not fit completely.
///
/// The smallest records come first, so that a user with many large records displaces no ordinary one.
pub fn bounded(records: &RuleRecords) -> (RuleRecords, BTreeSet<ServiceIdentity>) {
    let size = |identity: &ServiceIdentity, record: &RuleRecord| {
        key_of(identity).len() + serde_json::to_string(record).map_or(0, |text| text.len())
    };
    let truncated = records.iter().map(|(identity, record)| (identity, record.truncated()));
    let mut sized: Vec<_> = truncated.map(|(identity, record)| (size(identity, &record), identity, record)).collect();
    sized.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
    let (mut fitting, mut omitted, mut total) = (RuleRecords::new(), BTreeSet::new(), 0);
    for (size, identity, truncated) in sized {
        total += size;
        if total > MAX_BYTES || records.get(identity) != Some(&truncated) {
            omitted.insert(identity.clone());
        }
        if total <= MAX_BYTES {
            fitting.insert(identity.clone(), truncated);
        }
    }
    (fitting, omitted)
}

/// Reads the data of the ConfigMap. Unreadable entries are omitted because they prove nothing.
pub fn decode(data: &BTreeMap<String, String>) -> RuleRecords {
    let entries = data.iter().filter_map(|(key, value)| Some((identity_of(key)?, serde_json::from_str(value).ok()?)));
    entries.collect()
}

/// Returns the changed entries of the ConfigMap, which are the data of a merge patch. `None` removes an entry.
pub fn changes(before: &RuleRecords, after: &RuleRecords) -> BTreeMap<String, Option<String>> {
    let removed = before.keys().filter(|identity| !after.contains_key(*identity)).map(|identity| (key_of(identity), None));
    let written = after.iter().filter(|(identity, record)| before.get(*identity) != Some(*record));
    let written = written.map(|(identity, record)| (key_of(identity), serde_json::to_string(record).ok()));
    removed.chain(written).collect()
}

/// Returns `<namespace>.<name>.<prefix of names in Azure>`. None of the parts contains a dot.
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
        RuleRecord { addresses, rules: rules.iter().map(|rule| RuleHash::of(rule)).collect() }
    }

    fn identity(key: &str) -> ServiceIdentity {
        ServiceIdentity { key: key.to_owned(), name_prefix: "a123".to_owned() }
    }

    /// Applies a merge patch as the API server does.
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
    fn names_of_rules_are_recorded_as_hashes() {
        let record = record(&["192.0.2.1"], &["k8s-azure-lb_allow_IPv4_a"]);
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(text, r#"{"addresses":["192.0.2.1"],"rules":["HASH"]}"#.replace("HASH", &hash(&record)));
        assert_eq!(hash(&record).len(), 16);
        assert_eq!(RuleHash::of("K8S-azure-LB_allow_IPv4_A"), RuleHash::of("k8s-azure-lb_allow_IPv4_a"));
    }

    fn hash(record: &RuleRecord) -> String {
        record.rules.first().copied().unwrap().into()
    }

    #[test]
    fn records_of_former_versions_are_read() {
        let text = r#"{"addresses": ["192.0.2.1"], "rules": ["k8s-azure-lb_allow_IPv4_a"]}"#;
        let data = [("default.web.a123".to_owned(), text.to_owned())].into();
        let expected = record(&["192.0.2.1"], &["k8s-azure-lb_allow_IPv4_a"]);
        assert_eq!(decode(&data), [(identity("default/web"), expected)].into());
    }

    #[test]
    fn one_service_takes_a_bounded_part_of_the_record() {
        let addresses = (0..1_000).map(|last: u32| IpAddr::from(std::net::Ipv6Addr::from(u128::MAX - u128::from(last))));
        let rules = (0..1_000).map(|rule: u32| RuleHash::of(&rule.to_string()));
        let large = RuleRecord { addresses: addresses.collect(), rules: rules.collect() };
        let small = record(&["192.0.2.1"], &["r1"]);
        let all = [(identity("team/large"), large), (identity("team/small"), small.clone())].into();
        let (fitting, omitted) = bounded(&all);
        assert_eq!(fitting[&identity("team/small")], small);
        assert!(serde_json::to_string(&fitting[&identity("team/large")]).unwrap().len() < 4_200);
        assert_eq!(omitted, [identity("team/large")].into());
    }

    #[test]
    fn large_records_leave_room_for_small_ones() {
        let rules: Vec<String> = (0..MAX_RULES).map(|rule| rule.to_string()).collect();
        let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
        let mut all: RuleRecords =
            (0..1_000).map(|number| (identity(&format!("a/{number}")), record(&["192.0.2.1"], &rules))).collect();
        all.insert(identity("z/small"), record(&["192.0.2.1"], &["r1"]));
        let (fitting, omitted) = bounded(&all);
        assert!(fitting.contains_key(&identity("z/small")));
        assert_eq!(fitting.len() + omitted.len(), all.len());
        let data = patched(BTreeMap::new(), changes(&RuleRecords::new(), &fitting));
        let size: usize = data.iter().map(|(key, value)| key.len() + value.len()).sum();
        assert!(omitted.len() > 100 && size <= MAX_BYTES, "{} omitted, {size} bytes", omitted.len());
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
            rules.iter().map(|(rule, list)| (RuleHash::of(rule), addresses(list))).collect()
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
