use std::time::Duration;

use super::{
    super::{MachineExistence, arm_fixture::*},
    *,
};
use crate::providers::azure::{arm::ArmErrorClass, config::VmType};

fn cluster() -> InventoryDriver {
    let mut world = InventoryArmFixture::default();
    world.add_uniform("pool0", 20);
    world.add_uniform("pool1", 20);
    world.add_flex("flex", 20);
    (0..20).for_each(|number| world.add_standalone(&format!("node-{number}")));
    let mut driver = InventoryDriver::new(world, settings(VmType::Vmss, true, false));
    driver.warm();
    driver.pass(Duration::from_secs(60));
    driver
}

fn flex(number: usize) -> ResourceId {
    vm(&format!("flex_{:08x}", number * 7919))
}

/// Some machines of each kind.
fn some() -> Vec<ResourceId> {
    (0..8).flat_map(|number| [instance("pool0", number), flex(number), vm(&format!("node-{number}"))]).collect()
}

/// Removes a machine, as a scale-in does.
fn scale_in(driver: &mut InventoryDriver, id: &ResourceId) {
    let record = driver.fixture.machines.remove(id).unwrap();
    let set = uniform_set_of(id).map(|set| set.to_string());
    let set = set.or_else(|| record["properties"]["virtualMachineScaleSet"]["id"].as_str().map(str::to_owned));
    if let Some(set) = set.map(|set| ResourceId::parse(&set).unwrap()) {
        let sku = &mut driver.fixture.sets.get_mut(&set).unwrap()["sku"]["capacity"];
        *sku = (sku.as_u64().unwrap() - 1).into();
    }
}

fn agrees(driver: &mut InventoryDriver, id: &ResourceId) -> bool {
    assert_eq!(driver.check_existence(&with_id("", id)), MachineExistence::Gone, "{id}");
    driver.second_look(&with_id("", id)) == SecondLook::Agrees
}

fn is_silent(seen: &SecondLook, part: &str) -> bool {
    matches!(seen, SecondLook::Silent(why) if why.contains(part))
}

#[test]
fn lists_agree_with_a_scale_in() {
    let mut driver = cluster();
    some().iter().for_each(|id| scale_in(&mut driver, id));
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
    let mut driver = cluster();
    (0..20).for_each(|number| scale_in(&mut driver, &instance("pool0", number)));
    assert!(agrees(&mut driver, &instance("pool0", 3)));
    for pool in ["pool0", "pool1"] {
        driver.fixture.sets.remove(&set(pool));
        driver.fixture.machines.retain(|id, _| uniform_set_of(id) != Some(set(pool)));
        driver.pass(Duration::from_secs(100));
        assert!(agrees(&mut driver, &instance(pool, 3)), "{pool}");
    }
}

#[test]
fn a_404_for_machines_that_are_listed_is_contradicted() {
    let mut driver = cluster();
    driver.fixture.broken = vec![(|read| matches!(read, ArmRead::Machine(_)), ArmErrorClass::NotFound)];
    for id in some().into_iter().filter(|id| id.name().starts_with("node-")) {
        // The group is known not to be empty, so that no list is read yet.
        let wanted = [with_id("", &id), with_id("", &instance("pool0", 3))];
        assert_eq!(driver.check_existence_all(&wanted, Duration::ZERO)[0], MachineExistence::Gone, "{id}");
        let seen = driver.second_look(&with_id("", &id));
        assert!(matches!(&seen, SecondLook::Contradicts(why) if why.contains(id.as_str())), "{id}: {seen:?}");
    }
}

#[test]
fn lists_that_lie_as_well_are_given_away_by_what_is_missing() {
    let mut driver = cluster();
    // Gone from ARM's view alone: the scale set is meant to have them.
    some().iter().for_each(|id| drop(driver.fixture.machines.remove(id)));
    for id in some().into_iter().filter(|id| !id.name().starts_with("node-")) {
        assert_eq!(driver.check_existence(&with_id("", &id)), MachineExistence::Gone, "{id}");
        let seen = driver.second_look(&with_id("", &id));
        assert!(is_silent(&seen, "should have 20 machines"), "{id}: {seen:?}");
    }
    driver.fixture.empty_lists = true;
    driver.pass(Duration::from_secs(100));
    for id in some() {
        assert_ne!(driver.second_look(&with_id("", &id)), SecondLook::Agrees, "{id}");
    }
}

#[test]
fn a_scale_set_that_does_not_tell_its_capacity_tells_nothing() {
    for sku in [serde_json::json!(null), serde_json::json!({}), serde_json::json!({"name": "Mix"})] {
        let mut driver = cluster();
        (0..20).for_each(|number| drop(driver.fixture.machines.remove(&instance("pool0", number))));
        driver.fixture.sets.get_mut(&set("pool0")).unwrap()["sku"] = sku.clone();
        driver.pass(Duration::from_secs(100));
        assert_eq!(driver.check_existence(&with_id("", &instance("pool0", 3))), MachineExistence::Gone, "{sku}");
        let seen = driver.second_look(&with_id("", &instance("pool0", 3)));
        assert!(is_silent(&seen, "its capacity is not told"), "{sku}: {seen:?}");
    }
}

#[test]
fn lists_that_fail_or_are_older_than_the_404_say_nothing() {
    for class in
        [ArmErrorClass::Forbidden, ArmErrorClass::NotFound, ArmErrorClass::ParentNotFound, ArmErrorClass::MalformedAnswer]
    {
        let mut driver = cluster();
        some().iter().for_each(|id| scale_in(&mut driver, id));
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
fn without_a_provider_id_nothing_is_said() {
    assert!(is_silent(&cluster().second_look(&named("node-3")), "provider id"));
    assert!(is_silent(&cluster().second_look(&with_id("", &vm("stranger"))), "not asked"));
}
