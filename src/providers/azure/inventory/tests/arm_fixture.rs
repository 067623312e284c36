//! For tests: a small simulated Azure, and the inventory's pure parts driven on it, read by read.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, outside of test functions")]

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::{
    Freshness, InventorySettings, MachineExistence, existence, plan,
    query::{PendingQuery, QueryEvaluation, RequiredRead},
    read::{ArmRead, ArmReadPayload, uniform_set_of},
    refresh,
    resolve::{self, LookupResult, QueryView},
    second_look,
    snapshot::InventorySnapshot,
};
use crate::{
    cloud_provider::SecondLook,
    providers::azure::{
        arm::ArmClient,
        config::{AzureConfig, VmType},
        model::{ArmError, ArmErrorClass, MachineQuery, ResourceId},
        samples::arm_client,
    },
    runtime::clock::Clock,
    sandbox::azure::{Azure, AzureOptions, Effect, Fault},
};

pub(in crate::providers::azure::inventory) const SUBSCRIPTION: &str = "00000000-0000-4000-8000-000000000001";

pub(in crate::providers::azure::inventory) fn group() -> ResourceId {
    ResourceId::group_of(SUBSCRIPTION, "rg")
}

pub(in crate::providers::azure::inventory) fn set(name: &str) -> ResourceId {
    group().resource("Microsoft.Compute/virtualMachineScaleSets", &[name])
}

pub(in crate::providers::azure::inventory) fn instance(set_name: &str, number: usize) -> ResourceId {
    set(set_name).child("virtualMachines", &number.to_string())
}

pub(in crate::providers::azure::inventory) fn vm(name: &str) -> ResourceId {
    group().resource("Microsoft.Compute/virtualMachines", &[name])
}

/// Machine of a flexible scale set. Its name says nothing about its host name.
pub(in crate::providers::azure::inventory) fn flex(set_name: &str, number: usize) -> ResourceId {
    vm(&format!("{set_name}_{:08x}", number * 7919))
}

pub(in crate::providers::azure::inventory) fn error(class: ArmErrorClass) -> ArmError {
    let (code, message, request) = (String::new(), format!("{class:?}"), "GET".to_owned());
    ArmError { class, status: None, code, message, request, correlation_id: None, retry_after: None }
}

pub(in crate::providers::azure::inventory) fn settings(
    vm_type: VmType,
    flex: bool,
    without_sets: bool,
) -> InventorySettings {
    InventorySettings::from_config(&AzureConfig {
        subscription_id: SUBSCRIPTION.to_owned(),
        resource_group: "rg".to_owned(),
        vm_type,
        enable_vmss_flex_nodes: flex,
        disable_availability_set_nodes: without_sets,
        ..AzureConfig::default()
    })
}

pub(in crate::providers::azure::inventory) fn named(name: &str) -> MachineQuery {
    MachineQuery { node_name: name.to_owned(), id: None, resource_group: None }
}

pub(in crate::providers::azure::inventory) fn with_id(name: &str, id: &ResourceId) -> MachineQuery {
    MachineQuery { id: Some(id.clone()), ..named(name) }
}

/// Returns the host name of an instance.
pub(in crate::providers::azure::inventory) fn host(prefix: &str, number: usize) -> String {
    let digit = |index: u32| char::from_digit(u32::try_from(number / 36usize.pow(index) % 36).unwrap(), 36).unwrap();
    prefix.to_owned() + &(0..6).rev().map(digit).collect::<String>()
}

/// Predicate for reads.
pub(in crate::providers::azure::inventory) type ReadFilter = fn(&ArmRead) -> bool;

/// Fixture of a small Azure.
pub(in crate::providers::azure::inventory) struct InventoryArmFixture {
    pub(in crate::providers::azure::inventory) azure: Azure,
    pub(in crate::providers::azure::inventory) client: ArmClient,
    /// Number of machines so far.
    pub(in crate::providers::azure::inventory) machines: usize,
    /// The error of every read.
    pub(in crate::providers::azure::inventory) down: Option<ArmErrorClass>,
    /// The error of these reads.
    pub(in crate::providers::azure::inventory) broken: Vec<(ReadFilter, ArmErrorClass)>,
}

impl Default for InventoryArmFixture {
    fn default() -> Self {
        let azure = Azure::new(AzureOptions { subscriptions: vec![SUBSCRIPTION.to_owned()], ..AzureOptions::immediate() });
        azure.put_document(json!({"id": group().as_str()})).unwrap();
        let client = arm_client(&azure, Clock::System);
        Self { azure, client, machines: 0, down: None, broken: Vec::new() }
    }
}

impl InventoryArmFixture {
    pub(in crate::providers::azure::inventory) fn add_set(&mut self, name: &str, flexible: bool) {
        let mode = if flexible { "Flexible" } else { "Uniform" };
        let document = json!({"id": set(name).as_str(), "sku": {"capacity": 0}, "properties": {"orchestrationMode": mode}});
        self.azure.put_document(document).unwrap();
    }

    pub(in crate::providers::azure::inventory) fn add_uniform(&mut self, set_name: &str, count: usize) {
        self.add_set(set_name, false);
        for number in 0..count {
            self.add_machine(&instance(set_name, number), &host(set_name, number), Some(&set(set_name)));
        }
    }

    pub(in crate::providers::azure::inventory) fn add_flex(&mut self, set_name: &str, count: usize) {
        self.add_set(set_name, true);
        for number in 0..count {
            self.add_machine(&flex(set_name, number), &host(set_name, number), Some(&set(set_name)));
        }
    }

    pub(in crate::providers::azure::inventory) fn add_standalone(&mut self, name: &str) {
        self.add_machine(&vm(name), name, None);
    }

    pub(in crate::providers::azure::inventory) fn add_machine(
        &mut self,
        id: &ResourceId,
        host: &str,
        set: Option<&ResourceId>,
    ) {
        let uniform = uniform_set_of(id).is_some();
        let interface = match uniform {
            true => id.child("networkInterfaces", "nic"),
            false => group().resource("Microsoft.Network/networkInterfaces", &[&format!("{}-nic", id.name())]),
        };
        let number = self.machines;
        self.machines += 1;
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
            self.resize(set, 1);
        }
        let configuration =
            json!({"properties": {"primary": true, "privateIPAddress": address, "privateIPAddressVersion": "IPv4"}});
        let document = json!({"id": interface.as_str(), "properties": {"ipConfigurations": [configuration]}});
        self.azure.put_document(machine).unwrap();
        self.azure.put_document(document).unwrap();
    }

    /// Changes the capacity of a scale set.
    pub(in crate::providers::azure::inventory) fn resize(&self, set: &ResourceId, by: i64) {
        self.azure.change_document(set.as_str(), |set| {
            set["sku"]["capacity"] = json!(set["sku"]["capacity"].as_i64().unwrap() + by);
        });
    }

    /// Removes a machine, or a scale set with its instances.
    pub(in crate::providers::azure::inventory) fn remove(&self, id: &ResourceId) {
        assert!(self.azure.delete_document(id.as_str()), "{id}");
    }

    /// Changes a field, which is named by its JSON pointer.
    pub(in crate::providers::azure::inventory) fn change(&self, id: &ResourceId, field: &str, value: Value) {
        let change = |document: &mut Value| *document.pointer_mut(field).unwrap() = value;
        assert!(self.azure.change_document(id.as_str(), change), "{id}");
    }

    pub(in crate::providers::azure::inventory) fn power(&self, id: &ResourceId, state: &str) {
        let code = format!("PowerState/{state}");
        self.change(id, "/properties/instanceView/statuses", json!([{"code": code}]));
    }

    /// From now on lists of machines and scale sets have nothing in them.
    pub(in crate::providers::azure::inventory) fn empty_lists(&self) {
        for list in ["*/virtualMachines", "*/virtualMachineScaleSets"] {
            self.azure.add_fault(Fault::new(Effect::EmptyList).path(list));
        }
    }

    /// Returns ARM's response and the number of requests for it.
    fn respond(
        &self,
        read: &ArmRead,
        interfaces: &[ResourceId],
        settings: &InventorySettings,
    ) -> (Result<ArmReadPayload, ArmError>, usize) {
        let broken = self.broken.iter().find(|(is, _)| is(read)).map(|(_, class)| *class);
        if let Some(class) = self.down.or(broken) {
            return (Err(error(class)), 1);
        }
        self.azure.clear_requests();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let outcome = runtime.block_on(refresh::send(&self.client, read, interfaces, !settings.without_instance_view));
        let outcome = outcome.or_else(|error| super::super::empty_if_foreign(read, &settings.group, error));
        (outcome, self.azure.count(|_| true))
    }
}

/// The inventory without its shell: rounds of reads on an [`InventoryArmFixture`].
pub(in crate::providers::azure::inventory) struct InventoryDriver {
    pub(in crate::providers::azure::inventory) fixture: InventoryArmFixture,
    pub(in crate::providers::azure::inventory) snapshot: InventorySnapshot,
    pub(in crate::providers::azure::inventory) settings: InventorySettings,
    pub(in crate::providers::azure::inventory) now: Instant,
    /// Number of requests since the last call.
    pub(in crate::providers::azure::inventory) requests: usize,
    pub(in crate::providers::azure::inventory) reads: Vec<ArmRead>,
}

impl InventoryDriver {
    pub(in crate::providers::azure::inventory) fn new(fixture: InventoryArmFixture, settings: InventorySettings) -> Self {
        let now = Instant::now() + Duration::from_secs(100_000);
        Self { fixture, snapshot: InventorySnapshot::default(), settings, now, requests: 0, reads: Vec::new() }
    }

    /// Two uniform scale sets, a flexible one and machines of their own, ten each, all cached for a minute.
    pub(in crate::providers::azure::inventory) fn of_all_kinds() -> Self {
        let mut fixture = InventoryArmFixture::default();
        fixture.add_uniform("pool0", 10);
        fixture.add_uniform("pool1", 10);
        fixture.add_flex("flex", 10);
        (0..10).for_each(|number| fixture.add_standalone(&format!("node-{number}")));
        let mut driver = Self::new(fixture, settings(VmType::Vmss, true, false));
        driver.warm();
        driver.pass(Duration::from_secs(60));
        driver
    }

    pub(in crate::providers::azure::inventory) fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    pub(in crate::providers::azure::inventory) fn requests(&mut self) -> usize {
        std::mem::take(&mut self.requests)
    }

    pub(in crate::providers::azure::inventory) fn send(&mut self, read: ArmRead) {
        let entry = self.snapshot.entries.get(read.subject());
        let interfaces = entry.into_iter().flat_map(|entry| &entry.machine.interfaces);
        let interfaces: Vec<_> = interfaces.map(|interface| interface.id.clone()).collect();
        let (outcome, requests) = self.fixture.respond(&read, &interfaces, &self.settings);
        self.requests += requests;
        self.reads.push(read.clone());
        self.now += Duration::from_micros(1);
        self.snapshot.record(read, self.now, outcome);
    }

    fn evaluate_all<T>(
        &mut self,
        pending_queries: &[PendingQuery],
        evaluate_query: fn(&QueryView<'_>) -> QueryEvaluation<T>,
    ) -> Vec<T> {
        for _ in 0..super::MAX_ROUNDS {
            let mut needs: Vec<RequiredRead> = Vec::new();
            let mut results = Vec::new();
            for pending_query in pending_queries {
                match evaluate_query(&QueryView { pending_query, snapshot: &self.snapshot, settings: &self.settings }) {
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

    pub(in crate::providers::azure::inventory) fn lookup(
        &mut self,
        query: &[MachineQuery],
        freshness: Freshness,
    ) -> Vec<LookupResult> {
        self.pass(Duration::from_micros(1));
        let pending_query = |query: &MachineQuery| PendingQuery::new(query, &self.settings, self.now, freshness, false);
        let pending_queries: Vec<_> = query.iter().map(pending_query).collect();
        self.evaluate_all(&pending_queries, resolve::lookup)
    }

    pub(in crate::providers::azure::inventory) fn lookup_one(&mut self, query: &MachineQuery) -> LookupResult {
        self.lookup(std::slice::from_ref(query), Freshness::Cached).remove(0)
    }

    pub(in crate::providers::azure::inventory) fn check_existence_all(
        &mut self,
        query: &[MachineQuery],
        freshness: Duration,
    ) -> Vec<MachineExistence> {
        self.pass(Duration::from_micros(1));
        let pending_query =
            |query: &MachineQuery| PendingQuery::new(query, &self.settings, self.now, Freshness::Within(freshness), true);
        let pending_queries: Vec<_> = query.iter().map(pending_query).collect();
        self.evaluate_all(&pending_queries, existence::check_existence)
    }

    pub(in crate::providers::azure::inventory) fn check_existence(&mut self, query: &MachineQuery) -> MachineExistence {
        self.check_existence_all(std::slice::from_ref(query), Duration::ZERO).remove(0)
    }

    pub(in crate::providers::azure::inventory) fn second_look(&mut self, query: &MachineQuery) -> SecondLook {
        self.pass(Duration::from_micros(1));
        let freshness = Freshness::Within(Duration::from_secs(60));
        let pending_query = PendingQuery::new(query, &self.settings, self.now, freshness, false);
        self.evaluate_all(&[PendingQuery { second_look: true, ..pending_query }], second_look::evaluate).remove(0)
    }

    pub(in crate::providers::azure::inventory) fn warm(&mut self) {
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
pub(in crate::providers::azure::inventory) fn power_of(sighting: &MachineExistence) -> Option<&str> {
    match sighting {
        MachineExistence::Found(machine) => Arc::as_ref(machine).power_state.as_deref(),
        _ => None,
    }
}
