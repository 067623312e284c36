use std::time::Duration;

use super::{super::tests::arm_fixture::*, *};
use crate::providers::azure::{config::VmType, model::LookupError};

/// One machine of each kind.
fn each() -> [(String, ResourceId); 3] {
    [(host("pool0", 3), instance("pool0", 3)), (host("flex", 3), flex("flex", 3)), ("node-3".to_owned(), vm("node-3"))]
}

fn is_unknown(sighting: &MachineExistence, part: &str) -> bool {
    matches!(sighting, MachineExistence::Unknown(reason) if reason.contains(part))
}

#[test]
fn a_machine_is_found_with_its_power_state() {
    for (name, id) in each() {
        for query in [with_id(&name, &id), named(&name)] {
            let mut driver = InventoryDriver::of_all_kinds();
            driver.requests();
            assert_eq!(power_of(&driver.check_existence(&query)), Some("running"), "{query:?}");
            assert_eq!(driver.requests(), 1);
            driver.fixture.power(&id, "deallocated");
            assert_eq!(power_of(&driver.check_existence(&query)), Some("deallocated"), "{query:?}");
            driver.requests();
            driver.check_existence_all(&[query], Duration::from_secs(30));
            assert_eq!(driver.requests(), 0, "one read serves all who ask soon");
        }
    }
}

#[test]
fn a_machine_that_was_deleted_is_gone() {
    for (name, id) in each() {
        let mut driver = InventoryDriver::of_all_kinds();
        driver.fixture.remove(&id);
        driver.requests();
        assert_eq!(driver.check_existence(&with_id(&name, &id)), MachineExistence::Gone, "{id}");
        let requests = driver.requests();
        assert!(requests <= 3, "{id}: {requests}");
        assert!(matches!(driver.lookup_one(&with_id(&name, &id)), Err(LookupError::NotListed(_))));
    }
}

#[test]
fn a_recreated_machine_is_found_with_its_new_id() {
    let mut driver = InventoryDriver::of_all_kinds();
    let before = driver.lookup_one(&named("node-3")).unwrap();
    driver.fixture.remove(&vm("node-3"));
    driver.fixture.add_standalone("node-3");
    let MachineExistence::Found(after) = driver.check_existence(&named("node-3")) else { panic!() };
    assert_ne!(before.vm_id, after.vm_id);
}

#[test]
fn no_failure_is_evidence() {
    for class in [
        ArmErrorClass::ParentNotFound,
        ArmErrorClass::Unauthorized,
        ArmErrorClass::Forbidden,
        ArmErrorClass::Throttled,
        ArmErrorClass::Busy,
        ArmErrorClass::Transient,
        ArmErrorClass::MalformedAnswer,
        ArmErrorClass::Invalid,
        ArmErrorClass::NotFound,
    ] {
        for (name, id) in each() {
            for query in [with_id(&name, &id), named(&name)] {
                let mut driver = InventoryDriver::of_all_kinds();
                driver.fixture.remove(&id);
                driver.fixture.down = Some(class);
                let sighting = driver.check_existence(&query);
                assert!(matches!(sighting, MachineExistence::Unknown(_)), "{class:?} {query:?}: {sighting:?}");
                let mut cold = InventoryDriver::new(
                    InventoryArmFixture { down: Some(class), ..InventoryArmFixture::default() },
                    driver.settings.clone(),
                );
                assert!(matches!(cold.check_existence(&query), MachineExistence::Unknown(_)), "{class:?} {query:?}");
            }
        }
    }
}

#[test]
fn a_group_that_turned_empty_is_not_believed() {
    for (name, id) in each() {
        let mut driver = InventoryDriver::of_all_kinds();
        driver.fixture = InventoryArmFixture::default();
        let sighting = driver.check_existence(&with_id(&name, &id));
        assert!(is_unknown(&sighting, "rg"), "{id}: {sighting:?}");
        let all: Vec<_> = driver.snapshot.entries.values().map(|entry| with_id("", &entry.machine.id)).collect();
        assert!(driver.check_existence_all(&all, Duration::ZERO).iter().all(|it| is_unknown(it, "")));
    }
}

#[test]
fn empty_lists_alone_prove_nothing() {
    let mut driver = InventoryDriver::of_all_kinds();
    driver.fixture.empty_lists();
    for (name, id) in each() {
        assert!(matches!(driver.check_existence(&with_id(&name, &id)), MachineExistence::Found(_)), "{id}");
    }
    driver.fixture.remove(&instance("pool0", 3));
    let sighting = driver.check_existence(&with_id("", &instance("pool0", 3)));
    assert!(is_unknown(&sighting, "does not list it"), "{sighting:?}");
}

#[test]
fn a_scale_set_that_was_deleted_takes_its_machines_with_it() {
    let mut driver = InventoryDriver::of_all_kinds();
    driver.fixture.remove(&set("pool0"));
    assert_eq!(driver.check_existence(&with_id("", &instance("pool0", 3))), MachineExistence::Gone);
    let all: Vec<_> = (0..10).map(|number| with_id("", &instance("pool0", number))).collect();
    assert!(driver.check_existence_all(&all, Duration::ZERO).iter().all(|it| *it == MachineExistence::Gone));
    driver.fixture.broken = vec![(|read| matches!(read, ArmRead::ScaleSet(_)), ArmErrorClass::Forbidden)];
    assert!(matches!(driver.check_existence(&with_id("", &instance("pool0", 3))), MachineExistence::Unknown(_)));
}

#[test]
fn a_parent_that_is_missing_and_listed_is_a_contradiction() {
    let mut driver = InventoryDriver::of_all_kinds();
    driver.fixture.broken =
        vec![(|read| matches!(read, ArmRead::Machine(_) | ArmRead::Machines(_)), ArmErrorClass::ParentNotFound)];
    assert!(is_unknown(&driver.check_existence(&with_id("", &instance("pool0", 3))), "but lists it"));
}

#[test]
fn many_machines_are_confirmed_with_lists() {
    for (sets, pages) in [(1, 2), (2, 3)] {
        let mut fixture = InventoryArmFixture::default();
        (0..sets).for_each(|number| fixture.add_uniform(&format!("pool{number}"), 100 * pages));
        let mut driver = InventoryDriver::new(fixture, settings(VmType::Vmss, false, true));
        driver.warm();
        driver.pass(Duration::from_secs(60));
        driver.requests();
        driver.fixture.remove(&instance("pool0", 77));
        let queries: Vec<_> = driver.snapshot.entries.values().map(|entry| with_id("", &entry.machine.id)).collect();
        let sightings = driver.check_existence_all(&queries, Duration::from_secs(10));
        assert_eq!(sightings.iter().filter(|it| **it == MachineExistence::Gone).count(), 1);
        let found = sightings.iter().filter(|it| matches!(it, MachineExistence::Found(_))).count();
        assert_eq!(found, sets * pages * 100 - 1);
        assert_eq!(driver.requests(), sets * pages + 1 + 1, "pages, the one that is missing, the scale sets");
    }
}

#[test]
fn a_node_without_id_that_fits_nowhere_is_unknown() {
    let mut driver = InventoryDriver::of_all_kinds();
    assert!(is_unknown(&driver.check_existence(&named("stranger")), "id"));
    driver.settings = settings(VmType::Vmss, false, true);
    assert!(is_unknown(&driver.check_existence(&named("stranger")), "names like this"));
    // Its number leads to an instance that does not exist, but the instance is only a guess.
    assert!(is_unknown(&driver.check_existence(&named(&host("pool0", 500))), "may be somewhere else"));
    driver.settings = settings(VmType::Standard, false, false);
    assert!(is_unknown(&driver.check_existence(&named("stranger")), "may be somewhere else"));
}

#[test]
fn a_node_without_id_is_gone_with_the_machine_of_its_name() {
    for (settings, name, id) in [
        (settings(VmType::Vmss, false, true), host("pool0", 3), instance("pool0", 3)),
        (settings(VmType::Standard, false, false), "node-3".to_owned(), vm("node-3")),
    ] {
        let mut driver = InventoryDriver::of_all_kinds();
        driver.settings = settings;
        driver.fixture.remove(&id);
        assert_eq!(driver.check_existence(&named(&name.to_uppercase())), MachineExistence::Gone, "{id}");
        driver.pass(Duration::from_secs(15));
        assert_eq!(driver.check_existence(&named(&name)), MachineExistence::Gone, "{id}: again");
    }
}

#[test]
fn a_machine_being_deleted_still_exists() {
    let mut driver = InventoryDriver::of_all_kinds();
    driver.fixture.change(&vm("node-3"), "/properties/provisioningState", "Deleting".into());
    let MachineExistence::Found(machine) = driver.check_existence(&named("node-3")) else { panic!() };
    assert_eq!(machine.provisioning_state, "Deleting");
}

#[test]
fn an_outdated_power_state_is_not_reported() {
    let mut driver = InventoryDriver::of_all_kinds();
    let queries: Vec<_> = (0..10).map(|number| with_id(&host("pool0", number), &instance("pool0", number))).collect();
    driver.fixture.power(&instance("pool0", 3), "deallocated");
    assert_eq!(power_of(&driver.check_existence(&queries[3])), Some("deallocated"), "read with its instance view");
    driver.fixture.power(&instance("pool0", 3), "running");
    driver.settings.without_instance_view = true;
    driver.pass(Duration::from_secs(60));
    let sightings = driver.check_existence_all(&queries, Duration::ZERO);
    assert!(matches!(&sightings[3], MachineExistence::Found(_)) && power_of(&sightings[3]).is_none(), "{:?}", sightings[3]);
}
