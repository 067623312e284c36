use std::time::Duration;

use super::{
    super::{MachineExistence, tests::arm_fixture::*},
    *,
};
use crate::providers::azure::model::ArmErrorClass;

/// Some machines of each kind.
fn some() -> Vec<ResourceId> {
    (0..8).flat_map(|number| [instance("pool0", number), flex("flex", number), vm(&format!("node-{number}"))]).collect()
}

/// Removes a machine, as a scale-in does.
fn scale_in(driver: &InventoryDriver, id: &ResourceId) {
    driver.fixture.remove(id);
    let flexible = id.name().starts_with("flex").then(|| set("flex"));
    uniform_set_of(id).or(flexible).iter().for_each(|set| driver.fixture.resize(set, -1));
}

fn agrees(driver: &mut InventoryDriver, id: &ResourceId) -> bool {
    assert_eq!(driver.check_existence(&with_id("", id)), MachineExistence::Gone, "{id}");
    driver.second_look(&with_id("", id)) == SecondLook::Agrees
}

fn is_silent(seen: &SecondLook, part: &str) -> bool {
    matches!(seen, SecondLook::Silent(reason) if reason.contains(part))
}

#[test]
fn lists_agree_with_a_scale_in() {
    let mut driver = InventoryDriver::of_all_kinds();
    some().iter().for_each(|id| scale_in(&driver, id));
    for id in some() {
        assert!(agrees(&mut driver, &id), "{id}");
    }
    driver.requests();
    for id in some() {
        driver.second_look(&with_id("", &id));
    }
    assert_eq!(driver.requests(), 0, "one round of lists serves all");
}

#[test]
fn a_pool_may_be_scaled_to_nothing_or_go_as_a_whole() {
    let mut driver = InventoryDriver::of_all_kinds();
    (0..10).for_each(|number| scale_in(&driver, &instance("pool0", number)));
    assert!(agrees(&mut driver, &instance("pool0", 3)));
    for pool in ["pool0", "pool1"] {
        driver.fixture.remove(&set(pool));
        driver.pass(Duration::from_secs(100));
        assert!(agrees(&mut driver, &instance(pool, 3)), "{pool}");
    }
}

#[test]
fn a_404_for_machines_that_are_listed_is_contradicted() {
    let mut driver = InventoryDriver::of_all_kinds();
    driver.fixture.broken = vec![(|read| matches!(read, ArmRead::Machine(_)), ArmErrorClass::NotFound)];
    for id in some().into_iter().filter(|id| id.name().starts_with("node-")) {
        // The group is known not to be empty, so that no list is read yet.
        let queries = [with_id("", &id), with_id("", &instance("pool0", 3))];
        assert_eq!(driver.check_existence_all(&queries, Duration::ZERO)[0], MachineExistence::Gone, "{id}");
        let seen = driver.second_look(&with_id("", &id));
        assert!(matches!(&seen, SecondLook::Contradicts(reason) if reason.contains(id.as_str())), "{id}: {seen:?}");
    }
}

#[test]
fn incomplete_lists_are_detected_by_the_capacity() {
    let mut driver = InventoryDriver::of_all_kinds();
    // Missing in ARM's responses only: the capacity of the scale set still includes them.
    some().iter().for_each(|id| driver.fixture.remove(id));
    for id in some().into_iter().filter(|id| !id.name().starts_with("node-")) {
        assert_eq!(driver.check_existence(&with_id("", &id)), MachineExistence::Gone, "{id}");
        let seen = driver.second_look(&with_id("", &id));
        assert!(is_silent(&seen, "should have 10 machines"), "{id}: {seen:?}");
    }
    driver.fixture.empty_lists();
    driver.pass(Duration::from_secs(100));
    for id in some() {
        assert_ne!(driver.second_look(&with_id("", &id)), SecondLook::Agrees, "{id}");
    }
}

#[test]
fn a_scale_set_without_capacity_proves_nothing() {
    for sku in [serde_json::json!(null), serde_json::json!({}), serde_json::json!({"name": "Mix"})] {
        let mut driver = InventoryDriver::of_all_kinds();
        (0..10).for_each(|number| driver.fixture.remove(&instance("pool0", number)));
        driver.fixture.change(&set("pool0"), "/sku", sku.clone());
        driver.pass(Duration::from_secs(100));
        assert_eq!(driver.check_existence(&with_id("", &instance("pool0", 3))), MachineExistence::Gone, "{sku}");
        let seen = driver.second_look(&with_id("", &instance("pool0", 3)));
        assert!(is_silent(&seen, "its capacity is not reported"), "{sku}: {seen:?}");
    }
}

#[test]
fn failed_or_outdated_lists_prove_nothing() {
    for class in
        [ArmErrorClass::Forbidden, ArmErrorClass::NotFound, ArmErrorClass::ParentNotFound, ArmErrorClass::MalformedAnswer]
    {
        let mut driver = InventoryDriver::of_all_kinds();
        some().iter().for_each(|id| scale_in(&driver, id));
        for id in some() {
            assert_eq!(driver.check_existence(&with_id("", &id)), MachineExistence::Gone, "{id}");
        }
        driver.fixture.down = Some(class);
        for id in some() {
            let seen = driver.second_look(&with_id("", &id));
            assert!(is_silent(&seen, ""), "{class:?} {id}: {seen:?}");
        }
    }
}

#[test]
fn without_a_provider_id_lists_prove_nothing() {
    assert!(is_silent(&InventoryDriver::of_all_kinds().second_look(&named("node-3")), "provider id"));
    assert!(is_silent(&InventoryDriver::of_all_kinds().second_look(&with_id("", &vm("stranger"))), "not asked"));
}
