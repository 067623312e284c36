//! The traits over machines kept in memory.

#[cfg(feature = "sandbox")]
mod simulator;

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
};

use k8s_openapi::api::core::v1::Node;

use super::{
    fixtures::{scale_set_instance, standalone},
    *,
};
use crate::{
    cloud_provider::{CloudError, Existence, InstanceMetadata, InstancesV2},
    providers::azure::{
        config::VmType,
        node::{LABEL_MANAGED, LABEL_RESOURCE_GROUP, fixtures::node},
    },
};

const OLD: &str = "11111111-2222-3333-4444-555555555555";
const NEW: &str = "99999999-8888-7777-6666-555555555555";

const OTHER: &str = "77777777-8888-7777-6666-555555555555";

/// Machines by node name: as a list showed them, and as they are now.
#[derive(Default)]
struct Memory {
    listed: BTreeMap<String, Machine>,
    now: BTreeMap<String, Machine>,
    /// Names whose direct read fails.
    failing: Vec<String>,
    asked: Mutex<Vec<(usize, Freshness)>>,
    asked_directly: AtomicUsize,
}

impl Memory {
    fn of(machines: impl IntoIterator<Item = (&'static str, Machine)>) -> Self {
        let now: BTreeMap<_, _> = machines.into_iter().map(|(name, machine)| (name.to_owned(), machine)).collect();
        Self { listed: now.clone(), now, ..Self::default() }
    }

    fn find<'a>(from: &'a BTreeMap<String, Machine>, wanted: &MachineQuery) -> Option<&'a Machine> {
        match &wanted.id {
            Some(id) => from.values().find(|machine| machine.id == *id),
            None => from.get(&wanted.node_name),
        }
    }

    fn asked(&self) -> Vec<(usize, Freshness)> {
        self.asked.lock().clone()
    }
}

#[async_trait]
impl MachineLookup for Memory {
    async fn look_up(&self, wanted: &[MachineQuery], freshness: Freshness) -> Vec<Result<Arc<Machine>, LookupError>> {
        self.asked.lock().push((wanted.len(), freshness));
        let from = if freshness == Freshness::Cached { &self.listed } else { &self.now };
        let find = |wanted: &MachineQuery| match Self::find(from, wanted) {
            Some(machine) => Ok(Arc::new(machine.clone())),
            None => Err(LookupError::NotListed(wanted.node_name.clone())),
        };
        wanted.iter().map(find).collect()
    }

    async fn check_existence(&self, wanted: &MachineQuery, freshness: Duration) -> MachineExistence {
        assert!(freshness < Duration::from_secs(5), "two periods of the node-lifecycle controller need two reads");
        match Self::find(&self.now, wanted) {
            _ if self.failing.contains(&wanted.node_name) => MachineExistence::Unknown("HTTP 500".into()),
            Some(machine) => MachineExistence::Found(Arc::new(machine.clone())),
            None => MachineExistence::Gone,
        }
    }

    async fn check_existence_directly(&self, wanted: &MachineQuery, freshness: Duration) -> MachineExistence {
        self.asked_directly.fetch_add(1, Ordering::Relaxed);
        self.check_existence(wanted, freshness).await
    }

    async fn second_look(&self, _: &MachineQuery, _: Duration) -> SecondLook {
        SecondLook::Agrees
    }

    async fn is_unlisted(&self, wanted: &MachineQuery, _: Duration) -> Result<bool, String> {
        Ok(Self::find(&self.now, wanted).is_none())
    }
}

fn instances(memory: Memory) -> (AzureInstances, Arc<Memory>) {
    let memory = Arc::new(memory);
    let settings = InstanceSettings {
        topology: TopologyRules { vm_type: VmType::Vmss, fault_domain_label: false },
        grace: Duration::from_secs(60),
    };
    let clock = Clock::manual("2026-01-01T00:10:00Z".parse().unwrap());
    (
        AzureInstances {
            lookup: Arc::clone(&memory) as Arc<dyn MachineLookup>,
            settings,
            clock,
            uuid_evidence: Arc::default(),
        },
        memory,
    )
}

fn nodes(nodes: Vec<Node>) -> Vec<Arc<Node>> {
    nodes.into_iter().map(Arc::new).collect()
}

fn azure_id(machine: &Machine) -> String {
    format!("azure://{}", machine.id)
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_one_look_up() {
    let machines = [("vmss000000", scale_set_instance("vmss", 0)), ("vmss000001", scale_set_instance("vmss", 1))];
    let (instances, memory) = instances(Memory::of(machines));
    let batch = nodes(vec![
        node("vmss000001").build(),
        node("on-prem").label(LABEL_MANAGED, "false").provider_id("kind://on-prem").build(),
        node("missing").build(),
        node("vmss000000").build(),
    ]);
    let told = instances.instance_metadata_batch(&batch).await;
    let id = |at: usize| told[at].as_ref().unwrap().as_ref().unwrap().provider_id.clone();
    assert!(id(0).ends_with("/my-rg/providers/Microsoft.Compute/virtualMachineScaleSets/vmss/virtualMachines/1"));
    assert!(id(3).ends_with("/virtualMachines/0"));
    let unmanaged = InstanceMetadata { is_unmanaged: true, ..InstanceMetadata::default() };
    assert_eq!(told[1], Ok(Some(unmanaged)), "unmanaged: nothing is told, and that is no error");
    assert!(
        matches!(&told[2], Err(CloudError::Failed(why)) if why.contains("instance not found: missing")),
        "{:?}",
        told[2]
    );
    assert_eq!(memory.asked(), [(3, Freshness::Cached)]);
    assert_eq!(instances.instance_metadata(&batch[0]).await, told[0]);
}

#[tokio::test(start_paused = true)]
async fn a_machine_made_anew_is_asked_for_again() {
    let old = Machine { vm_id: OLD.into(), ..standalone("vm-1") };
    let mut new = Machine { vm_id: NEW.into(), ..standalone("vm-1") };
    new.interfaces[0].ip_configurations[0].private_address = Some("10.0.0.99".into());
    let mut memory = Memory::of([("vm-1", new), ("vm-2", Machine { vm_id: OTHER.into(), ..standalone("vm-2") })]);
    memory.listed.insert("vm-1".into(), old);
    let (instances, memory) = instances(memory);
    let batch = nodes(vec![node("vm-2").system_uuid(OTHER).build(), node("vm-1").system_uuid(NEW).build()]);
    let told = instances.instance_metadata_batch(&batch).await;
    let first_address = |at: usize| told[at].as_ref().unwrap().as_ref().unwrap().node_addresses[0].address.clone();
    assert_eq!(first_address(1), "10.0.0.99");
    assert_eq!(first_address(0), "10.0.0.4");
    assert_eq!(memory.asked(), [(2, Freshness::Cached), (1, Freshness::Within(EXISTENCE_MAX_AGE))]);
}

#[tokio::test(start_paused = true)]
async fn existence_by_what_is_seen_directly() {
    let machine = Machine { vm_id: NEW.into(), ..standalone("vm-1") };
    let mut memory = Memory::of([("vm-1", machine.clone())]);
    memory.failing.push("failing".into());
    for name in ["vm-2", "vm-3", "vm-4"] {
        memory.now.insert(name.into(), Machine { vm_id: OTHER.into(), ..standalone(name) });
    }
    let (instances, memory) = instances(memory);
    let gone_id = azure_id(&standalone("vm-9"));
    for name in ["vm-2", "vm-3", "vm-4"] {
        assert_eq!(instances.existence(&node(name).system_uuid(OTHER).build()).await, Existence::Exists);
    }
    for (builder, expected) in [
        (node("vm-1"), Existence::Exists),
        (node("vm-1").provider_id(&azure_id(&machine)).system_uuid(NEW), Existence::Exists),
        (node("vm-1").provider_id(&azure_id(&machine)).system_uuid(OLD), Existence::Gone),
        (node("vm-9").provider_id(&gone_id), Existence::Gone),
        (node("vm-9"), Existence::Gone),
        (node("vm-9").provider_id(&gone_id).created("2026-01-01T00:09:30Z"), Existence::Exists),
        (node("vm-9").provider_id(&gone_id).label(LABEL_MANAGED, "false"), Existence::Exists),
        (node("vm-9").provider_id("kind://vm-9"), Existence::Exists),
        (node("failing"), Existence::Unknown("HTTP 500".into())),
        (node("failing").label(LABEL_RESOURCE_GROUP, "other"), Existence::Unknown("HTTP 500".into())),
    ] {
        let node = builder.build();
        let existence = instances.existence(&node).await;
        assert_eq!(existence, expected, "{node:?}");
        let exists = match expected {
            Existence::Exists => Ok(true),
            Existence::Gone => Ok(false),
            Existence::Unknown(why) => Err(CloudError::Failed(why)),
        };
        assert_eq!(instances.instance_exists(&node).await, exists);
    }
    assert_eq!(memory.asked_directly.load(Ordering::Relaxed), 2, "another machine is believed only when read by itself");
    let unreadable = node("vm-1").provider_id(&gone_id.replace("virtualMachines", "disks")).build();
    assert!(matches!(instances.existence(&unreadable).await, Existence::Unknown(_)));
    assert!(instances.instance_shutdown(&unreadable).await.is_err());
}

/// Firmware of this size tells something else than `vmId`. A kubelet learns its machine's from the metadata service and writes it.
#[tokio::test(start_paused = true)]
async fn a_lying_kubelet_cannot_have_the_nodes_of_others_deleted() {
    let names = ["vm-1", "vm-2", "vm-3", "vm-4"];
    let machine = |name| Machine { vm_id: NEW.into(), ..standalone(name) };
    let (instances, _) = instances(Memory::of(names.map(|name| (name, machine(name)))));
    let liar = node("vm-4").system_uuid(NEW).build();
    for _ in 0..10 {
        assert_eq!(instances.existence(&liar).await, Existence::Exists);
        assert!(instances.instance_metadata(&liar).await.is_ok());
        for name in ["vm-1", "vm-2", "vm-3"] {
            let honest = node(name).system_uuid(OLD).build();
            assert_eq!(instances.existence(&honest).await, Existence::Exists, "{name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_is_read_from_the_same_look() {
    let stopped = Machine { power_state: Some("deallocated".into()), ..standalone("vm-1") };
    let mut memory = Memory::of([("vm-1", stopped.clone()), ("vm-2", standalone("vm-2"))]);
    memory.listed.insert("vm-2".into(), Machine { power_state: Some("stopped".into()), ..standalone("vm-2") });
    memory.failing.push("failing".into());
    let (instances, _) = instances(memory);
    for (builder, expected) in [
        (node("vm-1"), Ok(true)),
        (node("any").provider_id(&azure_id(&stopped)), Ok(true)),
        (node("vm-2"), Ok(false)),
        (node("vm-9"), Ok(false)),
        (node("vm-1").label(LABEL_MANAGED, "false"), Ok(false)),
        (node("vm-1").provider_id("kind://vm-1"), Ok(false)),
        (node("failing"), Err(CloudError::failed("HTTP 500"))),
    ] {
        let node = builder.build();
        assert_eq!(instances.instance_shutdown(&node).await, expected, "{node:?}");
    }
    assert_eq!(instances.instance_runs(&node("vm-1").build()).await, Ok(false), "it is deallocated");
    assert!(instances.instance_runs(&node("failing").build()).await.is_err());
}
