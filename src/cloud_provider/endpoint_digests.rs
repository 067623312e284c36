//! Digests of the names of the Nodes in an EndpointSlice. Names have up to 253 bytes, a digest has 16. Pure.

use std::hash::{DefaultHasher, Hash, Hasher};

use k8s_openapi::api::discovery::v1::EndpointSlice;

/// Annotation that contains the digests instead of `endpoints`.
const DIGESTS: &str = "cloud-controller-manager/endpoint-nodes";
/// Hexadecimal digits of a digest.
const DIGITS: usize = 16;

/// Returns the digest of the name of a Node.
pub fn digest(node: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    node.hash(&mut hasher);
    hasher.finish()
}

/// Replaces the endpoints of `slice` with the digests of their Nodes, in an annotation.
pub fn keep_digests(slice: &mut EndpointSlice) {
    let text = of_endpoints(slice).iter().map(|digest| format!("{digest:016x}")).collect::<String>();
    slice.endpoints = None;
    slice.metadata.annotations.get_or_insert_default().insert(DIGESTS.to_owned(), text);
}

/// Returns the digests of the Nodes of `slice`, sorted and without duplicates.
///
/// It reads the annotation if the endpoints are already replaced.
pub fn digests(slice: &EndpointSlice) -> Vec<u64> {
    let Some(text) = slice.metadata.annotations.as_ref().and_then(|all| all.get(DIGESTS)) else {
        return of_endpoints(slice);
    };
    let words = text.as_bytes().chunks(DIGITS).filter_map(|word| std::str::from_utf8(word).ok());
    words.filter_map(|word| u64::from_str_radix(word, 16).ok()).collect()
}

fn of_endpoints(slice: &EndpointSlice) -> Vec<u64> {
    let names = slice.endpoints.iter().flatten().filter_map(|endpoint| endpoint.node_name.as_deref());
    let mut digests: Vec<u64> = names.map(digest).collect();
    digests.sort_unstable();
    digests.dedup();
    digests
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn digests_of_a_thousand_long_names_take_few_kilobytes() {
        let endpoint = |node: usize| json!({"addresses": ["10.0.0.1"], "nodeName": format!("{node:0>225}")});
        let endpoints: Vec<_> = (0..1_000).map(endpoint).collect();
        let mut slice: EndpointSlice =
            serde_json::from_value(json!({"addressType": "IPv4", "endpoints": endpoints, "metadata": {"name": "s"}}))
                .unwrap();
        let before = digests(&slice);
        keep_digests(&mut slice);
        assert_eq!((before.len(), &before), (1_000, &digests(&slice)));
        let retained = serde_json::to_string(&slice).unwrap().len();
        assert!(retained < 20 * 1024, "{retained} bytes");
    }
}
