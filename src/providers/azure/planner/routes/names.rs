//! Names of routes: pure.
//!
//! Upstream: `pkg/provider/azure_routes.go`, `mapNodeNameToRouteName` and `mapRouteNameToNodeName`, in the dual-stack form, which
//! its program always uses.

/// Between the name of the Node and the CIDR.
const SEPARATOR: &str = "____";

/// What a route to `cidr` (as the Node spells it) of `node` is called: `<node>____<CIDR without dots, colons and slash>`.
pub fn route_name(node: &str, cidr: &str) -> String {
    let plain: String = cidr.trim().chars().filter(|c| !matches!(c, '.' | ':' | '/')).collect();
    format!("{node}{SEPARATOR}{plain}")
}

/// The Node that the route `name` leads to, if it leads to one: what stands before the separator, or the whole name, which is the
/// form of old single-stack programs. Lower-cased, as names of Nodes are.
pub fn node_of(name: &str) -> String {
    name.split(SEPARATOR).next().unwrap_or_default().to_lowercase()
}

/// Whether `name` has no CIDR in it.
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
    fn the_node_stands_before_the_separator() {
        for (name, node, bare) in
            [("n-1____102440024", "n-1", false), ("N-1____other", "n-1", false), ("n-1", "n-1", true), ("", "", true)]
        {
            assert_eq!((node_of(name).as_str(), is_bare(name)), (node, bare));
        }
    }
}
