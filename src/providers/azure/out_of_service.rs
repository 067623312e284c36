//! The taint `node.kubernetes.io/out-of-service:NoExecute` on Nodes whose machine is shut down, off again once they are ready.
//!
//! In: the store of Nodes that the process keeps anyway. Out: patches of `spec.taints` while this replica leads. `decide` decides.
//! Upstream does this at every event of a Node (`pkg/provider/azure.go`, `updateNodeTaint`); here the store is gone through every
//! `PERIOD`, so that an event which is lost, or a write which fails, is made up for.

pub mod decide;

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use serde_json::{Value, json};

use decide::{Decision, decide, taints_after};

use crate::{
    cloud_provider::ProviderContext,
    runtime::{
        patch::{ApiError, Part, PatchKind, Writer},
        shutdown::Shutdown,
        store::{ObjectKey, Store},
    },
};

/// How often all Nodes are gone through: as often as the node-lifecycle controller puts the shutdown taint on.
const PERIOD: Duration = Duration::from_secs(5);
/// The longest pause while writes fail.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// How many Nodes are written at once.
const CONCURRENT_WRITES: usize = 10;
/// How often a decision is made anew after conflicts.
const ATTEMPTS: usize = 5;

/// Starts [`run`] with what a provider gets at its start, until that ends.
pub fn start(context: &ProviderContext) {
    let writer = Writer::new(context.client.clone(), context.leadership.clone());
    context.shutdown.spawn(run(context.nodes.clone(), writer, context.shutdown.clone()));
}

/// Keeps the taints of all `nodes` right until `shutdown` begins, while the writer's leadership holds.
pub async fn run(nodes: Store<Node>, writer: Writer, shutdown: Shutdown) {
    let mut pause = PERIOD;
    loop {
        tokio::select! {
            () = shutdown.begun() => return,
            () = tokio::time::sleep(pause) => {}
        }
        pause = match pass(&nodes, &writer).await {
            Ok(()) => PERIOD,
            Err(error) => {
                tracing::warn!(%error, "the out-of-service taint of a node could not be written, trying again");
                (pause * 2).min(LONGEST_PAUSE)
            }
        };
    }
}

/// Goes through all Nodes once; the error is the last one.
async fn pass(nodes: &Store<Node>, writer: &Writer) -> Result<(), ApiError> {
    let due = nodes.list().into_iter().filter(|node| decide(node) != Decision::Nothing);
    let writes = due.map(|node| {
        let writer = writer.clone();
        async move { apply(&writer, &node).await }
    });
    let results: Vec<_> = futures::stream::iter(writes).buffer_unordered(CONCURRENT_WRITES).collect().await;
    results.into_iter().rfind(Result::is_err).unwrap_or(Ok(()))
}

/// Writes what is decided for `node`; after a conflict for the Node as it is then, if it is still the same one.
pub async fn apply(writer: &Writer, node: &Arc<Node>) -> Result<(), ApiError> {
    let api: Api<Node> = Api::all(writer.client().clone());
    let key = ObjectKey::of(node.as_ref());
    let mut current = Arc::clone(node);
    for _ in 0..ATTEMPTS {
        let decision = decide(&current);
        if decision == Decision::Nothing {
            return Ok(());
        }
        match writer.patch(&api, &key, Part::Main, PatchKind::Merge, patch(&current, decision)).await {
            Ok(_) => {
                tracing::info!(node = %key, ?decision, "out-of-service taint written");
                return Ok(());
            }
            Err(ApiError::Conflict(_)) => {}
            Err(ApiError::NotFound(_) | ApiError::NotLeading(_)) => return Ok(()),
            Err(error) => return Err(error),
        }
        current = match writer.get(&api, &key).await {
            Ok(live) if live.metadata.uid == node.metadata.uid => Arc::new(live),
            Ok(_) | Err(ApiError::NotFound(_)) => return Ok(()),
            Err(error) => return Err(error),
        };
    }
    Err(ApiError::Conflict(key.to_string()))
}

/// Replaces the list of taints, and is refused when somebody else wrote in between.
fn patch(node: &Node, decision: Decision) -> Value {
    let taints = taints_after(node, decision);
    let taints = if taints.is_empty() { Value::Null } else { json!(taints) };
    let version = node.metadata.resource_version.as_ref();
    json!({ "metadata": { "resourceVersion": version }, "spec": { "taints": taints } })
}

#[cfg(all(test, feature = "sandbox"))]
#[expect(clippy::unwrap_used, reason = "a test ends where what it needs is missing")]
mod tests {
    use super::*;
    use crate::{
        providers::azure::node::fixtures::{NodeBuilder, node},
        runtime::{clock::Clock, leader_election::Leadership},
        sandbox::api_server::ApiServer,
    };

    const SHUTDOWN: (&str, &str) = ("node.cloudprovider.kubernetes.io/shutdown", "NoSchedule");

    fn server(nodes: impl IntoIterator<Item = NodeBuilder>) -> ApiServer {
        let server = ApiServer::new(Clock::manual("2026-01-01T00:00:00Z".parse().unwrap()));
        nodes.into_iter().for_each(|node| drop(server.create(&node.build())));
        server
    }

    fn down(name: &str) -> NodeBuilder {
        node(name).ready("False").taint(SHUTDOWN.0, SHUTDOWN.1, None)
    }

    fn keys(server: &ApiServer, name: &str) -> Vec<String> {
        let node: Node = server.get("", name).unwrap();
        node.spec.unwrap().taints.unwrap_or_default().into_iter().map(|taint| taint.key).collect()
    }

    fn is_out(server: &ApiServer, name: &str) -> bool {
        keys(server, name).iter().any(|key| key == "node.kubernetes.io/out-of-service")
    }

    fn writes(server: &ApiServer) -> usize {
        server.requests().iter().filter(|request| request.verb.is_write()).count()
    }

    /// Nodes as the informer would have them.
    fn store(server: &ApiServer) -> Store<Node> {
        Store::of(server.list::<Node>())
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_is_down_is_marked_and_one_that_is_back_is_not() {
        let server = server([down("down"), node("fine").ready("True"), node("slow").ready("Unknown")]);
        let writer = Writer::new(server.client(), Leadership::unopposed());
        server.clear_requests();
        pass(&store(&server), &writer).await.unwrap();
        assert_eq!((is_out(&server, "down"), is_out(&server, "fine"), is_out(&server, "slow")), (true, false, false));
        assert_eq!(keys(&server, "down").len(), 2, "the shutdown taint stays");
        assert_eq!(writes(&server), 1);

        pass(&store(&server), &writer).await.unwrap();
        assert_eq!(writes(&server), 1, "nothing is written twice");

        server.update_with("", "down", |node: &mut Node| {
            node.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].status = "True".into();
        });
        pass(&store(&server), &writer).await.unwrap();
        assert_eq!(keys(&server, "down"), [SHUTDOWN.0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_became_ready_in_between_is_not_marked() {
        let server = server([down("n")]);
        let writer = Writer::new(server.client(), Leadership::unopposed());
        let stale = store(&server);
        server.update_with("", "n", |node: &mut Node| {
            node.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].status = "True".into();
        });
        pass(&stale, &writer).await.unwrap();
        assert!(!is_out(&server, "n"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_node_of_the_name_is_left_alone() {
        let server = server([down("n")]);
        let writer = Writer::new(server.client(), Leadership::unopposed());
        let stale = store(&server);
        server.delete::<Node>("", "n");
        server.create(&down("n").build());
        pass(&stale, &writer).await.unwrap();
        assert!(!is_out(&server, "n"), "its own turn comes with its own event");
    }

    #[tokio::test(start_paused = true)]
    async fn it_goes_on_after_errors_and_only_while_it_leads() {
        let server = server([down("n")]);
        let (lead, leadership) = Leadership::channel();
        let writer = Writer::new(server.client(), leadership);
        let shutdown = Shutdown::new();
        let task = tokio::spawn(run(store(&server), writer, shutdown.clone()));
        server.clear_requests();
        tokio::time::sleep(PERIOD * 3).await;
        assert_eq!(server.requests().len(), 0, "a standby writes nothing");

        server.faults().fail_next(2, 500, |request| request.verb.is_write());
        lead.send_replace(crate::runtime::leader_election::State::Unopposed);
        tokio::time::sleep(PERIOD * 20).await;
        assert!(is_out(&server, "n"));
        shutdown.begin();
        task.await.unwrap();
    }
}
