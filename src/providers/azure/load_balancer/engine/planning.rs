//! The only caller of the planner: reads what a plan needs until there is one, and shows it to a witness before any of it is written.
//!
//! ```text
//! requests, memory ─► plan ─► Needs ─► read ─┐
//!                      ▲  └─► Plan           │
//!                      └─────────────────────┘
//! ```
//! In: requests and what is planned for them. Out: a [`Plan`] and what it was made on. What is remembered comes into the plan by value, and
//! stays as it is.

use std::{
    any::Any,
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use k8s_openapi::api::core::v1::Node;

use super::{
    machine_rules,
    stage_context::{StageContext, StageInput},
};
#[cfg(feature = "sandbox")]
use crate::providers::azure::planner::load_balancer::plan::writes;
use crate::{
    cloud_provider::{CloudError, CloudResult},
    providers::azure::{
        arm::Urgency,
        load_balancer::explain::cloud_error,
        model::ResourceId,
        planner::load_balancer::{
            desired::{ServiceRequest, security_rules::managed_destinations},
            observed::ObservedNetwork,
            plan::{
                BlockedBy, MachineRules, NetworkReads, Plan, PlanInput, PlanNeeds, PlanScope, Planned, plan,
                pools::{PoolInput, PoolMemory, PoolReads},
            },
            pools::{local_pools::LocalPools, member_addresses::listed_in_pools},
            rule_memory::{ParsedService, RuleMemory},
            spec::ServiceIdentity,
        },
    },
};

/// How often is read for one plan: each round asks for more, and needs are few.
const MAX_ROUNDS: usize = 16;

/// Why something is planned.
#[derive(Clone, Copy)]
pub(super) enum PlanPurpose<'a> {
    /// To be written.
    Write,
    /// For people; with the Nodes that shall be behind load balancers.
    Print(&'a [Arc<Node>]),
}

/// What is planned, and for whom.
#[derive(Clone, Copy)]
pub(super) struct StagePlanRequest<'a> {
    pub(super) scope: PlanScope<'a>,
    pub(super) requests: &'a [ServiceRequest],
    pub(super) purpose: PlanPurpose<'a>,
    /// How urgent reads are.
    pub(super) urgency: Urgency,
    /// Those of whom nothing is planned.
    pub(super) held: &'a BTreeSet<ServiceIdentity>,
    /// Public IPs that Azure has left half made.
    pub(super) half_made: &'a BTreeSet<ResourceId>,
}

static NO_SERVICES: BTreeSet<ServiceIdentity> = BTreeSet::new();
static NO_PUBLIC_IPS: BTreeSet<ResourceId> = BTreeSet::new();

impl<'a> StagePlanRequest<'a> {
    /// A plan that is written.
    pub(super) fn write(scope: PlanScope<'a>, requests: &'a [ServiceRequest], urgency: Urgency) -> Self {
        let purpose = PlanPurpose::Write;
        Self { scope, requests, purpose, urgency, held: &NO_SERVICES, half_made: &NO_PUBLIC_IPS }
    }

    /// A plan of everything that nobody carries out.
    pub(super) fn print(requests: &'a [ServiceRequest], hosts: &'a [Arc<Node>]) -> Self {
        let purpose = PlanPurpose::Print(hosts);
        Self { purpose, ..Self::write(PlanScope::Everything, requests, Urgency::Resync) }
    }

    fn is_written(&self) -> bool {
        matches!(self.purpose, PlanPurpose::Write)
    }
}

/// A plan, and what it was made on.
pub(super) struct StagePlan {
    pub(super) plan: Plan,
    pub(super) input: StageInput,
}

/// What is remembered, as a plan of one scope needs it.
#[derive(Default)]
struct PlanMemory {
    rules: RuleMemory,
    machine_rules: MachineRules,
    pools: PoolMemory,
    local: LocalPools,
    unfilled: Vec<ResourceId>,
    deleting: Vec<ResourceId>,
    hosts: Option<Vec<Arc<Node>>>,
    all_nodes: Vec<Arc<Node>>,
    has_corrected_nodes: bool,
}

/// Returns the error of a Service for which nothing can be planned.
pub(super) fn blocked_error(blocked: &BlockedBy) -> CloudError {
    match blocked {
        BlockedBy::Zones(error) => cloud_error("read the zones of the region", error.as_ref().clone()),
        BlockedBy::Reference(unread) => {
            let error = cloud_error("read what the Service names", unread.error.clone());
            match unread.missing_for {
                Some(after) => CloudError::MissingReference { after, message: error.to_string() },
                None => error,
            }
        }
    }
}

/// Returns the result of `plan`. A panic becomes an error, so that all callers of the batch learn its message and not only that the batch
/// was abandoned.
fn caught<T>(plan: impl FnOnce() -> T) -> CloudResult<T> {
    // The planner is pure: a panic leaves nothing behind.
    catch_unwind(AssertUnwindSafe(plan)).map_err(|panic| {
        let message = panic_message(panic.as_ref());
        tracing::error!(panic = message, "the plan of a batch panicked");
        CloudError::failed(format!("the plan of this batch panicked: {message}; please report it"))
    })
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

impl StageContext {
    /// Plans, after reading what the plan needs.
    ///
    /// # Errors
    /// Something that all requests need could not be read, or the planner panicked.
    pub(super) async fn plan(&self, request: &StagePlanRequest<'_>) -> CloudResult<StagePlan> {
        let mut input = self.first_input(request).await;
        // Members that leave are planned on what is known; for all else the network is read first.
        let mut memory = match request.scope {
            PlanScope::Eviction(_) => PlanMemory { pools: self.backend_pools.memory(), ..PlanMemory::default() },
            _ => PlanMemory::default(),
        };
        let mut pool_reads = PoolReads { may_lack_nodes: self.service_index.may_lack_nodes(), ..PoolReads::default() };
        for _ in 0..MAX_ROUNDS {
            let planned = self.plan_once(request, &input, &memory, &pool_reads);
            // As if the reconcile of a Service had panicked.
            match planned.inspect_err(|_| self.metrics.reconcile_panics_total.with_label_values(&["service"]).inc())? {
                Planned::Plan(plan) => {
                    let plan = *plan;
                    self.show(request, &plan, &input.observed);
                    return Ok(StagePlan { plan, input });
                }
                Planned::Needs(PlanNeeds { network, refresh, pools }) => {
                    if let Some(query) = network {
                        refresh.iter().for_each(|key| self.observer.invalidate(key.clone()));
                        input.reads.refreshed.extend(refresh);
                        let informed = if request.is_written() { request.requests } else { &[] };
                        (input.observed, input.reads.failures) = self.observe(&query, informed, request.urgency).await?;
                        (input.reads.query, input.reads.denied) = (Some(query), self.observer.denied());
                        memory = self.plan_memory(request, &input.observed).await;
                        pool_reads.has_corrected_nodes = memory.has_corrected_nodes;
                    }
                    self.backend_pools.read(&pools, &mut pool_reads, request.urgency).await;
                }
            }
        }
        Err(CloudError::failed(format!("the plan needs other reads again and again; gave up after {MAX_ROUNDS} rounds")))
    }

    fn plan_once(
        &self,
        request: &StagePlanRequest<'_>,
        input: &StageInput,
        memory: &PlanMemory,
        pool_reads: &PoolReads,
    ) -> CloudResult<Planned> {
        let pools = PoolInput {
            hosts: memory.hosts.as_deref(),
            all_nodes: &memory.all_nodes,
            unfilled: &memory.unfilled,
            deleting: &memory.deleting,
            ..self.backend_pools.input(pool_reads, &memory.pools, &memory.local)
        };
        let input = PlanInput {
            scope: request.scope,
            observed: &input.observed,
            requests: request.requests,
            others: &input.others,
            held: request.held,
            network: &input.reads,
            memory: &memory.rules,
            machine_rules: &memory.machine_rules,
            half_made: request.half_made,
            pools: &pools,
            settings: &self.settings,
        };
        caught(|| plan(&input))
    }

    #[cfg_attr(not(feature = "sandbox"), expect(unused_variables, reason = "only tests have a witness"))]
    fn show(&self, request: &StagePlanRequest<'_>, plan: &Plan, observed: &ObservedNetwork) {
        if !request.is_written() {
            return;
        }
        #[cfg(feature = "sandbox")]
        if let Some(witness) = self.compute.witness() {
            witness.planned(&writes::requests(observed, plan));
        }
        if matches!(request.scope, PlanScope::LoadBalancers | PlanScope::SecurityGroup) {
            self.progress.replanned(request.requests.iter().map(|request| request.identity().key.as_str()));
        }
    }

    /// What is known before anything is read.
    async fn first_input(&self, request: &StagePlanRequest<'_>) -> StageInput {
        let identities: BTreeSet<ServiceIdentity> = request.requests.iter().map(ServiceRequest::identity).cloned().collect();
        let attempts = self.public_ip_attempts.lock().intersection(&identities).cloned().collect();
        let former = request.requests.iter().filter_map(|request| self.service_index.former_private_link_group(request));
        let unread_zones = match request.scope {
            PlanScope::Eviction(_) => None,
            _ => self.refresh_zones(request.urgency).await.err(),
        };
        let reads = NetworkReads {
            unread_zones,
            denied: self.observer.denied(),
            discovered_link_groups: self.private_links.discovered(),
            former_link_groups: former.collect(),
            deleting: self.service_index.going(),
            public_ip_attempts: attempts,
            ..NetworkReads::default()
        };
        let others: Vec<ParsedService> = self.service_index.others(&identities);
        StageInput { observed: self.observer.cached(), others, reads }
    }

    /// Returns the memory of a process that begins to write now.
    pub(super) async fn memory_for_plan(&self) -> RuleMemory {
        self.service_index.memory_with(self.rule_records.records_for_plan(&self.service_index).await)
    }

    /// What is remembered now. What was read is noted before something is planned that is written.
    async fn plan_memory(&self, request: &StagePlanRequest<'_>, observed: &ObservedNetwork) -> PlanMemory {
        let mut memory = PlanMemory::default();
        if request.is_written() && !self.service_index.may_lack_nodes() {
            // A process that has just begun knows no other addresses of Nodes.
            let addresses = listed_in_pools(observed, &self.settings);
            self.service_index.with_memory(|memory| memory.note_gone(addresses));
        }
        let (has_members, has_rules) = match request.scope {
            PlanScope::Network | PlanScope::LoadBalancers | PlanScope::Eviction(_) => return memory,
            PlanScope::Everything => (true, true),
            PlanScope::Members => (true, false),
            PlanScope::NetworkAndRules | PlanScope::SecurityGroup => (false, true),
        };
        let nodes = self.service_index.nodes();
        let claims = self.claims(&nodes).await;
        memory.all_nodes = claims.counted(&nodes);
        memory.has_corrected_nodes = claims.has_corrected_nodes();
        match request.purpose {
            PlanPurpose::Print(hosts) => {
                memory.hosts = Some(claims.counted(hosts));
                memory.machine_rules = machine_rules::of_plan(self, hosts);
            }
            PlanPurpose::Write => {
                memory.hosts = self.hosts().map(|hosts| claims.counted(&hosts));
                memory.deleting = self.deleting.lock().iter().cloned().collect();
                if let (PlanScope::SecurityGroup, Some(group)) = (request.scope, &observed.security_group) {
                    self.service_index.note_nodes(&memory.all_nodes);
                    self.service_index.with_memory(|memory| memory.forget_unlisted(|| managed_destinations(group)));
                }
            }
        }
        if has_rules {
            memory.rules = match request.purpose {
                PlanPurpose::Write => self.service_index.memory(),
                PlanPurpose::Print(_) => self.memory_for_plan().await,
            };
        }
        if has_members {
            (memory.pools, (memory.local, _)) = (self.backend_pools.memory(), self.local_pools());
            memory.unfilled = self.unfilled_pools.lock().iter().cloned().collect();
        }
        memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_with_its_message() {
        let pool = String::from("pool1");
        let text = caught::<()>(|| panic!("index out of bounds")).unwrap_err();
        let formatted = caught::<()>(|| panic!("{pool} is in no load balancer")).unwrap_err();
        let expected = ["index out of bounds", "pool1 is in no load balancer"];
        let expected = expected.map(|message| format!("the plan of this batch panicked: {message}; please report it"));
        assert_eq!([text, formatted], expected.map(CloudError::Failed));
        assert_eq!(caught(|| 7), Ok(7));
    }
}
