use proptest::prelude::*;

use super::{super::tests::arm_fixture::*, *};
use crate::providers::azure::{config::VmType, model::MachineIpConfiguration};

fn machine(name: &str, vm_id: &str) -> Machine {
    let value = serde_json::json!({"id": vm(name).as_str(), "name": name, "properties": {"vmId": vm_id}});
    build::machine(serde_json::from_value(value).unwrap()).unwrap().0
}

fn list(machines: &[&str]) -> Result<ArmReadPayload, ArmError> {
    Ok(ArmReadPayload::Machines(machines.iter().map(|name| (machine(name, "1"), false)).collect()))
}

fn of_group() -> ArmRead {
    ArmRead::Machines(ListScope::Group(group()))
}

#[test]
fn an_outdated_response_changes_nothing() {
    let (start, mut snapshot) = (Instant::now(), InventorySnapshot::default());
    let at = |seconds| start + Duration::from_secs(seconds);
    snapshot.observe(machine("a", "new"), at(10));
    snapshot.record(of_group(), at(5), list(&["a"]));
    assert_eq!(snapshot.entries.get(&vm("a")).unwrap().machine.vm_id, "new");
    snapshot.note_absence(&vm("a"), at(6));
    assert!(snapshot.entries.contains_key(&vm("a")));
    snapshot.record(of_group(), at(7), list(&[]));
    assert_eq!(snapshot.entries.get(&vm("a")).unwrap().missing_since, None, "seen after the list was asked for");
    snapshot.record(of_group(), at(11), list(&[]));
    assert!(snapshot.entries.get(&vm("a")).unwrap().missing_since.is_some());
    snapshot.record(of_group(), at(12), list(&["a"]));
    assert_eq!(snapshot.entries.get(&vm("a")).unwrap().missing_since, None);
    assert_eq!(snapshot.lists().count(), 1);
}

#[test]
fn names_follow_machines() {
    let (now, mut snapshot) = (Instant::now(), InventorySnapshot::default());
    snapshot.observe(machine("Node", "1"), now);
    assert!(snapshot.by_name(&group(), "nODE").is_some());
    assert!(snapshot.by_name(&ResourceId::group_of(SUBSCRIPTION, "other"), "node").is_none());
    snapshot.note_absence(&vm("node"), now);
    assert!(snapshot.by_name(&group(), "node").is_none());
}

#[test]
fn interfaces_are_kept_while_they_stay_the_same() {
    let mut fixture = InventoryArmFixture::default();
    fixture.add_uniform("pool", 1);
    let mut driver = InventoryDriver::new(fixture, settings(VmType::Vmss, false, true));
    let (scope, id) = (ListScope::Uniform(set("pool")), instance("pool", 0));
    driver.send(ArmRead::Machines(scope.clone()));
    driver.send(ArmRead::Interfaces(scope.clone()));
    let interfaces_read_at = Some(driver.now);
    driver.send(ArmRead::Machines(scope.clone()));
    let entry = driver.snapshot.entries.get(&id).unwrap();
    assert_eq!((entry.read_at, entry.interfaces_read_at), (driver.now, interfaces_read_at));
    assert_eq!(entry.machine.interfaces[0].ip_configurations.len(), 1);
    let other = serde_json::json!([{"id": id.child("networkInterfaces", "other").as_str()}]);
    driver.fixture.change(&id, "/properties/networkProfile/networkInterfaces", other);
    driver.send(ArmRead::Machines(scope));
    assert_eq!(driver.snapshot.entries.get(&id).unwrap().interfaces_read_at, None);
}

#[test]
fn machines_are_small() {
    let mut driver = InventoryDriver::new(InventoryArmFixture::default(), settings(VmType::Vmss, false, true));
    driver.fixture.add_uniform("aks-nodepool1-12345678-vmss", 500);
    driver.warm();
    let text = |it: &Machine| {
        let parts = [&it.name, &it.computer_name, &it.vm_id, &it.vm_size, &it.location, &it.provisioning_state];
        let of_interface = size_of::<MachineInterface>() + 2 * size_of::<MachineIpConfiguration>() + 16;
        let interfaces: usize = it.interfaces.iter().map(|interface| interface.id.as_str().len() + of_interface).sum();
        parts.iter().map(|part| part.capacity() + 8).sum::<usize>() + it.id.as_str().len() + interfaces
    };
    let bytes: usize = driver
        .snapshot
        .entries
        .values()
        .map(|entry| text(&entry.machine) + size_of::<Machine>() + size_of::<MachineEntry>() + 200)
        .sum();
    assert!(bytes < (8 << 20) / 10, "{bytes}: 5,000 machines have 8 MiB");
    let mut sets = driver.snapshot.entries.values().filter_map(|entry| match &entry.machine.kind {
        MachineKind::ScaleSetInstance { scale_set, .. } => Some(scale_set.as_str().as_ptr()),
        _ => None,
    });
    let first = sets.next().unwrap();
    assert!(sets.all(|pointer| pointer == first), "the set's id is there once");
}

#[derive(Debug, Clone)]
enum Event {
    List(Vec<usize>),
    Fail,
    Single(usize),
    Absent(usize),
}

proptest! {
    /// Only a direct response removes a machine, whatever lists show; names and entries agree.
    #[test]
    fn only_direct_responses_remove_machines(events in proptest::collection::vec(prop_oneof![
        proptest::collection::vec(0usize..6, 0..6).prop_map(Event::List),
        Just(Event::Fail),
        (0usize..6).prop_map(Event::Single),
        (0usize..6).prop_map(Event::Absent),
    ], 0..40)) {
        let (mut now, mut snapshot) = (Instant::now(), InventorySnapshot::default());
        let mut expected = BTreeSet::new();
        let name = |number: usize| format!("n{number}");
        for event in events {
            now += Duration::from_secs(1);
            match event {
                Event::List(numbers) => {
                    let names: Vec<String> = numbers.iter().map(|number| name(*number)).collect();
                    snapshot.record(of_group(), now, list(&names.iter().map(String::as_str).collect::<Vec<_>>()));
                    expected.extend(numbers);
                }
                Event::Fail => snapshot.record(of_group(), now, Err(error(ArmErrorClass::Transient))),
                Event::Single(number) => {
                    snapshot.record(ArmRead::Machine(vm(&name(number))), now, list(&[&name(number)]));
                    expected.insert(number);
                }
                Event::Absent(number) => {
                    snapshot.record(ArmRead::Machine(vm(&name(number))), now, Err(error(ArmErrorClass::NotFound)));
                    expected.remove(&number);
                }
            }
            for number in 0..6 {
                prop_assert_eq!(snapshot.by_name(&group(), &name(number)).is_some(), expected.contains(&number));
                prop_assert_eq!(snapshot.entries.contains_key(&vm(&name(number))), expected.contains(&number));
            }
        }
    }
}
