//! Routes: how packets for a pod CIDR find its node.

use async_trait::async_trait;
use futures::StreamExt;

use super::{CloudError, CloudResult, NodeAddress, WritePlan};

/// Number of single calls that the default batch keeps in flight. Upstream: `route_controller.go`,
/// `maxConcurrentRouteOperations`.
const MAX_CONCURRENT_ROUTE_OPERATIONS: usize = 200;

/// Route in the cloud. Upstream: `cloud.go`, `Route`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Route {
    /// Name in the cloud; may be empty in a route to create.
    pub name: String,
    /// Name of the node that packets go to; empty when the provider does not know it.
    pub target_node: String,
    /// Whether the provider fills and compares `target_node_addresses`.
    pub enable_node_addresses: bool,
    /// Addresses of the target node.
    pub target_node_addresses: Vec<NodeAddress>,
    /// The pod CIDR, in the provider's spelling.
    pub destination_cidr: String,
    /// The route leads nowhere (its target is gone).
    pub blackhole: bool,
}

/// Changes to make together. Deletions come before the creations that need their place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouteChanges {
    /// Routes to remove, as listed.
    pub delete: Vec<Route>,
    /// Routes to add: name hint (the node's UID) and route.
    pub create: Vec<(String, Route)>,
}

/// Result of each change, in the order of [`RouteChanges`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouteOutcomes {
    /// Results of the deletions.
    pub deleted: Vec<CloudResult<()>>,
    /// Results of the creations.
    pub created: Vec<CloudResult<()>>,
}

impl RouteOutcomes {
    /// Returns outcomes in which `error` prevented all `changes`.
    pub fn failed(changes: &RouteChanges, error: &CloudError) -> Self {
        let failures = |count| vec![Err(error.clone()); count];
        Self { deleted: failures(changes.delete.len()), created: failures(changes.create.len()) }
    }
}

/// Routes of a cloud. Upstream: `cloud.go`, `Routes`.
#[async_trait]
pub trait Routes: Send + Sync {
    /// Lists the managed routes of the cluster.
    async fn list_routes(&self, cluster: &str) -> CloudResult<Vec<Route>>;
    /// Creates a route; `name_hint` may become part of its name.
    async fn create_route(&self, cluster: &str, name_hint: &str, route: &Route) -> CloudResult<()>;
    /// Deletes a route, as it was listed.
    async fn delete_route(&self, cluster: &str, route: &Route) -> CloudResult<()>;

    /// Makes all changes, deletions first.
    ///
    /// The default makes single calls, many at once; override it when the cloud accepts several changes in one request. One
    /// failing change must not prevent others.
    async fn apply_routes(&self, cluster: &str, changes: &RouteChanges) -> RouteOutcomes {
        // Collected first: a stream over a borrowing closure is not `Send` for every lifetime.
        let deletions: Vec<_> = changes.delete.iter().map(|route| self.delete_route(cluster, route)).collect();
        let deleted = futures::stream::iter(deletions).buffered(MAX_CONCURRENT_ROUTE_OPERATIONS).collect().await;
        let creations: Vec<_> = changes.create.iter().map(|(hint, route)| self.create_route(cluster, hint, route)).collect();
        let created = futures::stream::iter(creations).buffered(MAX_CONCURRENT_ROUTE_OPERATIONS).collect().await;
        RouteOutcomes { deleted, created }
    }

    /// Returns the routes that [`Routes::list_routes`] would return, for a plan: writes nothing and changes no state.
    ///
    /// Called on every replica, leading or not. The default is right for a `list_routes` that only reads. A provider must
    /// implement it if its `list_routes` writes, creates what is missing, fills a cache that writes rely on, or is the
    /// baseline of a later change. A cached response is allowed if a reconcile would accept it.
    async fn routes_for_plan(&self, cluster: &str) -> CloudResult<Vec<Route>> {
        self.list_routes(cluster).await
    }

    /// Plans what [`Routes::apply_routes`] would write. Writes nothing and changes nothing that is remembered.
    async fn plan_changes(&self, _cluster: &str, _changes: &RouteChanges) -> CloudResult<WritePlan> {
        Err(CloudError::NotImplemented)
    }
}
