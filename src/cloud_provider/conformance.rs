//! Conformance of a provider: whether it keeps what the controllers rely on. An author runs it in a test of the provider's own crate.
//!
//! In: a [`CloudFixture`], which starts processes of the provider on one test cloud and changes what is in that cloud. Out: a
//! [`ConformanceReport`] with one line per check. A check about a part that the provider or the fixture lacks is skipped, with the reason.
//!
//! The checks follow the contracts in the documentation of the traits (`cloud.go` upstream) and, beyond those, what the controllers
//! assume: calls can be repeated, interrupted and continued by another process; only a direct answer says that a machine is gone.

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

/// The cluster's name in all calls of the suite.
pub const CLUSTER: &str = "kubernetes";

/// A test cloud, and the provider on it.
#[async_trait]
pub trait CloudFixture: Send + Sync {
    /// Returns the provider of a new process, not yet initialized. All providers of a fixture share one cloud.
    async fn provider(&self) -> CloudResult<Arc<dyn CloudProvider>>;

    /// Adjusts the context of the provider's start: a client of its own, registered metrics. The suite's client responds 404
    /// to everything.
    fn context(&self, context: ProviderContext) -> ProviderContext {
        context
    }

    /// Starts one more machine; answers its Node as the kubelet registers it, without a provider id. `name`: a wish.
    async fn add_machine(&self, name: &str) -> CloudResult<Node>;

    /// Deletes the machine of a Node.
    async fn remove_machine(&self, node: &Node) -> CloudResult<()>;

    /// Switches off the machine of a Node.
    async fn stop_machine(&self, _node: &Node) -> CloudResult<()> {
        Err(CloudError::NotImplemented)
    }

    /// Makes the cloud fail every request until it is called with `false`.
    async fn set_outage(&self, _on: bool) -> CloudResult<()> {
        Err(CloudError::NotImplemented)
    }

    /// Returns a Service that the cloud can serve. `number` differs for each Service of a check.
    fn service(&self, name: &str, number: u16) -> Service {
        plain_service(name, number)
    }

    /// Returns everything in the cloud as a text that changes only when the cloud does.
    async fn contents(&self) -> String;
}

/// A check: its name, and what it does.
type Check = (&'static str, for<'a> fn(&'a dyn CloudFixture) -> BoxFuture<'a, CheckOutcome>);

/// Lists checks under the names of their functions.
macro_rules! checks {
    ($($part:ident::$name:ident),+ $(,)?) => {
        &[$((stringify!($name), |fixture| Box::pin(async move { report::outcome($part::$name(fixture).await) }))),+]
    };
}

const CHECKS: &[Check] = checks![
    process::the_name_fits_provider_ids,
    process::a_start_writes_nothing,
    instances::a_machine_is_described_the_same_by_name_and_by_provider_id,
    instances::a_batch_answers_as_single_calls_do,
    instances::a_removed_machine_is_gone,
    instances::a_stopped_machine_is_shut_down_and_exists,
    instances::an_outage_proves_nothing,
    instances::a_node_of_another_cloud_is_not_gone,
    load_balancers::a_load_balancer_comes_and_goes_without_a_trace,
    load_balancers::another_ensure_changes_nothing,
    load_balancers::another_process_continues,
    load_balancers::services_are_independent,
    load_balancers::hosts_follow,
    load_balancers::a_plan_writes_nothing,
    interruption::an_interrupted_ensure_is_completed,
    interruption::an_interrupted_delete_is_completed,
    routes::a_route_comes_and_goes_without_a_trace,
    routes::a_batch_of_routes_is_answered_in_order,
    routes::a_plan_of_routes_writes_nothing,
];

/// Runs all checks, one after the other.
pub async fn check(fixture: &dyn CloudFixture) -> ConformanceReport {
    let mut report = ConformanceReport::default();
    for (name, check) in CHECKS {
        report.checks.push((*name, check(fixture).await));
    }
    report
}
