//! The canonical form of recorded documents: short ids expanded, derived lists left out, sets sorted. Pure.

use serde_json::{Map, Value, json};

use super::{
    store::{Document, Store},
    view::{self, Derived},
};

/// The subscription of the short ids.
pub const SUBSCRIPTION: &str = "00000000-0000-0000-0000-000000000001";
/// The resource group of the short ids.
pub const GROUP: &str = "rg-test";

fn short_forms() -> [(&'static str, String); 3] {
    let groups = format!("/subscriptions/{SUBSCRIPTION}/resourceGroups/");
    [
        ("$NET/", format!("{groups}{GROUP}/providers/Microsoft.Network/")),
        ("$COMPUTE/", format!("{groups}{GROUP}/providers/Microsoft.Compute/")),
        ("$RGS/", groups),
    ]
}

/// Returns the text with `$NET/`, `$COMPUTE/` and `$RGS/` expanded.
pub fn expand(text: &str) -> String {
    short_forms().iter().fold(text.to_owned(), |text, (short, long)| text.replace(short, long))
}

/// Returns the opposite of [`expand`].
pub fn shorten(text: &str) -> String {
    short_forms().iter().fold(text.to_owned(), |text, (short, long)| text.replace(long, short))
}

/// Parses the text of a recorded file (a JSON list), and expands short IDs.
pub fn parse(text: &str) -> Result<Vec<Value>, serde_json::Error> {
    serde_json::from_str(&expand(text))
}

/// Lists that are sets, wherever they are.
const SETS: &[&str] = &[
    "frontendIPConfigurations",
    "backendAddressPools",
    "loadBalancingRules",
    "probes",
    "outboundRules",
    "inboundNatRules",
    "securityRules",
    "routes",
    "subnets",
    "loadBalancerBackendAddresses",
    "backendIPConfigurations",
    "ipConfigurations",
    "loadBalancerBackendAddressPools",
    "ipTags",
    "addressPrefixes",
    "sourceAddressPrefixes",
    "destinationAddressPrefixes",
    "sourcePortRanges",
    "destinationPortRanges",
    "virtualMachines",
];

/// Returns a document of the store in canonical form.
pub fn document(store: &Store, document: &Document) -> Value {
    let mut value = view::derived(store, document, Derived::Canonical);
    for list in ["inboundNatRules", "inboundNatPools", "outboundRules"] {
        drop_empty(&mut value["properties"], list);
    }
    normalize(&mut value);
    value
}

/// Sorts the lists that are sets, everywhere in a document.
pub fn normalize(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(normalize),
        Value::Object(fields) => sort_sets(fields),
        _ => {}
    }
}

fn sort_sets(fields: &mut Map<String, Value>) {
    for (name, value) in fields.iter_mut() {
        normalize(value);
        if let Some(items) = value.as_array_mut().filter(|_| SETS.contains(&name.as_str())) {
            items.sort_by_cached_key(sort_key);
        }
    }
}

fn sort_key(item: &Value) -> String {
    let name = item["name"].as_str().unwrap_or_default();
    let rest = item.as_str().or_else(|| item["id"].as_str()).map_or_else(|| item.to_string(), str::to_ascii_lowercase);
    format!("{}\u{0}{rest}", name.to_ascii_lowercase())
}

fn drop_empty(properties: &mut Value, list: &str) {
    if let Some(properties) = properties.as_object_mut().filter(|properties| properties.get(list) == Some(&json!([]))) {
        properties.remove(list);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_ids_go_both_ways() {
        let short = r#"["$NET/a","$COMPUTE/b","$RGS/other/c"]"#;
        let long = expand(short);
        assert!(long.contains("/resourceGroups/rg-test/providers/Microsoft.Compute/b") && !long.contains('$'), "{long}");
        assert_eq!(shorten(&long), short);
    }

    #[test]
    fn sets_are_sorted_and_sequences_are_not() {
        let mut value =
            json!({"probes": [{"name": "b"}, {"name": "a"}], "zones": ["2", "1"], "addressPrefixes": ["b", "a"]});
        normalize(&mut value);
        assert_eq!(
            value,
            json!({"probes": [{"name": "a"}, {"name": "b"}], "zones": ["2", "1"], "addressPrefixes": ["a", "b"]})
        );
    }
}
