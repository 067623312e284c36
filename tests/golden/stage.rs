//! The simulated cloud and cluster of a case, and the actions of all other clients.

use std::{collections::BTreeMap, time::Duration};

use cloud_controller_manager::{
    app::manager::ManagerDeps,
    runtime::clock::Clock,
    sandbox::{
        api_server::ApiServer,
        azure::{
            Azure, AzureOptions,
            topology::{Pool, PoolKind, Topology},
            world::World,
        },
    },
};
use k8s_openapi::api::{
    core::v1::{Event, Namespace, Node, Service},
    discovery::v1::EndpointSlice,
};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::golden::{
    case::{Action, Case, State, Step, state},
    replica::{Replica, manager_deps},
};

/// Time limit for a Service, in virtual time.
const SERVICE_TIMEOUT: Duration = Duration::from_secs(120);
/// Time without requests after which a step ends. It exceeds 15 s: after that time, a list is refreshed for a missing machine.
const QUIET: Duration = Duration::from_secs(20);
/// Second subscription of one case.
const OTHER_SUBSCRIPTION: &str = "00000000-0000-0000-0000-000000000002";
/// Fields of `azure.json` that the recorded configurations leave out.
const CREDENTIALS: [&str; 3] = ["tenantId", "aadClientId", "aadClientSecret"];
/// Flags that the recordings omit. A recorded flag has precedence.
const FURTHER_FLAGS: [&str; 3] =
    ["--leader-elect=false", "--configure-cloud-routes=false", "--cluster-cidr=100.64.0.0/10,fd00:64::/32"];

/// Simulated cloud and cluster.
pub(crate) struct Stage {
    pub(crate) server: ApiServer,
    /// Simulated ARM, token endpoints and metadata service.
    pub(crate) cloud: World,
    /// Clock of both.
    pub(crate) clock: Clock,
    quiet: Duration,
}

impl Stage {
    /// Returns the stage of a case before its first step.
    pub(crate) fn new(case: &Case) -> Self {
        let stage = Self::with_documents(case, &case.before);
        case.nodes.iter().for_each(|node| drop(stage.server.create(node)));
        stage
    }

    /// Returns the stage after step `number` (from 0): documents, Nodes and Services with finalizers and addresses.
    pub(crate) fn after(case: &Case, number: usize) -> Self {
        let step = &case.steps[number];
        let stage = Self::with_documents(case, &step.after);
        let changed = case.steps[..=number].iter().rev().find_map(|step| step.nodes.as_ref());
        changed.unwrap_or(&case.nodes).iter().for_each(|node| drop(stage.server.create(node)));
        for action in case.steps[..=number].iter().flat_map(|step| &step.actions) {
            stage.arrange(action);
        }
        for (key, service) in &step.services {
            stage.server.restore(&served(service, step, key));
        }
        stage
    }

    fn with_documents(case: &Case, documents: &State) -> Self {
        let clock = Clock::manual("2026-01-01T00:00:00Z".parse().unwrap());
        let topology = Topology::new().pool(Pool::new(PoolKind::Uniform, "unused", 1));
        let cloud = World::new(topology, AzureOptions::default(), clock).unwrap();
        cloud.azure().load(documents.values().cloned().collect()).unwrap();
        cloud.azure().with_options(|options| {
            options.subscriptions.push(OTHER_SUBSCRIPTION.to_owned());
            options.zones = if case.region_zones { AzureOptions::default().zones } else { Vec::new() };
        });
        let quiet = if case.is_about_routes() { Duration::from_secs(8) } else { QUIET };
        Self { server: ApiServer::new(clock), cloud, clock, quiet }
    }

    pub(crate) fn azure(&self) -> &Azure {
        self.cloud.azure()
    }

    /// Returns all documents of the simulated Azure.
    pub(crate) fn documents(&self) -> State {
        state(self.azure().dump())
    }

    /// Returns a recorded `azure.json` with valid credentials of the simulated cloud.
    pub(crate) fn config(&self, recorded: &Value) -> Value {
        let complete = self.cloud.config();
        let credentials = CREDENTIALS.iter().map(|field| ((*field).to_owned(), complete[field].clone()));
        let mut config = Value::Object(credentials.collect());
        json_patch::merge(&mut config, recorded);
        config
    }

    /// Returns the configuration after step `number` (from 0) of a case.
    pub(crate) fn config_after(&self, case: &Case, number: usize) -> Value {
        let mut config = self.config(&case.config);
        for action in case.steps[..=number].iter().flat_map(|step| &step.actions) {
            if let Action::Restart { config: changes } = action {
                json_patch::merge(&mut config, changes);
            }
        }
        config
    }

    /// Returns the dependencies of a manager on this stage, and the folder of its files.
    pub(crate) fn manager_deps(&self, config: &Value, recorded: &[String]) -> (ManagerDeps, tempfile::TempDir) {
        let mut flags: Vec<&str> = recorded.iter().map(String::as_str).collect();
        let name = |flag: &&str| flag.split('=').next().map(str::to_owned);
        let recorded_names: Vec<_> = flags.iter().map(name).collect();
        flags.extend(FURTHER_FLAGS.into_iter().filter(|flag| !recorded_names.contains(&name(flag))));
        manager_deps(&self.server, self.azure(), self.clock, config, &flags)
    }

    pub(crate) fn start(&self, config: &Value, flags: &[String]) -> Replica {
        Replica::start(self.manager_deps(config, flags))
    }

    /// Performs an action other than a restart, and waits as the recording did.
    pub(crate) async fn act(&self, step: &Step, action: &Action) {
        match action {
            Action::Azure => self.change_azure(step),
            Action::Apply { service } => self.apply(service, &step.services[service]).await,
            Action::Delete { service } => self.delete(service).await,
            Action::CreateNodes => self.create_nodes(step),
            Action::DeleteNode { node } => drop(self.server.delete::<Node>("", node)),
            Action::LabelNode { node, labels } => self.label(node, labels),
            Action::EndpointSlice { .. } | Action::Namespace { .. } => self.arrange(action),
            Action::Settle => self.settled().await,
            Action::Restart { .. } => {}
        }
    }

    /// Waits until no ARM request has arrived for a while.
    pub(crate) async fn settled(&self) {
        let mut before = usize::MAX;
        let mut now = self.azure().count(|_| true);
        while before != now {
            tokio::time::sleep(self.quiet).await;
            (before, now) = (now, self.azure().count(|_| true));
        }
    }

    fn change_azure(&self, step: &Step) {
        step.azure_put.iter().for_each(|document| self.azure().put_document(document.clone()).unwrap());
        for id in &step.azure_delete {
            // The deletion of its parent may have deleted the document.
            self.azure().delete_document(id);
        }
    }

    /// Applies a change after the previous one has settled, as in the recording. The order determines priorities of security rules.
    async fn apply(&self, key: &str, desired: &Service) {
        self.settled().await;
        let (namespace, name) = split(key);
        let found = self.server.get::<Service>(namespace, name);
        match found.map(|found| found.metadata.uid == desired.metadata.uid) {
            Some(true) => drop(self.server.update_with(namespace, name, |service: &mut Service| {
                service.spec.clone_from(&desired.spec);
                service.metadata.labels.clone_from(&desired.metadata.labels);
                service.metadata.annotations.clone_from(&desired.metadata.annotations);
            })),
            other => {
                if other.is_some() {
                    self.delete(key).await;
                }
                let seen = self.warnings(name);
                self.server.restore(desired);
                let is_settled =
                    |stage: &Self| stage.address(key).is_some() || stage.warnings(name) != seen || !is_ours(desired);
                self.wait_until(is_settled).await;
            }
        }
    }

    async fn delete(&self, key: &str) {
        let (namespace, name) = split(key);
        self.server.delete::<Service>(namespace, name);
        self.wait_until(|stage| stage.server.get::<Service>(namespace, name).is_none()).await;
    }

    /// Waits until `condition` or the timeout. The comparison reports a missing result.
    async fn wait_until(&self, condition: impl Fn(&Self) -> bool) {
        let _ = timeout(SERVICE_TIMEOUT, self.server.wait_until(|_| condition(self))).await;
    }

    fn create_nodes(&self, step: &Step) {
        for node in step.nodes.iter().flatten() {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            if self.server.get::<Node>("", name).is_none() {
                self.server.create(node);
            }
        }
    }

    fn label(&self, node: &str, labels: &BTreeMap<String, Option<String>>) {
        self.server.update_with("", node, |node: &mut Node| {
            let all = node.metadata.labels.get_or_insert_default();
            for (label, value) in labels {
                match value {
                    Some(value) => drop(all.insert(label.clone(), value.clone())),
                    None => drop(all.remove(label)),
                }
            }
        });
    }

    /// Performs an action whose object no step records.
    fn arrange(&self, action: &Action) {
        match action {
            Action::EndpointSlice { service, nodes } => self.slice(service, nodes),
            Action::Namespace { name, labels } => {
                let object = json!({"metadata": {"name": name, "labels": labels}});
                self.server.create::<Namespace>(&serde_json::from_value(object).unwrap());
            }
            _ => {}
        }
    }

    fn slice(&self, service: &str, nodes: &[String]) {
        let (namespace, name) = split(service);
        let endpoint = |(number, node): (usize, &String)| json!({"addresses": [format!("100.64.{number}.10")], "conditions": {"ready": true}, "nodeName": node});
        let slice = json!({
            "metadata": {
                "namespace": namespace, "name": format!("{name}-slice"), "labels": {"kubernetes.io/service-name": name},
            },
            "addressType": "IPv4", "endpoints": nodes.iter().enumerate().map(endpoint).collect::<Vec<_>>(), "ports": [],
        });
        let slice: EndpointSlice = serde_json::from_value(slice).unwrap();
        self.server.delete::<EndpointSlice>(namespace, &format!("{name}-slice"));
        self.server.create(&slice);
    }

    /// Returns the addresses of a Service, or `None` without a Service or addresses.
    pub(crate) fn address(&self, key: &str) -> Option<Vec<String>> {
        let (namespace, name) = split(key);
        let balancer = self.server.get::<Service>(namespace, name)?.status?.load_balancer?;
        let addresses: Vec<_> = balancer.ingress?.into_iter().filter_map(|ingress| ingress.ip).collect();
        (!addresses.is_empty()).then_some(addresses)
    }

    /// Returns names and versions of the warning events about an object.
    pub(crate) fn warnings(&self, name: &str) -> BTreeMap<Option<String>, Option<String>> {
        let about =
            |event: &Event| event.involved_object.name.as_deref() == Some(name) && event.type_.as_deref() == Some("Warning");
        let events = self.server.list::<Event>().into_iter().filter(about);
        events.map(|event| (event.metadata.name, event.metadata.resource_version)).collect()
    }
}

/// Splits a key into namespace and name.
pub(crate) fn split(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or(("", key))
}

fn is_ours(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.is_some_and(|spec| spec.type_.as_deref() == Some("LoadBalancer") && spec.load_balancer_class.is_none())
}

/// Returns a Service with its finalizers and addresses after a step.
fn served(service: &Service, step: &Step, key: &str) -> Service {
    let mut service = service.clone();
    if let Some(outcome) = step.outcomes.get(key) {
        service.metadata.finalizers = (!outcome.finalizers.is_empty()).then(|| outcome.finalizers.clone());
        let balancer = service.status.get_or_insert_default().load_balancer.get_or_insert_default();
        balancer.ingress = (!outcome.load_balancer.ingress.is_empty()).then(|| outcome.load_balancer.ingress.clone());
    }
    service
}
