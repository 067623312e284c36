//! Conformance suite for providers: checks the guarantees that the controllers rely on. Authors run it in a test of their
//! crate.
//!
//! In: a [`CloudFixture`], which starts processes of the provider on one test cloud and changes the resources of that cloud.
//! Out: a [`ConformanceReport`] with one line per check. A check of a part that the provider or the fixture lacks is
//! skipped, with the reason.
//!
//! The checks follow the contracts in the documentation of the traits (`cloud.go` upstream) and the assumptions of the
//! controllers: calls can be repeated, interrupted and continued by another process; only a response to a direct request
//! proves that a machine is deleted.
//!
//! # Example
//!
//! ```
//! use cloud_controller_manager::cloud_provider::conformance::{CloudFixture, check};
//!
//! async fn assert_conformance(fixture: &dyn CloudFixture) {
//!     let report = check(fixture).await;
//!     assert!(report.conforms(), "\n{report}");
//! }
//! ```

mod instances;
mod interruption;
mod load_balancers;
mod objects;
mod process;
mod report;
mod routes;

use std::sync::Arc;

use async_trait::async_trait;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Node, Service};

pub use objects::plain_service;
#[cfg(test)]
pub(crate) use process::context;
pub use report::{CheckOutcome, ConformanceReport};

use super::{CloudError, CloudProvider, CloudResult, ProviderContext};

/// Name of the cluster in all calls of the suite.
pub const CLUSTER: &str = "kubernetes";

/// Test cloud with a provider.
#[async_trait]
pub trait CloudFixture: Send + Sync {
    /// Returns the provider of a new process, not yet initialized. All providers of a fixture share one cloud.
    async fn provider(&self) -> CloudResult<Arc<dyn CloudProvider>>;

    /// Returns the context of [`CloudProvider::initialize`], e.g. with another client or registered metrics. By default, it is unchanged.
    ///
    /// The client of the suite responds 404 to every request.
    fn context(&self, context: ProviderContext) -> ProviderContext {
        context
    }

    /// Creates a machine, and returns its Node as the kubelet registers it, without a provider ID.
    ///
    /// The fixture may give the machine another name than `name`.
    async fn add_machine(&self, name: &str) -> CloudResult<Node>;

    /// Deletes the machine of a Node.
    async fn remove_machine(&self, node: &Node) -> CloudResult<()>;

    /// Shuts down the machine of a Node. By default [`CloudError::NotImplemented`], so the checks that need it are skipped.
    async fn stop_machine(&self, _node: &Node) -> CloudResult<()> {
        Err(CloudError::NotImplemented)
    }

    /// Makes the cloud fail every request until this method is called with `false`.
    ///
    /// By default [`CloudError::NotImplemented`], so the checks that need it are skipped.
    async fn set_outage(&self, _is_on: bool) -> CloudResult<()> {
        Err(CloudError::NotImplemented)
    }

    /// Returns a Service that the cloud can serve. `number` differs for each Service of a check.
    fn service(&self, name: &str, number: u16) -> Service {
        plain_service(name, number)
    }

    /// Returns all resources of the cloud as a text. Equal texts mean that nothing has changed.
    async fn contents(&self) -> String;
}

/// Check with its name.
type Check = (&'static str, for<'a> fn(&'a dyn CloudFixture) -> BoxFuture<'a, CheckOutcome>);

/// Returns a table of checks, whose names are the names of their functions.
macro_rules! checks {
    ($($part:ident::$name:ident),+ $(,)?) => {
        &[$((stringify!($name), |fixture| Box::pin(async move { report::outcome($part::$name(fixture).await) }))),+]
    };
}

const CHECKS: &[Check] = checks![
    process::the_name_fits_provider_ids,
    process::a_start_writes_nothing,
    instances::a_machine_is_described_the_same_by_name_and_by_provider_id,
    instances::a_batch_returns_the_results_of_single_calls,
    instances::a_removed_machine_is_gone,
    instances::a_stopped_machine_is_shut_down_and_exists,
    instances::an_outage_proves_nothing,
    instances::a_node_of_another_cloud_is_not_gone,
    load_balancers::a_deleted_load_balancer_leaves_no_trace,
    load_balancers::another_ensure_changes_nothing,
    load_balancers::another_process_continues,
    load_balancers::services_are_independent,
    load_balancers::hosts_follow,
    load_balancers::a_plan_writes_nothing,
    interruption::an_interrupted_ensure_is_completed,
    interruption::an_interrupted_delete_is_completed,
    routes::a_deleted_route_leaves_no_trace,
    routes::a_batch_of_routes_returns_results_in_order,
    routes::a_plan_of_routes_writes_nothing,
];

/// Runs all checks in order, and returns their outcomes. With paused time, it takes seconds.
pub async fn check(fixture: &dyn CloudFixture) -> ConformanceReport {
    let mut report = ConformanceReport::default();
    for (name, check) in CHECKS {
        report.checks.push((*name, check(fixture).await));
    }
    report
}
