//! Consistent list of all Nodes from the API server, the basis of allocations.
//!
//! In: a client. Out: identity, version and pod CIDRs of each Node. The list is read in pages and includes Nodes that the
//! informer's selector hides.

use k8s_openapi::api::core::v1::Node;
use kube::{Resource, api::ListParams, core::Request};
use serde::Deserialize;

use crate::runtime::patch::ApiError;

/// Number of Nodes per page. Whole Nodes are transferred, and one page is in memory at a time.
const PAGE: u32 = 250;

/// Fields of a Node that allocation needs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(super) struct ListedNode {
    pub(super) metadata: ListedMetadata,
    #[serde(default)]
    pub(super) spec: ListedSpec,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ListedMetadata {
    pub(super) name: String,
    uid: String,
    pub(super) resource_version: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ListedSpec {
    #[serde(rename = "podCIDRs")]
    pub(super) pod_cidrs: Vec<String>,
}

#[derive(Deserialize)]
struct ListedPage {
    metadata: PageMetadata,
    items: Vec<ListedNode>,
}

#[derive(Deserialize)]
struct PageMetadata {
    #[serde(rename = "continue", default)]
    rest: String,
}

impl ListedNode {
    /// Returns [`super::plan::identity`] of the Node.
    pub(super) fn identity(&self) -> &str {
        if self.metadata.uid.is_empty() { &self.metadata.name } else { &self.metadata.uid }
    }
}

/// Lists all Nodes in pages.
pub(super) async fn list(client: &kube::Client) -> Result<Vec<ListedNode>, ApiError> {
    let (mut nodes, mut rest) = (Vec::new(), None);
    loop {
        let mut params = ListParams::default().limit(PAGE);
        params.continue_token = rest;
        let page = read_page(client, &params).await.map_err(|error| ApiError::from_kube("all Nodes", &error))?;
        nodes.extend(page.items);
        if page.metadata.rest.is_empty() {
            return Ok(nodes);
        }
        rest = Some(page.metadata.rest);
    }
}

async fn read_page(client: &kube::Client, params: &ListParams) -> kube::Result<ListedPage> {
    let request = Request::new(Node::url_path(&(), None)).list(params).map_err(kube::Error::BuildRequest)?;
    Box::pin(client.request(request)).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_without_spec_has_no_pod_cidrs() {
        let read = |node| serde_json::from_value::<ListedNode>(node).unwrap();
        assert_eq!(read(json!({"metadata": {"name": "n"}})).spec, ListedSpec::default());
        let whole = read(json!({
            "metadata": {"name": "n", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}},
            "spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"], "providerID": "x"},
            "status": {},
        }));
        let ListedMetadata { name, resource_version, .. } = &whole.metadata;
        assert_eq!((whole.identity(), name.as_str(), resource_version.as_str()), ("u", "n", "7"));
        assert_eq!(whole.spec.pod_cidrs, ["10.0.0.0/24"]);
    }
}
