//! Lease of each controller while controllers move between two managers. Pure.
//!
//! In: the configuration of the migration, and a controller's names. Out: the lease. Upstream: `k8s.io/controller-manager/pkg/leadermigration`.

use super::names::{ControllerNames, NODE_IPAM, ROUTE, SERVICE};

/// Name of this program in the configuration.
const OWN_COMPONENT: &str = "cloud-controller-manager";
/// Wildcard that matches any component.
const ANY_COMPONENT: &str = "*";
/// Name of the pod CIDR controller in kube-controller-manager, in addition to `node-ipam-controller`.
const FORMER_NODE_IPAM: &str = "nodeipam";

/// Assignment of controllers to a second lease, which several managers share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderMigration {
    /// Name of the second lease, in the namespace of the first.
    pub lease_name: String,
    pub controllers: Vec<MigratingController>,
}

/// Controller that is moved from one manager to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigratingController {
    /// Canonical name of the controller, its alias, or its name in kube-controller-manager.
    pub name: String,
    /// Program that runs the controller, or `*` for any.
    pub component: String,
}

/// Lease that a controller needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControllerLease {
    /// `--leader-elect-resource-name`.
    Main,
    /// Lease whose name is [`LeaderMigration::lease_name`].
    Migration,
    /// No lease of this process: the named program runs the controller.
    Elsewhere(String),
}

impl Default for LeaderMigration {
    /// Returns upstream's default for an empty `--leader-migration-config`: the controllers that moved out of
    /// kube-controller-manager.
    fn default() -> Self {
        let any = |name: &str| MigratingController { name: name.to_owned(), component: ANY_COMPONENT.to_owned() };
        Self {
            lease_name: "cloud-provider-extraction-migration".to_owned(),
            controllers: ["route-controller", "service-controller", "cloud-node-lifecycle-controller"].map(any).to_vec(),
        }
    }
}

impl LeaderMigration {
    /// Returns the lease of the controller with these names: that of the first entry that names it, else [`ControllerLease::Main`].
    pub fn lease_of(&self, names: &ControllerNames) -> ControllerLease {
        match self.controllers.iter().find(|entry| is_named(names, &entry.name)) {
            None => ControllerLease::Main,
            Some(entry) if [OWN_COMPONENT, ANY_COMPONENT].contains(&&*entry.component) => ControllerLease::Migration,
            Some(entry) => ControllerLease::Elsewhere(entry.component.clone()),
        }
    }
}

/// Returns `true` if `name` is the canonical name, an alias or the kube-controller-manager name of the controller.
///
/// Go compares canonical names only, so two of the three names of its own default match no controller.
fn is_named(names: &ControllerNames, name: &str) -> bool {
    let former = match *names {
        SERVICE | ROUTE => names.client == name,
        NODE_IPAM => name == FORMER_NODE_IPAM,
        _ => false,
    };
    former || names.canonical == name || names.alias == name
}

#[cfg(test)]
mod tests {
    use super::{super::names::*, *};

    fn migration(entries: &[(&str, &str)]) -> LeaderMigration {
        let entry = |(name, component): &(&str, &str)| MigratingController {
            name: (*name).to_owned(),
            component: (*component).to_owned(),
        };
        LeaderMigration { lease_name: "m".to_owned(), controllers: entries.iter().map(entry).collect() }
    }

    /// Upstream: `TestLeaderMigratorFilterFunc`, of which this program is the component `cloud-controller-manager`, and
    /// `TestLeaderMigrationOptions`.
    #[test]
    fn the_lease_follows_name_and_component() {
        let elsewhere = || ControllerLease::Elsewhere("kube-controller-manager".to_owned());
        for (entries, names, expected) in [
            (&[][..], SERVICE, ControllerLease::Main),
            (&[("service-lb-controller", "*")], SERVICE, ControllerLease::Migration),
            (&[("service", "cloud-controller-manager")], SERVICE, ControllerLease::Migration),
            (&[("service-controller", "kube-controller-manager")], SERVICE, elsewhere()),
            (&[("service", "kube-controller-manager"), ("service", "*")], SERVICE, elsewhere()),
            (&[("service", "*")], ROUTE, ControllerLease::Main),
            (&[("node-controller", "*")], NODE, ControllerLease::Main),
            (&[("node-controller", "*")], NODE_LIFECYCLE, ControllerLease::Main),
            (&[("cloud-node", "*")], NODE, ControllerLease::Migration),
            (&[("service", "*")], NODE_IPAM, ControllerLease::Main),
            (&[("nodeipam", "*")], NODE_IPAM, ControllerLease::Migration),
            (&[("node-ipam", "*")], NODE_IPAM, ControllerLease::Migration),
            (&[("node-ipam-controller", "kube-controller-manager")], NODE_IPAM, elsewhere()),
            (&[("route", "cloud-controller-manager")], ROUTE, ControllerLease::Migration),
            (&[("cloud-node-lifecycle", "kube-controller-manager")], NODE_LIFECYCLE, elsewhere()),
        ] {
            assert_eq!(migration(entries).lease_of(&names), expected, "{entries:?} {}", names.canonical);
        }
    }

    /// Returns all names that a configuration file may use for a controller.
    fn accepted_names() -> Vec<&'static str> {
        let all = TABLE.iter().flat_map(|names| [names.canonical, names.alias]);
        all.chain(["service-controller", "route-controller", "nodeipam"]).collect()
    }

    #[test]
    fn each_name_matches_one_controller() {
        for name in accepted_names() {
            let matches: Vec<_> = TABLE.iter().filter(|names| is_named(names, name)).map(|names| names.canonical).collect();
            assert_eq!(matches.len(), 1, "{name}: {matches:?}");
        }
        for shared in ["node-controller", "", "*", "deployment"] {
            assert!(!TABLE.iter().any(|names| is_named(names, shared)), "{shared}");
        }
    }

    #[test]
    fn the_default_moves_three_controllers() {
        let under = |names: &ControllerNames| LeaderMigration::default().lease_of(names);
        for names in [NODE_LIFECYCLE, SERVICE, ROUTE] {
            assert_eq!(under(&names), ControllerLease::Migration, "{}", names.canonical);
        }
        assert_eq!(under(&NODE), ControllerLease::Main);
    }
}
