//! Documents in, [`ObservedNetwork`] out; and outcomes of plans carried out on the documents, with what ARM fills in. Addresses that ARM
//! gives are those of the recording.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use cloud_controller_manager::providers::azure::{
    arm::{ResourceId, network::VirtualNetwork, private_link::PrivateLinkService},
    planner::load_balancer::{
        desired::{ServiceRequest, public_ips::PublicIpPlan},
        observed::{ObservedNetwork, ObservedPrivateLinks},
        spec::{ServiceIdentity, ServiceRefusal, ServiceSpec},
    },
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{Turn, load_balancers, private_links, public_ips, security_rules};
use crate::golden::{
    case::{Action, Case, State, Step, state},
    corpus::complete,
};

pub(super) const LOAD_BALANCER: &str = "Microsoft.Network/loadBalancers";
pub(super) const PUBLIC_IP: &str = "Microsoft.Network/publicIPAddresses";
pub(super) const SECURITY_GROUP: &str = "Microsoft.Network/networkSecurityGroups";

pub(super) const PRIVATE_LINK: &str = "Microsoft.Network/privateLinkServices";
pub(super) const VIRTUAL_NETWORK: &str = "Microsoft.Network/virtualNetworks";
/// How often all is planned before it has to be done: a public IP that is made anew needs a few.
const ROUNDS: usize = 5;

/// What there is in Azure in the course of a step.
pub(super) struct Cloud<'a> {
    pub(super) documents: State,
    /// Who was refused, by namespace/name, and why.
    pub(super) refused: BTreeMap<String, String>,
    zones: bool,
    step: &'a Step,
}

impl<'a> Cloud<'a> {
    /// With these documents, in a step.
    pub(super) fn new(case: &Case, step: &'a Step, documents: State) -> Self {
        Self { documents, refused: BTreeMap::new(), zones: case.region_zones, step }
    }

    /// What the planner looks at.
    pub(super) fn observed(&self, turn: &Turn) -> ObservedNetwork {
        let group = turn.settings.security_group.as_ref().and_then(|id| self.documents.get(&id.key()));
        let networks = self.all::<VirtualNetwork>(VIRTUAL_NETWORK).into_iter().filter_map(|network| network.properties);
        let subnets = networks.flat_map(|properties| properties.subnets.unwrap_or_default());
        let zones: &[&str] = if self.zones { &["1", "2", "3"] } else { &[] };
        ObservedNetwork {
            load_balancers: self.all(LOAD_BALANCER),
            public_ips: self.all(PUBLIC_IP),
            private_links: self.private_links(turn),
            security_group: group.map(|group| serde_json::from_value(group.clone()).unwrap()),
            subnets: subnets.map(|subnet| (subnet.name.clone().unwrap_or_default().to_lowercase(), subnet)).collect(),
            zones: zones.iter().map(ToString::to_string).collect(),
            vm_sets: self.vm_sets(),
            namespace_labels: turn.namespaces.clone(),
            interface_limit_reached: false,
        }
    }

    /// All of them, and the groups that are known not to have others.
    fn private_links(&self, turn: &Turn) -> ObservedPrivateLinks {
        let services: Vec<PrivateLinkService> = self.all(PRIVATE_LINK);
        let ids = services.iter().filter_map(|link| ResourceId::parse(link.id.as_deref()?).ok()?.parent());
        let groups = ids.chain([turn.settings.private_link_group.clone()]).collect();
        ObservedPrivateLinks { services, groups }
    }

    /// Does what somebody else does.
    pub(super) fn act(&mut self, action: &Action) {
        if matches!(action, Action::Azure) {
            self.documents.extend(state(self.step.azure_put.iter().cloned()));
            self.step.azure_delete.iter().for_each(|id| drop(self.documents.remove(&id.to_ascii_lowercase())));
        }
    }

    /// Plans and carries out until nothing changes.
    pub(super) fn settle(&mut self, turn: &Turn) {
        self.refused.extend(turn.refused.clone());
        for _ in 0..ROUNDS {
            let before = self.documents.clone();
            self.round(turn);
            if before == self.documents {
                return;
            }
        }
        panic!("{} does not settle", self.step.name);
    }

    /// A Service that one plan refuses takes no part in the others.
    fn round(&mut self, turn: &Turn) {
        let first = public_ips::plan(self, turn);
        let granted = self.granted(turn);
        load_balancers::plan(self, &without_recreated(&granted, &first), &first.assigned);
        let granted = self.granted(&granted);
        private_links::plan(self, &without_recreated(&granted, &first), &first.assigned);
        let granted = self.granted(&granted);
        let public_ips = public_ips::plan(self, &granted);
        public_ips::put(self, &public_ips);
        let changes = load_balancers::plan(self, &without_recreated(&granted, &public_ips), &public_ips.assigned);
        let links = private_links::plan(self, &without_recreated(&granted, &public_ips), &public_ips.assigned);
        private_links::delete(self, &links);
        load_balancers::write(self, &changes);
        private_links::write(self, &links);
        security_rules::apply(self, &granted);
        public_ips::release(self, &public_ips);
    }

    /// Those who are refused ask for nothing any more, but keep what they have.
    fn granted(&self, turn: &Turn) -> Turn {
        let mut granted = turn.without(&self.refused.keys().cloned().collect());
        let refused = turn.asks.iter().filter_map(ensured).filter(|spec| self.refused.contains_key(&spec.identity.key));
        granted.others.extend(refused.cloned().map(Arc::new));
        granted
    }

    /// Takes note of answers to asks.
    pub(super) fn answered<T>(&mut self, answers: &BTreeMap<ServiceIdentity, Result<T, ServiceRefusal>>) {
        let refusals =
            answers.iter().filter_map(|(who, answer)| Some((who.key.clone(), answer.as_ref().err()?.to_string())));
        self.refused.extend(refusals);
    }

    /// Puts a document.
    pub(super) fn put(&mut self, id: &ResourceId, document: &impl Serialize) {
        let mut document = serde_json::to_value(document).unwrap();
        document["id"] = json!(id.as_str());
        document["type"] = json!(id.resource_type());
        complete(&mut document).unwrap();
        let expected = self.step.after.get(&id.key()).unwrap_or(&Value::Null);
        fill_in(&mut document, expected);
        self.documents.insert(id.key(), document);
        self.refer_back();
    }

    /// Deletes a document.
    pub(super) fn delete(&mut self, id: &ResourceId) {
        self.documents.remove(&id.key());
        self.refer_back();
    }

    /// Whether a front end has the public IP.
    pub(super) fn is_used(&self, public_ip: &ResourceId) -> bool {
        users(&self.documents).contains_key(&public_ip.key())
    }

    fn all<T: DeserializeOwned>(&self, kind: &str) -> Vec<T> {
        let found = self.documents.values().filter(|document| document["type"] == kind);
        found.map(|document| serde_json::from_value(document.clone()).unwrap()).collect()
    }

    /// Scale sets and the availability sets that machines are in.
    fn vm_sets(&self) -> Vec<String> {
        let scale_sets =
            self.documents.values().filter(|document| document["type"] == "Microsoft.Compute/virtualMachineScaleSets");
        let scale_sets = scale_sets.filter_map(|document| document["id"].as_str());
        let machines =
            self.documents.values().filter_map(|document| document["properties"]["availabilitySet"]["id"].as_str());
        let names = scale_sets.chain(machines).filter_map(|id| id.rsplit('/').next());
        names.map(str::to_lowercase).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Public IPs say which front end has them.
    fn refer_back(&mut self) {
        let users = users(&self.documents);
        for (id, document) in self.documents.iter_mut().filter(|(_, document)| document["type"] == PUBLIC_IP) {
            let Some(properties) = document["properties"].as_object_mut() else { continue };
            let known = properties.get("ipConfiguration").and_then(|user| user["id"].as_str()).unwrap_or_default();
            match users.get(id) {
                Some(user) => drop(properties.insert("ipConfiguration".to_owned(), json!({"id": user}))),
                None if known.contains("/loadBalancers/") => drop(properties.remove("ipConfiguration")),
                None => {}
            }
        }
    }
}

/// Front ends by the key of their public IP.
fn users(documents: &State) -> BTreeMap<String, String> {
    let frontends =
        documents.values().filter_map(|document| document["properties"]["frontendIPConfigurations"].as_array()).flatten();
    let pair = |frontend: &Value| {
        let public_ip = frontend["properties"]["publicIPAddress"]["id"].as_str()?;
        Some((public_ip.to_ascii_lowercase(), frontend["id"].as_str()?.to_owned()))
    };
    frontends.filter_map(pair).collect()
}

/// What ARM adds to a document that was put.
fn fill_in(document: &mut Value, expected: &Value) {
    let kind = document["type"].as_str().unwrap_or_default().to_owned();
    if document["properties"].is_null() {
        document["properties"] = json!({});
    }
    if [LOAD_BALANCER, PUBLIC_IP].contains(&kind.as_str()) && document["sku"].is_null() {
        document["sku"] = json!({"name": "Basic"});
    }
    if kind == PRIVATE_LINK {
        for (field, value) in [
            ("fqdns", json!([])),
            ("enableProxyProtocol", json!(false)),
            ("networkInterfaces", json!([])),
            ("privateEndpointConnections", json!([])),
            ("provisioningState", json!("Succeeded")),
        ] {
            if document["properties"][field].is_null() {
                document["properties"][field] = value;
            }
        }
    }
    let address = &expected["properties"]["ipAddress"];
    if kind == PUBLIC_IP && document["properties"]["ipAddress"].is_null() && !address.is_null() {
        document["properties"]["ipAddress"] = address.clone();
    }
    let known = expected["properties"]["frontendIPConfigurations"].as_array().map(Vec::as_slice).unwrap_or_default();
    for frontend in document["properties"]["frontendIPConfigurations"].as_array_mut().into_iter().flatten() {
        let known = known.iter().find(|known| known["name"] == frontend["name"]);
        let address = known.map_or(&Value::Null, |known| &known["properties"]["privateIPAddress"]);
        if frontend["properties"]["privateIPAddress"].is_null() && !address.is_null() {
            frontend["properties"]["privateIPAddress"] = address.clone();
        }
    }
    for rule in document["properties"]["loadBalancingRules"].as_array_mut().into_iter().flatten() {
        for port in ["frontendPort", "backendPort"] {
            if rule["properties"][port].is_null() {
                rule["properties"][port] = json!(0);
            }
        }
    }
}

/// Front ends whose public IP is made anew are not asked for meanwhile.
fn without_recreated(turn: &Turn, public_ips: &PublicIpPlan) -> Turn {
    let mut turn = turn.clone();
    for ask in &mut turn.asks {
        let ServiceRequest::Ensure(spec) = ask else { continue };
        let identity = spec.identity.clone();
        let spec = Arc::make_mut(spec);
        spec.families.retain(|family| !public_ips.recreated.contains(&(identity.clone(), *family)));
        if spec.families.is_empty() {
            *ask = ServiceRequest::Delete(identity, None);
        }
    }
    turn
}

/// The spec of a Service that shall have a load balancer.
pub(super) fn ensured(ask: &ServiceRequest) -> Option<&ServiceSpec> {
    match ask {
        ServiceRequest::Ensure(spec) => Some(spec),
        ServiceRequest::Delete(..) => None,
    }
}
