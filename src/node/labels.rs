//! Labels of a Node for facts of its instance, under their stable and their deprecated names.
//!
//! Upstream: `controllers/node/node_controller.go` (`labelReconcileInfo`, `getNodeModifiersFromCloudProvider`).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;

use super::well_known::{
    LABEL_INSTANCE_TYPE, LABEL_INSTANCE_TYPE_BETA, LABEL_REGION, LABEL_REGION_BETA, LABEL_ZONE, LABEL_ZONE_BETA,
    RESERVED_LABEL_DOMAINS,
};
use crate::cloud_provider::InstanceMetadata;

/// Deprecated and stable names of the labels for the same facts.
pub const BETA_AND_STABLE: &[(&str, &str)] =
    &[(LABEL_ZONE_BETA, LABEL_ZONE), (LABEL_REGION_BETA, LABEL_REGION), (LABEL_INSTANCE_TYPE_BETA, LABEL_INSTANCE_TYPE)];

/// Maximum length of the value of a label.
const LONGEST_VALUE: usize = 63;

pub type Labels = BTreeMap<String, String>;

/// Returns the labels of `node`.
pub fn of(node: &Node) -> &Labels {
    static NONE: Labels = Labels::new();
    node.metadata.labels.as_ref().unwrap_or(&NONE)
}

/// Returns the deprecated labels to set so that they equal the stable ones, which are the source of truth
/// (`--enable-deprecated-beta-topology-labels`).
///
/// If the stable label is missing, nothing changes. Upstream's library makes the stable label follow the deprecated one;
/// upstream's cloud-node-manager, which serves Azure, does this.
pub fn missing_beta(labels: &Labels) -> Labels {
    let differing =
        |(beta, stable): &&(&str, &str)| labels.contains_key(*stable) && labels.get(*beta) != labels.get(*stable);
    let to_set = BETA_AND_STABLE.iter().filter(differing);
    to_set.filter_map(|(beta, stable)| Some(((*beta).to_owned(), labels.get(*stable)?.clone()))).collect()
}

/// Returns the labels for machine type, zone and region of an instance. A fact that the cloud does not report has no label.
pub fn of_instance(metadata: &InstanceMetadata) -> Labels {
    let facts =
        [(&metadata.instance_type, LABEL_INSTANCE_TYPE), (&metadata.zone, LABEL_ZONE), (&metadata.region, LABEL_REGION)];
    let reported = facts.into_iter().filter(|(value, _)| !value.is_empty());
    reported.map(|(value, key)| (key.to_owned(), value.clone())).collect()
}

/// Returns the labels of the instance that `node` lacks or has with another value.
pub fn outdated(node: &Node, metadata: &InstanceMetadata) -> Labels {
    let mut facts = of_instance(metadata);
    facts.retain(|key, value| of(node).get(key) != Some(value));
    facts
}

/// Reason why an additional label of the cloud is not set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DroppedLabel {
    /// Label in a domain of Kubernetes.
    #[error("label {0} of the cloud provider is dropped: its domain is reserved for Kubernetes")]
    Reserved(String),
    /// Value that is not valid for a label: the API server would reject the Node.
    #[error("label {0} of the cloud provider is dropped: {1:?} is not a valid label value")]
    Invalid(String, String),
    /// Label that the Node has with another value, which is kept.
    #[error("label {key} of the cloud provider is dropped: the node has it already, as {current} instead of {offered}")]
    Conflict {
        key: String,
        /// Value on the Node.
        current: String,
        /// Value from the cloud.
        offered: String,
    },
}

/// Returns the `additional` labels to set on a Node that has `present`, and the reasons why others are not.
pub fn additional(present: &Labels, additional: &Labels) -> (Labels, Vec<DroppedLabel>) {
    let mut set = Labels::new();
    let mut dropped = Vec::new();
    for (key, offered) in additional {
        match present.get(key) {
            _ if is_reserved(key) => dropped.push(DroppedLabel::Reserved(key.clone())),
            _ if !is_value(offered) => dropped.push(DroppedLabel::Invalid(key.clone(), offered.clone())),
            Some(current) if current == offered => {}
            Some(current) => {
                dropped.push(DroppedLabel::Conflict {
                    key: key.clone(),
                    current: current.clone(),
                    offered: offered.clone(),
                });
            }
            None => drop(set.insert(key.clone(), offered.clone())),
        }
    }
    (set, dropped)
}

/// Returns `true` for a valid label value. Upstream: `IsValidLabelValue` in `apimachinery/pkg/util/validation`.
fn is_value(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let ends = [text.bytes().next(), text.bytes().next_back()];
    text.len() <= LONGEST_VALUE && text.bytes().all(is_inner) && ends.iter().flatten().all(u8::is_ascii_alphanumeric)
}

fn is_reserved(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else { return false };
    RESERVED_LABEL_DOMAINS.iter().any(|reserved| {
        domain.strip_suffix(reserved).is_some_and(|subdomain| subdomain.is_empty() || subdomain.ends_with('.'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::fixtures::labels;

    /// Upstream: cloud-node-manager with `--enable-deprecated-beta-topology-labels`.
    #[test]
    fn beta_labels_follow_stable_labels() {
        let beta = [(LABEL_ZONE_BETA, "z"), (LABEL_REGION_BETA, "r"), (LABEL_INSTANCE_TYPE_BETA, "t")];
        let stable = [(LABEL_ZONE, "z"), (LABEL_REGION, "r"), (LABEL_INSTANCE_TYPE, "t")];
        let outdated_beta = [(LABEL_ZONE_BETA, "bad"), (LABEL_REGION_BETA, "bad"), (LABEL_INSTANCE_TYPE_BETA, "bad")];
        for (name, present, expected) in [
            ("beta missing", labels(&stable), labels(&beta)),
            ("consistent", labels(&[beta, stable].concat()), labels(&[])),
            ("beta outdated", labels(&[outdated_beta, stable].concat()), labels(&beta)),
            ("stable missing", labels(&beta), labels(&[])),
            ("one missing", labels(&[&stable[..], &beta[1..]].concat()), labels(&beta[..1])),
        ] {
            assert_eq!(missing_beta(&present), expected, "{name}");
        }
    }

    #[test]
    fn facts_of_the_cloud_become_stable_labels() {
        let whole = InstanceMetadata {
            instance_type: "t".into(),
            zone: "z".into(),
            region: "r".into(),
            ..InstanceMetadata::default()
        };
        assert_eq!(of_instance(&whole), labels(&[(LABEL_INSTANCE_TYPE, "t"), (LABEL_ZONE, "z"), (LABEL_REGION, "r")]));
        let no_zone = InstanceMetadata { zone: String::new(), ..whole };
        assert_eq!(of_instance(&no_zone), labels(&[(LABEL_INSTANCE_TYPE, "t"), (LABEL_REGION, "r")]));
        assert!(of_instance(&InstanceMetadata::default()).is_empty());
    }

    #[test]
    fn labels_that_differ_from_the_instance_are_outdated() {
        let resized = InstanceMetadata { instance_type: "large".into(), region: "r".into(), ..InstanceMetadata::default() };
        let with = |present: &[(&str, &str)]| {
            let node = crate::node::fixtures::node("n");
            Node { metadata: kube::api::ObjectMeta { labels: Some(labels(present)), ..node.metadata.clone() }, ..node }
        };
        let large = labels(&[(LABEL_INSTANCE_TYPE, "large")]);
        let zone_is_unknown = [(LABEL_INSTANCE_TYPE, "large"), (LABEL_REGION, "r"), (LABEL_ZONE, "kept")];
        assert_eq!(outdated(&with(&[(LABEL_INSTANCE_TYPE, "small"), (LABEL_REGION, "r")]), &resized), large);
        assert_eq!(outdated(&with(&[(LABEL_REGION, "r")]), &resized), large, "it is missing");
        assert_eq!(outdated(&with(&zone_is_unknown), &resized), labels(&[]));
    }

    /// The API server would refuse the whole Node.
    #[test]
    fn invalid_label_values_are_dropped() {
        let long = "x".repeat(64);
        for (value, is_set) in [
            ("", true),
            ("a", true),
            ("A.b_c-1", true),
            (&long[1..], true),
            (&long[..], false),
            ("a/b", false),
            ("a b", false),
            ("-a", false),
            ("a.", false),
            ("\u{e9}", false),
        ] {
            let (set, dropped) = additional(&labels(&[]), &labels(&[("example.com/group", value)]));
            assert_eq!((set.len(), dropped.len()), if is_set { (1, 0) } else { (0, 1) }, "{value:?}");
        }
    }

    /// Upstream: `Test_syncNode`, "additional labels" and "labels to discard".
    #[test]
    fn additional_labels_do_not_replace_existing_or_reserved_ones() {
        let present = labels(&[("team", "a"), ("same", "x"), (LABEL_ZONE, "z")]);
        let offered = labels(&[
            ("my.custom.label/foo", "bar"),
            ("team", "b"),
            ("same", "x"),
            ("kubernetes.io/hostname", "h"),
            ("app.kubernetes.io/name", "n"),
            ("k8s.io/x", "1"),
            ("deep.app.k8s.io/x", "1"),
            (LABEL_ZONE, "other"),
            ("k8snio/bar", "1"),
            ("app.k8snio/bar", "1"),
            ("mykubernetes.io/bar", "1"),
            ("kubernetes.io", "no-domain"),
        ]);
        let (set, dropped) = additional(&present, &offered);
        assert_eq!(
            set,
            labels(&[
                ("my.custom.label/foo", "bar"),
                ("k8snio/bar", "1"),
                ("app.k8snio/bar", "1"),
                ("mykubernetes.io/bar", "1"),
                ("kubernetes.io", "no-domain"),
            ])
        );
        let reserved: Vec<_> = dropped.iter().filter(|reason| matches!(reason, DroppedLabel::Reserved(_))).collect();
        assert_eq!(reserved.len(), 5);
        let current = DroppedLabel::Conflict { key: "team".into(), current: "a".into(), offered: "b".into() };
        assert!(dropped.contains(&current));
        assert_eq!(dropped.len(), 6);
    }
}
