//! Names of routes: pure.
//!
//! Upstream: `pkg/provider/azure_routes.go`, `mapNodeNameToRouteName` and `mapRouteNameToNodeName`, in the dual-stack form,
//! which upstream's program always uses.

/// Separator between the name of the Node and the CIDR.
const SEPARATOR: &str = "____";
/// Largest number of characters of a name that ARM accepts.
pub const MAX_NAME: usize = 80;
/// Smallest number of characters of the CIDR in a name.
const MIN_CIDR: usize = 8;
/// Largest number of characters of the name of a Node that can have routes.
pub const MAX_NODE: usize = MAX_NAME - SEPARATOR.len() - MIN_CIDR;

/// Returns the name of a route to `cidr`, as the Node spells it: `<node>____<CIDR without dots, colons and slash>`.
///
/// Upstream sends a name above [`MAX_NAME`] to ARM, which rejects it. Here the CIDR loses its beginning, so the routes of
/// both families keep different prefix lengths.
pub fn route_name(node: &str, cidr: &str) -> String {
    let plain: String = cidr.trim().chars().filter(|c| !matches!(c, '.' | ':' | '/')).collect();
    let room = MAX_NAME.saturating_sub(node.len() + SEPARATOR.len()).max(MIN_CIDR);
    let end = plain.len().checked_sub(room).and_then(|start| plain.get(start..)).unwrap_or(&plain);
    format!("{node}{SEPARATOR}{end}")
}

/// Returns the lower-case name of the Node that the route `name` leads to, if it leads to one.
///
/// The Node's name ends before the separator. Old single-stack programs used the name of the Node alone.
pub fn node_of(name: &str) -> String {
    name.split(SEPARATOR).next().unwrap_or_default().to_lowercase()
}

/// Returns `true` if `name` contains no CIDR.
pub fn is_bare(name: &str) -> bool {
    !name.contains(SEPARATOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_upstreams() {
        for (node, cidr, name) in [
            ("pool1000000", "10.244.0.0/24", "pool1000000____102440024"),
            ("n", "fd00:64::/64", "n____fd006464"),
            ("a____b", " 10.0.0.0/8 ", "a____b____100008"),
        ] {
            assert_eq!(route_name(node, cidr), name);
        }
    }

    #[test]
    fn long_names_keep_the_node_and_the_end_of_the_cidr() {
        let node = "n".repeat(64);
        for (cidr, end) in [
            ("10.244.100.0/24", "10244100024"),
            ("192.168.244.128/25", "824412825"),
            ("fd00:10:244:1a2b::/64", "102441a2b64"),
            ("fd00:10:244:1a2c::/64", "102441a2c64"),
        ] {
            let name = route_name(&node, cidr);
            assert!(name.ends_with(end) && name.len() <= MAX_NAME && node_of(&name) == node, "{name}");
        }
        let longest = "n".repeat(MAX_NODE);
        assert_eq!(route_name(&longest, "fd00:10:244:1a2b::/64").len(), MAX_NAME);
        assert!(
            route_name(&format!("{longest}n"), "fd00:10:244:1a2b::/64").len() > MAX_NAME,
            "the Node is found by its name"
        );
    }

    #[test]
    fn the_node_stands_before_the_separator() {
        for (name, node, bare) in
            [("n-1____102440024", "n-1", false), ("N-1____other", "n-1", false), ("n-1", "n-1", true), ("", "", true)]
        {
            assert_eq!((node_of(name).as_str(), is_bare(name)), (node, bare));
        }
    }
}
