//! Routes, which send packets for a pod CIDR to its Node.

use async_trait::async_trait;
use futures::StreamExt;

use super::{CloudError, CloudResult, NodeAddress, WritePlan};

/// Number of single calls that the default batch keeps in flight. Upstream: `route_controller.go`,
/// `maxConcurrentRouteOperations`.
const MAX_CONCURRENT_ROUTE_OPERATIONS: usize = 200;

/// Route in the cloud. Upstream: `cloud.go`, `Route`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Route {
    /// Name in the cloud. It may be empty in a route to create.
    pub name: String,
    /// Name of the Node that receives the packets; empty if the provider cannot determine it.
    pub target_node: String,
    /// Whether the provider fills and compares `target_node_addresses`.
    pub enable_node_addresses: bool,
    /// Addresses of the target Node.
    pub target_node_addresses: Vec<NodeAddress>,
    /// Pod CIDR, in the notation of the cloud.
    pub destination_cidr: String,
    /// Whether the target of the route does not exist. The route controller deletes such a route.
    pub blackhole: bool,
}

/// Changes of one batch. Deletions precede creations, which may need the deleted destinations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouteChanges {
    /// Routes to remove, as listed.
    pub delete: Vec<Route>,
    /// Routes to add, each with a name hint, which is the UID of the Node.
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
///
/// Calls can be repeated, and can be interrupted by their deadline (2 minutes for reads, 20 minutes for writes), by lost
/// leadership, or by the end of the process.
///
/// # Errors
///
/// The variant of [`CloudError`] determines when the route controller retries.
#[async_trait]
pub trait Routes: Send + Sync {
    /// Returns the routes of the cluster that this manager manages. Upstream: `ListRoutes`.
    ///
    /// Routes that are not returned are neither updated nor deleted.
    async fn list_routes(&self, cluster: &str) -> CloudResult<Vec<Route>>;
    /// Creates a route. The provider may use `name_hint` as a part of its name. Upstream: `CreateRoute`.
    ///
    /// Success if an equal route already exists.
    async fn create_route(&self, cluster: &str, name_hint: &str, route: &Route) -> CloudResult<()>;
    /// Deletes a route that [`Routes::list_routes`] returned. Upstream: `DeleteRoute`.
    ///
    /// Success if the route does not exist.
    async fn delete_route(&self, cluster: &str, route: &Route) -> CloudResult<()>;

    /// Applies all changes, deletions first, and returns the result of each.
    ///
    /// A failed change must not prevent other changes. By default, it makes up to 200 single calls at once. Override it if
    /// the cloud accepts several changes in one request.
    async fn apply_routes(&self, cluster: &str, changes: &RouteChanges) -> RouteOutcomes {
        // Collected first: a stream over a borrowing closure is not `Send` for every lifetime.
        let deletions: Vec<_> = changes.delete.iter().map(|route| self.delete_route(cluster, route)).collect();
        let deleted = futures::stream::iter(deletions).buffered(MAX_CONCURRENT_ROUTE_OPERATIONS).collect().await;
        let creations: Vec<_> = changes.create.iter().map(|(hint, route)| self.create_route(cluster, hint, route)).collect();
        let created = futures::stream::iter(creations).buffered(MAX_CONCURRENT_ROUTE_OPERATIONS).collect().await;
        RouteOutcomes { deleted, created }
    }

    /// Returns the routes that [`Routes::list_routes`] would return, for a plan.
    ///
    /// Called on every replica, leading or not. So it must neither write to the cloud nor change the state of the provider.
    /// By default, it calls `list_routes`. Override it if `list_routes` writes, creates missing resources, fills a cache
    /// that writes rely on, or is the baseline of a later change. A cached response is allowed if a reconcile would accept
    /// it.
    async fn routes_for_plan(&self, cluster: &str) -> CloudResult<Vec<Route>> {
        self.list_routes(cluster).await
    }

    /// Plans the writes of [`Routes::apply_routes`].
    ///
    /// It must neither write to the cloud nor change the state of the provider.
    ///
    /// # Errors
    ///
    /// [`CloudError::NotImplemented`] by default. This means that the plans of `/planz` and `--dry-run` are incomplete.
    async fn plan_changes(&self, _cluster: &str, _changes: &RouteChanges) -> CloudResult<WritePlan> {
        Err(CloudError::NotImplemented)
    }
}
