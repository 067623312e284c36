//! For tests: a little Azure as ARM would list it, and the inventory's pure parts driven on it without a client.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, outside of test functions")]

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Freshness, InventorySettings, MachineExistence, MachineQuery, build, existence, plan,
    query::{PendingQuery, QueryEvaluation, RequiredRead},
    read::{ArmRead, ArmReadPayload, ListScope, uniform_set_of},
    resolve::{self, LookupResult, QueryView},
    second_look,
    snapshot::InventorySnapshot,
};
use crate::{
    cloud_provider::SecondLook,
    providers::azure::{
        arm::{ArmError, ArmErrorClass, ResourceId},
        config::{AzureConfig, VmType},
    },
};

pub(super) const SUBSCRIPTION: &str = "00000000-0000-4000-8000-000000000001";

pub(super) fn group() -> ResourceId {
    ResourceId::group_of(SUBSCRIPTION, "rg")
}

pub(super) fn set(name: &str) -> ResourceId {
    group().resource("Microsoft.Compute/virtualMachineScaleSets", &[name])
}

pub(super) fn instance(set_name: &str, number: usize) -> ResourceId {
    set(set_name).child("virtualMachines", &number.to_string())
}

pub(super) fn vm(name: &str) -> ResourceId {
    group().resource("Microsoft.Compute/virtualMachines", &[name])
}

pub(super) fn error(class: ArmErrorClass) -> ArmError {
    let (code, message, request) = (String::new(), format!("{class:?}"), "GET".to_owned());
    ArmError { class, status: None, code, message, request, correlation_id: None, retry_after: None }
}

pub(super) fn settings(vm_type: VmType, flex: bool, without_sets: bool) -> InventorySettings {
    InventorySettings::from_config(&AzureConfig {
        subscription_id: SUBSCRIPTION.to_owned(),
        resource_group: "rg".to_owned(),
        vm_type,
        enable_vmss_flex_nodes: flex,
        disable_availability_set_nodes: without_sets,
        ..AzureConfig::default()
    })
}

pub(super) fn named(name: &str) -> MachineQuery {
    MachineQuery { node_name: name.to_owned(), id: None, resource_group: None }
}

pub(super) fn with_id(name: &str, id: &ResourceId) -> MachineQuery {
    MachineQuery { id: Some(id.clone()), ..named(name) }
}

/// Returns the host name of an instance.
pub(super) fn host(prefix: &str, number: usize) -> String {
    let digit = |index: u32| char::from_digit(u32::try_from(number / 36usize.pow(index) % 36).unwrap(), 36).unwrap();
    prefix.to_owned() + &(0..6).rev().map(digit).collect::<String>()
}

/// Predicate for reads.
pub(super) type ReadFilter = fn(&ArmRead) -> bool;

/// Fixture of a small Azure.
#[derive(Default)]
pub(super) struct InventoryArmFixture {
    pub(super) sets: BTreeMap<ResourceId, Value>,
    pub(super) machines: BTreeMap<ResourceId, Value>,
    pub(super) interfaces: BTreeMap<ResourceId, Value>,
    /// The error of every read.
    pub(super) down: Option<ArmErrorClass>,
    /// The error of these reads.
    pub(super) broken: Vec<(ReadFilter, ArmErrorClass)>,
    /// Lists have nothing in them.
    pub(super) empty_lists: bool,
    /// Lists have no instance view.
    pub(super) lists_without_view: bool,
}

impl InventoryArmFixture {
    pub(super) fn add_set(&mut self, name: &str, flexible: bool) {
        let mode = if flexible { "Flexible" } else { "Uniform" };
        let document = json!({"id": set(name).as_str(), "sku": {"capacity": 0}, "properties": {"orchestrationMode": mode}});
        self.sets.insert(set(name), document);
    }

    pub(super) fn add_uniform(&mut self, set_name: &str, count: usize) {
        self.add_set(set_name, false);
        for number in 0..count {
            self.add_machine(&instance(set_name, number), &host(set_name, number), Some(&set(set_name)));
        }
    }

    pub(super) fn add_flex(&mut self, set_name: &str, count: usize) {
        self.add_set(set_name, true);
        for number in 0..count {
            // The number of a flexible set's machine says nothing about its host name.
            let id = vm(&format!("{set_name}_{:08x}", number * 7919));
            self.add_machine(&id, &host(set_name, number), Some(&set(set_name)));
        }
    }

    pub(super) fn add_standalone(&mut self, name: &str) {
        self.add_machine(&vm(name), name, None);
    }

    pub(super) fn add_machine(&mut self, id: &ResourceId, host: &str, set: Option<&ResourceId>) {
        let uniform = uniform_set_of(id).is_some();
        let interface = match uniform {
            true => id.child("networkInterfaces", "nic"),
            false => group().resource("Microsoft.Network/networkInterfaces", &[&format!("{}-nic", id.name())]),
        };
        let number = self.machines.len();
        let address = format!("10.{}.{}.{}", number / 65536, number / 256 % 256, number % 256);
        let mut machine = json!({
            "id": id.as_str(), "name": id.name(), "location": "westeurope", "sku": {"name": "Standard_D2"},
            "properties": {
                "vmId": format!("vm-{number}"), "provisioningState": "Succeeded",
                "hardwareProfile": {"vmSize": "Standard_D2"}, "osProfile": {"computerName": host},
                "networkProfile": {"networkInterfaces": [{"id": interface.as_str()}]},
                "instanceView": {"platformFaultDomain": 1, "statuses": [{"code": "ProvisioningState/succeeded"}, {"code": "PowerState/running"}]},
            },
        });
        if let Some(set) = set {
            if !uniform {
                machine["properties"]["virtualMachineScaleSet"] = json!({"id": set.as_str()});
            }
            let capacity = self.sets[set]["sku"]["capacity"].as_u64().unwrap() + 1;
            self.sets.get_mut(set).unwrap()["sku"]["capacity"] = json!(capacity);
        }
        let configuration =
            json!({"properties": {"primary": true, "privateIPAddress": address, "privateIPAddressVersion": "IPv4"}});
        let document = json!({"id": interface.as_str(), "properties": {"ipConfigurations": [configuration]}});
        self.interfaces.insert(interface, document);
        self.machines.insert(id.clone(), machine);
    }

    pub(super) fn power(&mut self, id: &ResourceId, state: &str) {
        let code = format!("PowerState/{state}");
        self.machines.get_mut(id).unwrap()["properties"]["instanceView"]["statuses"] = json!([{"code": code}]);
    }

    fn list<T: serde::de::DeserializeOwned>(
        &self,
        of: &BTreeMap<ResourceId, Value>,
        query: impl Fn(&Value) -> bool,
    ) -> Vec<T> {
        let shown = of.values().filter(|it| !self.empty_lists && query(it));
        shown.map(|it| T::deserialize(it).unwrap()).collect()
    }

    /// Returns ARM's response and the number of requests for it.
    pub(super) fn respond(&self, read: &ArmRead, snapshot: &InventorySnapshot) -> (Result<ArmReadPayload, ArmError>, usize) {
        let broken = self.broken.iter().find(|(is, _)| is(read)).map(|(_, class)| *class);
        if let Some(class) = self.down.or(broken) {
            return (Err(error(class)), 1);
        }
        let prefixed = |it: &Value, set: &ResourceId| {
            it["id"].as_str().unwrap().strip_prefix(set.as_str()).is_some_and(|rest| rest.starts_with('/'))
        };
        let pages = |items: usize| items.div_ceil(100).max(1);
        match read {
            ArmRead::ScaleSets(group) => {
                let sets: Vec<_> = self.list(&self.sets, |it| it["id"].as_str().unwrap().starts_with(group.as_str()));
                let count = pages(sets.len());
                (Ok(ArmReadPayload::ScaleSets(sets.into_iter().filter_map(build::scale_set).collect())), count)
            }
            ArmRead::Machines(scope) => {
                if let ListScope::Uniform(id) | ListScope::Flex(id) = scope
                    && !self.sets.contains_key(id)
                {
                    return (Err(error(ArmErrorClass::ParentNotFound)), 1);
                }
                let belongs = |it: &Value| match scope {
                    ListScope::Uniform(set) => prefixed(it, set),
                    ListScope::Flex(set) => it["properties"]["virtualMachineScaleSet"]["id"] == json!(set.as_str()),
                    ListScope::Group(group) => {
                        let rest = it["id"].as_str().unwrap().strip_prefix(group.as_str());
                        rest.is_some_and(|rest| rest.starts_with("/providers/Microsoft.Compute/virtualMachines/"))
                    }
                };
                let mut records: Vec<super::records::VmRecord> = self.list(&self.machines, belongs);
                if self.lists_without_view || matches!(scope, ListScope::Group(_)) {
                    records.iter_mut().for_each(|record| record.properties.as_mut().unwrap().instance_view = None);
                }
                let count = pages(records.len());
                (Ok(ArmReadPayload::Machines(records.into_iter().filter_map(build::machine).collect())), count)
            }
            ArmRead::Interfaces(scope) => {
                let belongs = |it: &Value| match scope {
                    ListScope::Uniform(set) => prefixed(it, set),
                    _ => it["id"].as_str().unwrap().contains("Microsoft.Network"),
                };
                let records: Vec<super::records::InterfaceRecord> = self.list(&self.interfaces, belongs);
                let count = pages(records.len());
                let interfaces =
                    records.into_iter().filter_map(|it| build::interface(it, &build::PublicIpAddressById::new()));
                (Ok(ArmReadPayload::Interfaces(interfaces.map(|it| (it.id.clone(), it)).collect())), count)
            }
            ArmRead::ScaleSet(id) => {
                (self.sets.get(id).map(|_| ArmReadPayload::Exists).ok_or_else(|| error(ArmErrorClass::NotFound)), 1)
            }
            ArmRead::Machine(id) => match self.machines.get(id) {
                Some(it) => {
                    let machine = build::machine(serde_json::from_value(it.clone()).unwrap());
                    (Ok(ArmReadPayload::Machines(machine.into_iter().collect())), 1)
                }
                None => {
                    let orphan = uniform_set_of(id).is_some_and(|set| !self.sets.contains_key(&set));
                    (Err(error(if orphan { ArmErrorClass::ParentNotFound } else { ArmErrorClass::NotFound })), 1)
                }
            },
            ArmRead::InterfacesOf(id) => {
                let ids = snapshot.entry(id).map(|entry| entry.machine.interfaces.clone()).unwrap_or_default();
                let records = ids.iter().filter_map(|it| self.interfaces.get(&it.id));
                let records = records.map(|it| serde_json::from_value(it.clone()).unwrap());
                let interfaces = records.filter_map(|it| build::interface(it, &build::PublicIpAddressById::new()));
                (Ok(ArmReadPayload::Interfaces(interfaces.map(|it| (it.id.clone(), it)).collect())), ids.len().max(1))
            }
        }
    }
}

/// The inventory without a client: rounds of reads on an [`InventoryArmFixture`].
pub(super) struct InventoryDriver {
    pub(super) fixture: InventoryArmFixture,
    pub(super) snapshot: InventorySnapshot,
    pub(super) settings: InventorySettings,
    pub(super) now: Instant,
    /// Number of requests since the last call.
    pub(super) requests: usize,
    pub(super) reads: Vec<ArmRead>,
}

impl InventoryDriver {
    pub(super) fn new(fixture: InventoryArmFixture, settings: InventorySettings) -> Self {
        let now = Instant::now() + Duration::from_secs(100_000);
        Self { fixture, snapshot: InventorySnapshot::default(), settings, now, requests: 0, reads: Vec::new() }
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    pub(super) fn requests(&mut self) -> usize {
        std::mem::take(&mut self.requests)
    }

    fn send(&mut self, read: ArmRead) {
        let (outcome, requests) = self.fixture.respond(&read, &self.snapshot);
        self.requests += requests;
        self.reads.push(read.clone());
        self.now += Duration::from_micros(1);
        self.snapshot.record(read, self.now, outcome);
    }

    fn evaluate_all<T>(
        &mut self,
        questions: &[PendingQuery],
        evaluate_query: fn(&QueryView<'_>) -> QueryEvaluation<T>,
    ) -> Vec<T> {
        for _ in 0..super::MAX_ROUNDS {
            let mut needs: Vec<RequiredRead> = Vec::new();
            let mut results = Vec::new();
            for question in questions {
                match evaluate_query(&QueryView { question, snapshot: &self.snapshot, settings: &self.settings }) {
                    QueryEvaluation::Done(result) => results.push(result),
                    QueryEvaluation::NeedsReads(more) => needs.extend(more),
                }
            }
            if needs.is_empty() {
                return results;
            }
            let reads = plan::plan(&needs, &self.snapshot, self.now);
            assert!(!reads.is_empty(), "needs without a read");
            for read in reads {
                if let Some(list) = plan::list_of(&read, &self.snapshot) {
                    self.snapshot.count_single_read(list, self.now);
                }
                self.send(read);
            }
        }
        panic!("no answer after {} rounds: {:?}", super::MAX_ROUNDS, self.reads);
    }

    pub(super) fn look_up(&mut self, query: &[MachineQuery], freshness: Freshness) -> Vec<LookupResult> {
        self.pass(Duration::from_micros(1));
        let question = |query: &MachineQuery| PendingQuery::new(query, &self.settings, self.now, freshness, false);
        let questions: Vec<_> = query.iter().map(question).collect();
        self.evaluate_all(&questions, resolve::look_up)
    }

    pub(super) fn one(&mut self, query: &MachineQuery) -> LookupResult {
        self.look_up(std::slice::from_ref(query), Freshness::Cached).remove(0)
    }

    pub(super) fn check_existence_all(&mut self, query: &[MachineQuery], freshness: Duration) -> Vec<MachineExistence> {
        self.pass(Duration::from_micros(1));
        let question =
            |query: &MachineQuery| PendingQuery::new(query, &self.settings, self.now, Freshness::Within(freshness), true);
        let questions: Vec<_> = query.iter().map(question).collect();
        self.evaluate_all(&questions, existence::check_existence)
    }

    pub(super) fn check_existence(&mut self, query: &MachineQuery) -> MachineExistence {
        self.check_existence_all(std::slice::from_ref(query), Duration::ZERO).remove(0)
    }

    pub(super) fn second_look(&mut self, query: &MachineQuery) -> SecondLook {
        self.pass(Duration::from_micros(1));
        let freshness = Freshness::Within(Duration::from_secs(60));
        let question = PendingQuery::new(query, &self.settings, self.now, freshness, false);
        self.evaluate_all(&[PendingQuery { second_look: true, ..question }], second_look::evaluate).remove(0)
    }

    pub(super) fn warm(&mut self) {
        self.pass(Duration::from_micros(1));
        let (started, mut attempted) = (self.now, BTreeSet::new());
        loop {
            let reads = plan::due(&self.snapshot, &self.settings, started, &attempted);
            if reads.is_empty() {
                return;
            }
            for read in reads {
                attempted.insert(read.clone());
                self.send(read);
            }
        }
    }
}

/// Returns the state of a machine that was found.
pub(super) fn power_of(sighting: &MachineExistence) -> Option<&str> {
    match sighting {
        MachineExistence::Found(machine) => Arc::as_ref(machine).power_state.as_deref(),
        _ => None,
    }
}
