//! Taint `node.kubernetes.io/out-of-service:NoExecute` on Nodes whose machine is shut down, until it runs again or they are
//! ready.
//!
//! In: the process's store of Nodes, and the power of a machine according to ARM just before a taint is added: the shutdown
//! taint on a Node may be outdated, or another component's, and a volume that is detached under a running machine is lost
//! data. Out: patches of `spec.taints` while this replica leads. `decide` decides. Ready Nodes lose the taint in passes of
//! their own, without requests to ARM: a Node that is back does not wait for an ARM that hangs. Upstream does this at every
//! event of a Node (`pkg/provider/azure.go`, `updateNodeTaint`); here the store is processed every `PERIOD`, which repairs a
//! lost event or a failed write.

pub mod decide;
pub mod events;

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, api::Patch};
use serde_json::{Value, json};

use decide::{MachinePower, TaintDecision, decide, depends_on_power, taints_after};

use super::node::{is_foreign, name};
use crate::{
    cloud_provider::{CloudError, CloudResult, InstancesV2, ProviderContext},
    runtime::{
        backoff::ExponentialBackoff,
        events::EventRecorder,
        patch::{ApiError, ObjectWriter, PatchTarget},
        shutdown::Shutdown,
        store::{InformerStore, ObjectKey},
    },
};

/// Interval between passes over all Nodes: that at which the node-lifecycle controller adds the shutdown taint.
const PERIOD: Duration = Duration::from_secs(5);
/// Delays while writes fail.
const PAUSE: ExponentialBackoff = ExponentialBackoff::doubling(PERIOD, Duration::from_secs(300));
/// Number of Nodes written concurrently.
const CONCURRENT_WRITES: usize = 10;
/// Time limit of ARM's response about one machine; after it the next pass repeats the request.
const POWER_LIMIT: Duration = Duration::from_secs(30);
/// Number of decisions after conflicts.
const ATTEMPTS: usize = 5;

/// Dependencies of a pass.
#[derive(Clone)]
pub struct TaintContext {
    /// Store of the cluster's Nodes.
    pub nodes: InformerStore<Node>,
    /// Writes while this replica leads.
    pub writer: ObjectWriter,
    /// Source of the current power state, from a read of the moment, as the node-lifecycle controller needs it.
    pub instances: Arc<dyn InstancesV2>,
    /// Recorder of one event for each written taint.
    pub events: EventRecorder,
}

/// Starts [`run`] with what a provider gets at its start, until that ends.
pub fn start(context: &ProviderContext, instances: Arc<dyn InstancesV2>, events: EventRecorder) {
    let writer = ObjectWriter::new(context.client.clone(), context.leadership.clone());
    let taints = TaintContext { nodes: context.nodes.clone(), writer, instances, events };
    context.shutdown.spawn(run(taints, context.shutdown.clone()));
}

/// Taints that a pass writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TaintPass {
    /// Removal of the taints of ready Nodes, without a request to ARM.
    Ready,
    /// Taints are added or removed by the power of the machine, which ARM reports.
    Power,
}

/// Reconciles the taints of all Nodes until `shutdown` begins, while the writer's leadership holds.
pub async fn run(taints: TaintContext, shutdown: Shutdown) {
    tokio::join!(repeat(&taints, TaintPass::Ready, &shutdown), repeat(&taints, TaintPass::Power, &shutdown));
}

async fn repeat(taints: &TaintContext, taint_pass: TaintPass, shutdown: &Shutdown) {
    let mut pause = PERIOD;
    while shutdown.run_until_begun(tokio::time::sleep(pause)).await.is_some() {
        pause = match pass(taints, taint_pass).await {
            Ok(()) => PERIOD,
            Err(error) => {
                tracing::warn!(%error, "the out-of-service taint of a node could not be written, retrying");
                PAUSE.after(Some(pause))
            }
        };
    }
}

/// Processes all Nodes once; the error is the last one.
async fn pass(taints: &TaintContext, pass: TaintPass) -> Result<(), ApiError> {
    if !taints.writer.leadership().is_leading() {
        return Ok(());
    }
    let is_due = |node: &Arc<Node>| match pass {
        TaintPass::Ready => decide(node, MachinePower::Unknown) == TaintDecision::Remove,
        TaintPass::Power => depends_on_power(node),
    };
    let due = taints.nodes.list().into_iter().filter(|node| !is_foreign(node) && is_due(node));
    let writes = due.map(|node| {
        let taints = taints.clone();
        async move { apply(&taints, &node, pass).await }
    });
    let results: Vec<_> = futures::stream::iter(writes).buffer_unordered(CONCURRENT_WRITES).collect().await;
    results.into_iter().rfind(Result::is_err).unwrap_or(Ok(()))
}

/// Writes the decision for `node`; after a conflict for the current Node, if it is still the same one.
async fn apply(taints: &TaintContext, node: &Arc<Node>, pass: TaintPass) -> Result<(), ApiError> {
    let TaintContext { writer, instances, .. } = taints;
    let api: Api<Node> = Api::all(writer.client().clone());
    let key = ObjectKey::of(node.as_ref());
    let mut current = Arc::clone(node);
    for _ in 0..ATTEMPTS {
        let power = match pass {
            TaintPass::Ready => MachinePower::Unknown,
            TaintPass::Power => power(instances.as_ref(), &current).await,
        };
        let decision = decide(&current, power);
        if decision == TaintDecision::Nothing {
            return Ok(());
        }
        match writer.patch(&api, &key, PatchTarget::Object, &Patch::Merge(patch(&current, decision))).await {
            Ok(_) => {
                tracing::info!(node = %key, ?decision, "out-of-service taint written");
                events::taint_written(&current, decision, power).into_iter().for_each(|event| taints.events.record(event));
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

/// Returns the power of the machine of `node`, where the decision depends on it.
async fn power(instances: &dyn InstancesV2, node: &Node) -> MachinePower {
    if !depends_on_power(node) {
        return MachinePower::Unknown;
    }
    let late = |_| Err(CloudError::failed(format!("no answer within {} s", POWER_LIMIT.as_secs())));
    match tokio::time::timeout(POWER_LIMIT, reported_power(instances, node)).await.unwrap_or_else(late) {
        Ok(power) => power,
        Err(error) => {
            let node = name(node);
            tracing::debug!(node, %error, "out-of-service taint unchanged: power state of the machine unknown");
            MachinePower::Unknown
        }
    }
}

async fn reported_power(instances: &dyn InstancesV2, node: &Node) -> CloudResult<MachinePower> {
    Ok(match instances.instance_shutdown(node).await? {
        true => MachinePower::ShutDown,
        false if instances.instance_runs(node).await? => MachinePower::Running,
        false => MachinePower::Unknown,
    })
}

/// Returns the patch of the taints, which is rejected if another writer changed the Node in between.
fn patch(node: &Node, decision: TaintDecision) -> Value {
    let taints = taints_after(node, decision);
    let taints = if taints.is_empty() { Value::Null } else { json!(taints) };
    let version = node.metadata.resource_version.as_ref();
    json!({ "metadata": { "resourceVersion": version }, "spec": { "taints": taints } })
}

#[cfg(all(test, feature = "sandbox"))]
#[expect(clippy::unwrap_used, reason = "a test ends where what it needs is missing")]
mod tests {
    use std::collections::BTreeSet;

    use parking_lot::Mutex;

    use async_trait::async_trait;

    use super::*;
    use crate::{
        cloud_provider::InstanceMetadata,
        providers::azure::node::fixtures::{NodeBuilder, node},
        runtime::{clock::Clock, leader_election::Leadership},
        sandbox::api_server::ApiServer,
    };

    const SHUTDOWN: (&str, &str) = ("node.cloudprovider.kubernetes.io/shutdown", "NoSchedule");

    /// Names of Nodes whose machine is shut down; `None`: ARM does not respond.
    #[derive(Default)]
    struct Arm(Mutex<Option<BTreeSet<String>>>);

    impl Arm {
        fn of(down: &[&str]) -> Arc<Self> {
            Arc::new(Self(Mutex::new(Some(down.iter().map(|name| (*name).to_owned()).collect()))))
        }
    }

    #[async_trait]
    impl InstancesV2 for Arm {
        async fn instance_exists(&self, _: &Node) -> CloudResult<bool> {
            Ok(true)
        }
        async fn instance_shutdown(&self, node: &Node) -> CloudResult<bool> {
            if name(node).starts_with("hanging") {
                std::future::pending::<()>().await;
            }
            let down = self.0.lock().clone();
            down.map(|down| down.contains(name(node))).ok_or_else(|| CloudError::failed("HTTP 500"))
        }
        async fn instance_metadata(&self, _: &Node) -> CloudResult<Option<InstanceMetadata>> {
            Ok(None)
        }
    }

    fn taints(server: &ApiServer, leadership: Leadership, arm: &Arc<Arm>) -> TaintContext {
        let instances = Arc::<Arm>::clone(arm);
        TaintContext {
            nodes: store(server),
            writer: ObjectWriter::new(server.client(), leadership),
            instances,
            events: EventRecorder::channel("tests").0,
        }
    }

    fn server(nodes: impl IntoIterator<Item = NodeBuilder>) -> ApiServer {
        let server = ApiServer::new(Clock::manual("2026-01-01T00:00:00Z".parse().unwrap()));
        nodes.into_iter().for_each(|node| drop(server.create(&node.build())));
        server
    }

    fn down(name: &str) -> NodeBuilder {
        node(name).ready("False").taint(SHUTDOWN.0, SHUTDOWN.1, None)
    }

    fn set_ready(node: &mut Node) {
        node.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].status = "True".into();
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

    async fn both(taints: &TaintContext) {
        pass(taints, TaintPass::Ready).await.unwrap();
        pass(taints, TaintPass::Power).await.unwrap();
    }

    /// Returns Nodes as the informer would have them.
    fn store(server: &ApiServer) -> InformerStore<Node> {
        InformerStore::of(server.list::<Node>())
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_is_down_is_marked_and_one_that_is_back_is_not() {
        let server = server([down("down"), node("fine").ready("True"), node("slow").ready("Unknown")]);
        let arm = Arm::of(&["down", "slow"]);
        let pass = async || both(&taints(&server, Leadership::unopposed(), &arm)).await;
        server.clear_requests();
        pass().await;
        assert_eq!((is_out(&server, "down"), is_out(&server, "fine"), is_out(&server, "slow")), (true, false, false));
        assert_eq!(keys(&server, "down").len(), 2, "the shutdown taint is kept");
        assert_eq!(writes(&server), 1);

        pass().await;
        assert_eq!(writes(&server), 1, "nothing is written twice");

        server.update_with::<Node>("", "down", set_ready);
        pass().await;
        assert_eq!(keys(&server, "down"), [SHUTDOWN.0]);
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_arm_says_now_takes_a_machine_out_of_service() {
        let server = server([down("runs"), down("unknown")]);
        let arm = Arm::of(&[]);
        let pass = async || both(&taints(&server, Leadership::unopposed(), &arm)).await;
        pass().await;
        assert!(!is_out(&server, "runs"), "its machine runs, whatever the shutdown taint says");
        *arm.0.lock() = None;
        pass().await;
        assert!(!is_out(&server, "unknown"), "ARM does not say");
        *arm.0.lock() = Some(BTreeSet::from(["unknown".to_owned()]));
        pass().await;
        assert_eq!((is_out(&server, "runs"), is_out(&server, "unknown")), (false, true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_restarted_machine_is_in_service_before_its_node_is_ready() {
        let users = down("users").taint("node.kubernetes.io/out-of-service", "NoExecute", Some("nodeshutdown"));
        let server = server([down("ours"), users]);
        let arm = Arm::of(&["ours", "users"]);
        let (recorder, mut events) = EventRecorder::channel("tests");
        let pass = async || {
            let context = taints(&server, Leadership::unopposed(), &arm);
            both(&TaintContext { events: recorder.clone(), ..context }).await;
        };
        pass().await;
        assert!(is_out(&server, "ours"));
        *arm.0.lock() = None;
        pass().await;
        assert!(is_out(&server, "ours"), "ARM does not respond");
        *arm.0.lock() = Some(BTreeSet::new());
        pass().await;
        assert_eq!((is_out(&server, "ours"), is_out(&server, "users")), (false, true));
        let reasons: Vec<_> = std::iter::from_fn(|| events.try_recv().ok()).map(|(_, event)| event.reason).collect();
        assert_eq!(reasons, ["OutOfServiceTaintAdded", "OutOfServiceTaintRemoved"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_is_back_does_not_wait_for_arm() {
        let names: Vec<String> = (0..100).map(|index| format!("hanging-{index}")).collect();
        let back = node("z-back").ready("True").taint("node.kubernetes.io/out-of-service", "NoExecute", None);
        let server = server(names.iter().map(|name| down(name)).chain([back]));
        let (lead, leadership) = Leadership::channel();
        lead.send_replace(crate::runtime::leader_election::LeadershipState::Unopposed);
        let shutdown = Shutdown::new();
        let task = tokio::spawn(run(taints(&server, leadership, &Arm::of(&[])), shutdown.clone()));
        tokio::time::sleep(PERIOD * 2).await;
        assert!(!is_out(&server, "z-back"));
        shutdown.begin();
        task.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_changed_in_between_is_not_marked() {
        type Change = (&'static str, fn(&ApiServer));
        let make_ready = |server: &ApiServer| drop(server.update_with::<Node>("", "n", set_ready));
        let recreate = |server: &ApiServer| {
            server.delete::<Node>("", "n");
            server.create(&down("n").build());
        };
        let changes: [Change; 2] = [("ready", make_ready), ("a new one of its name", recreate)];
        for (name, change) in changes {
            let server = server([down("n")]);
            let stale = taints(&server, Leadership::unopposed(), &Arm::of(&["n"]));
            change(&server);
            both(&stale).await;
            assert!(!is_out(&server, "n"), "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn passes_continue_after_errors_only_while_leading() {
        let server = server([down("n")]);
        let (lead, leadership) = Leadership::channel();
        let shutdown = Shutdown::new();
        let arm = Arm::of(&["n"]);
        let task = tokio::spawn(run(taints(&server, leadership, &arm), shutdown.clone()));
        server.clear_requests();
        tokio::time::sleep(PERIOD * 3).await;
        assert_eq!(server.requests().len(), 0, "a standby writes nothing");

        server.faults().fail_next(2, 500, |request| request.verb.is_write());
        lead.send_replace(crate::runtime::leader_election::LeadershipState::Unopposed);
        tokio::time::sleep(PERIOD * 20).await;
        assert!(is_out(&server, "n"));
        shutdown.begin();
        task.await.unwrap();
    }
}
