//! Whole plans as text: the plan at the beginning of each step of each case.
//!
//! The files are in `printed`; `UPDATE_PLANS=1` rewrites them. Resource ids start after `/providers/`.

use std::{collections::BTreeSet, fmt::Write as _, fs, path::PathBuf, sync::Arc};

use cloud_controller_manager::{
    app::plan::{ClusterPlan, print},
    cloud_provider::WritePlan,
    controllers::service::predicates::is_host,
    providers::azure::{
        model::{LookupError, Machine, MachineInterface, MachineIpConfiguration, MachineKind, ResourceId},
        planner::load_balancer::{
            desired::{ServiceRequest, plan_index::PlanIndex, security_rules::listed_destinations},
            plan::{
                MachineRules, NetworkReads, PlanInput, PlanScope, Planned, plan,
                pools::{PoolInput, PoolMemory, PoolReads},
                writes,
            },
            pools::{member_addresses::PoolMemberAddresses, nodes::internal_addresses},
            rule_memory::{BackendLookup, ParsedService, RuleMemory},
            spec::ServiceSpec,
        },
    },
};
use k8s_openapi::api::core::v1::Node;
use serde_json::Value;
use tokio::time::Instant;

use super::{
    cloud::observed,
    cluster::{Cluster, PlanBatch},
};
use crate::golden::{
    case::{Action, Case, State, Step, state},
    corpus,
};

const UPDATE: &str = "UPDATE_PLANS";

/// Nodes and memory of entry process during a case.
struct History<'a> {
    case: &'a Case,
    nodes: Vec<Arc<Node>>,
    memory: RuleMemory,
}

impl<'a> History<'a> {
    fn new(case: &'a Case) -> Self {
        let mut history = Self { case, nodes: Vec::new(), memory: RuleMemory::default() };
        history.take_nodes(&case.nodes);
        history
    }

    fn take_nodes(&mut self, nodes: &[Node]) {
        self.nodes = nodes.iter().cloned().map(Arc::new).collect();
        self.memory.note_nodes(nodes.iter().flat_map(internal_addresses).collect());
    }

    fn plan(&self, documents: &State, batch: &PlanBatch) -> WritePlan {
        let observed = observed(self.case, documents, batch);
        let reads = reads(documents, &self.nodes);
        let group = ResourceId::parse(&batch.settings.group.to_string()).unwrap();
        let others: Vec<ParsedService> = batch.others.iter().cloned().map(ParsedService::Valid).collect();
        let hosts: Vec<Arc<Node>> = self.nodes.iter().filter(|node| is_host(node)).cloned().collect();
        let pools = PoolInput {
            hosts: Some(&hosts),
            all_nodes: &self.nodes,
            reads: &reads,
            memory: &PoolMemory::default(),
            local: &batch.local_pools(),
            unfilled: &[],
            deleting: &[],
            group: &group,
            migrate_api: false,
            now: Instant::now(),
        };
        let machine_rules = MachineRules {
            are_due: false,
            services: batch.others.iter().filter(|other| !other.floating_ip).cloned().map(ServiceRequest::Ensure).collect(),
        };
        let input = PlanInput {
            scope: PlanScope::Everything,
            machine_rules: &machine_rules,
            half_made: &BTreeSet::new(),
            held: &BTreeSet::new(),
            network: &NetworkReads { is_complete: true, ..NetworkReads::default() },
            observed: &observed,
            requests: &batch.requests,
            others: &others,
            memory: &self.memory,
            pools: &pools,
            settings: &batch.settings,
        };
        let plan = match plan(&input) {
            Planned::Plan(plan) => *plan,
            Planned::Needs(needs) => panic!("{needs:?}"),
        };
        writes::requests(&observed, &plan)
    }

    /// Records that the security rules of these requests were applied.
    fn remember(&mut self, step: &Step, batch: &PlanBatch) {
        let observed = observed(self.case, &step.after, batch);
        let index = PlanIndex::new(&observed);
        let behind = |spec: &ServiceSpec| PoolMemberAddresses::default().of_service(spec, &index, &batch.settings);
        let present = self.memory.nodes().present.clone();
        let machines = BackendLookup { all_nodes: &present, of_service: &behind };
        for request in &batch.requests {
            if let Ok(rules) = self.memory.rules_of_request(request, &index, &machines, &batch.settings) {
                let listed = listed_destinations(&observed.security_group);
                self.memory.record_applied(request, &rules, &listed);
            }
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Returns the reads of the machines in these documents.
fn reads(documents: &State, nodes: &[Arc<Node>]) -> PoolReads {
    let machines: Vec<Arc<Machine>> =
        documents.values().filter_map(|document| machine(document, documents)).map(Arc::new).collect();
    let of_node = |node: &Arc<Node>| {
        let name = node.metadata.name.clone().unwrap_or_default();
        let found = machines
            .iter()
            .find(|machine| machine.computer_name.eq_ignore_ascii_case(&name) || machine.name.eq_ignore_ascii_case(&name));
        let result = found.cloned().ok_or_else(|| LookupError::NotListed(format!("no machine of {name}")));
        (name, result)
    };
    let is_set = |document: &&Value| document["type"] == "Microsoft.Compute/virtualMachineScaleSets";
    let set = |document: &Value| {
        (ResourceId::parse(text(&document["id"])).unwrap(), Arc::new(serde_json::from_value(document.clone()).unwrap()))
    };
    PoolReads {
        machines: nodes.iter().map(of_node).collect(),
        models: Some(Ok(documents.values().filter(is_set).map(set).collect())),
        machines_at: Some(machines),
        ..PoolReads::default()
    }
}

fn machine(document: &Value, documents: &State) -> Option<Machine> {
    let id = ResourceId::parse(text(&document["id"])).ok()?;
    let properties = &document["properties"];
    let id_of = |field: &str| ResourceId::parse(text(&properties[field]["id"])).ok();
    let kind = match text(&document["type"]) {
        "Microsoft.Compute/virtualMachines" => match (id_of("virtualMachineScaleSet"), id_of("availabilitySet")) {
            (Some(scale_set), _) => MachineKind::FlexInstance { scale_set },
            (None, Some(set)) => MachineKind::AvailabilitySet { set },
            (None, None) => MachineKind::Standalone,
        },
        "Microsoft.Compute/virtualMachineScaleSets/virtualMachines" => {
            MachineKind::ScaleSetInstance { scale_set: id.parent()?, instance_id: id.name().to_owned() }
        }
        _ => return None,
    };
    let statuses = list(&properties["instanceView"]["statuses"]);
    let power_state = statuses.iter().find_map(|status| text(&status["code"]).strip_prefix("PowerState/"));
    Some(Machine {
        kind,
        name: text(&document["name"]).to_owned(),
        computer_name: text(&properties["osProfile"]["computerName"]).to_owned(),
        vm_id: String::new(),
        vm_size: String::new(),
        location: String::new(),
        zone: None,
        fault_domain: None,
        provisioning_state: properties["provisioningState"].as_str().unwrap_or("Succeeded").to_owned(),
        power_state: power_state.map(str::to_owned),
        interfaces: interfaces(&properties["networkProfile"]["networkInterfaces"], documents),
        id,
    })
}

fn interfaces(references: &Value, documents: &State) -> Vec<MachineInterface> {
    let of_reference = |reference: &Value| {
        let id = ResourceId::parse(text(&reference["id"])).ok()?;
        let configurations = documents.get(&id.key()).map(|it| list(&it["properties"]["ipConfigurations"]))?;
        let configuration = |entry: &Value| MachineIpConfiguration {
            primary: entry["properties"]["primary"] == true,
            ipv6: entry["properties"]["privateIPAddressVersion"] == "IPv6",
            private_address: entry["properties"]["privateIPAddress"].as_str().map(str::to_owned),
            public_address: None,
        };
        let primary = reference["properties"]["primary"] == true;
        Some(MachineInterface { id, primary, ip_configurations: configurations.iter().map(configuration).collect() })
    };
    list(references).iter().filter_map(of_reference).collect()
}

/// Removes the common parts of resource ids.
fn shortened(text: &str) -> String {
    let mut short = String::new();
    let mut rest = text;
    while let Some(start) = rest.to_ascii_lowercase().find("/subscriptions/") {
        let end = rest[start..].find("/providers/").map(|at| start + at + "/providers/".len());
        short.push_str(&rest[..start]);
        let Some(end) = end else {
            short.push_str(&rest[start..]);
            return short;
        };
        rest = &rest[end..];
    }
    short + rest
}

/// Returns the plan as pages and commands print it.
fn text_of(plan: &WritePlan) -> String {
    let parts = vec![("Services", plan.clone())];
    shortened(&print::text(&ClusterPlan { parts, ..ClusterPlan::default() }, false))
}

/// Returns the printed plans of a case.
fn printed(case: &'static Case) -> String {
    let (mut cluster, mut history) = (Cluster::new(case), History::new(case));
    let mut documents = case.before.clone();
    let mut printed = String::new();
    for step in &case.steps {
        let mut deletions = Vec::new();
        for action in &step.actions {
            if matches!(action, Action::Azure) {
                documents.extend(state(step.azure_put.iter().cloned()));
                documents.retain(|id, _| !step.azure_delete.iter().any(|deleted| deleted.eq_ignore_ascii_case(id)));
            }
            deletions.extend(cluster.act(step, action));
        }
        if let Some(nodes) = &step.nodes {
            history.take_nodes(nodes);
        }
        let mut batch = cluster.all_services();
        batch.requests.extend(deletions);
        let _ = writeln!(printed, "# {}\n{}", step.name, text_of(&history.plan(&documents, &batch)));
        cluster.finish(step);
        history.remember(step, &batch.without(&step.failing()));
        documents = step.after.clone();
    }
    printed
}

fn file(case: &Case) -> PathBuf {
    let name = format!("{}.txt", case.path.replace('/', "-"));
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/plans/printed").join(name)
}

fn planned_cases() -> impl Iterator<Item = &'static Case> {
    corpus::cases().iter().filter(|case| !case.is_about_routes())
}

#[test]
fn plans_are_as_printed() {
    let mut failures = Vec::new();
    let mut files = BTreeSet::new();
    for case in planned_cases() {
        let (found, file) = (printed(case), file(case));
        if std::env::var_os(UPDATE).is_some() {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, &found).unwrap();
        }
        let expected = fs::read_to_string(&file).unwrap_or_default();
        if let Some((old, new)) = expected.lines().zip(found.lines()).find(|(old, new)| old != new) {
            failures.push(format!("{}\n  expected {old}\n  found    {new}", file.display()));
        } else if expected != found {
            failures.push(format!("{} has a different length", file.display()));
        }
        files.insert(file);
    }
    let printed = fs::read_dir(files.iter().next().unwrap().parent().unwrap()).unwrap();
    let unused = printed.map(|entry| entry.unwrap().path()).filter(|path| !files.contains(path));
    failures.extend(unused.map(|path| format!("{} belongs to no case", path.display())));
    assert!(failures.is_empty(), "{UPDATE}=1 rewrites the files\n{}", failures.join("\n"));
}
