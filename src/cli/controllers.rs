//! Grammar of `--controllers`. Pure.
//!
//! In: the items of the list. Out: the controllers of [`crate::controllers::names`] that run. The grammar is that of
//! `k8s.io/controller-manager/app.IsControllerEnabled`.

use std::collections::BTreeSet;

pub use crate::controllers::names::{ControllerNames, NODE, NODE_IPAM, NODE_LIFECYCLE, ROUTE, SERVICE, TABLE};

/// Controllers that `--controllers` selects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ControllerSelection {
    /// Canonical names of the controllers that run.
    pub enabled: BTreeSet<&'static str>,
    /// Items that are not the name of a controller, without their dash.
    pub unknown_names: Vec<String>,
}

/// Reads the list of `--controllers`. The first item that names a controller applies to it; without one, `*` does.
pub fn select(list: &[String]) -> ControllerSelection {
    let names = list.iter().filter(|item| *item != "*").map(|item| item.strip_prefix('-').unwrap_or(item));
    let unknown_names = names.filter(|name| canonical(name).is_none()).map(str::to_owned).collect();
    let enabled = TABLE.iter().map(|names| names.canonical).filter(|controller| is_enabled(controller, list)).collect();
    ControllerSelection { enabled, unknown_names }
}

fn is_enabled(controller: &str, list: &[String]) -> bool {
    let decision = list.iter().find_map(|item| match item.strip_prefix('-') {
        Some(name) => (canonical(name) == Some(controller)).then_some(false),
        None => (canonical(item) == Some(controller)).then_some(true),
    });
    decision.unwrap_or_else(|| list.iter().any(|item| item == "*"))
}

/// Returns the canonical name for a name or alias.
fn canonical(name: &str) -> Option<&'static str> {
    TABLE.iter().find(|names| name == names.canonical || name == names.alias).map(|names| names.canonical)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(list: &str) -> String {
        let list: Vec<_> = list.split(',').filter(|item| !item.is_empty()).map(str::to_owned).collect();
        let selection = select(&list);
        let aliases = TABLE.iter().filter(|names| selection.enabled.contains(names.canonical)).map(|names| names.alias);
        aliases.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn first_mention_of_a_controller_decides() {
        const ALL: &str = "node-ipam-controller cloud-node cloud-node-lifecycle service route";
        for (list, enabled) in [
            ("*", ALL),
            ("", ""),
            ("*,-cloud-node", "node-ipam-controller cloud-node-lifecycle service route"),
            ("-cloud-node,*", "node-ipam-controller cloud-node-lifecycle service route"),
            ("*,-cloud-node-controller", "node-ipam-controller cloud-node-lifecycle service route"),
            ("route", "route"),
            ("node-route-controller,service", "service route"),
            ("-route", ""),
            ("route,-route", "route"),
            ("-route,route", ""),
            ("-route,node-route-controller,*", "node-ipam-controller cloud-node cloud-node-lifecycle service"),
            ("*,*", ALL),
            ("*,-node-ipam", "cloud-node cloud-node-lifecycle service route"),
            ("node-ipam", "node-ipam-controller"),
            ("*,node-ipam", ALL),
        ] {
            assert_eq!(selected(list), enabled, "{list:?}");
        }
    }

    #[test]
    fn unknown_names_lose_their_dash() {
        let list = ["-x", "cloud-node", "*", "Route", "node-ipam", "-node-ipam", "-*"].map(str::to_owned);
        assert_eq!(select(&list).unknown_names, ["x", "Route", "*"]);
    }
}
