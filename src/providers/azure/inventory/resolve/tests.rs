use super::{
    super::{Freshness, tests::arm_fixture::*},
    *,
};
use crate::providers::azure::{
    config::VmType,
    model::{ArmErrorClass, MachineQuery},
};

fn uniform(sets: usize, each: usize) -> InventoryDriver {
    let mut world = InventoryArmFixture::default();
    (0..sets).for_each(|number| world.add_uniform(&format!("pool{number}"), each));
    InventoryDriver::new(world, settings(VmType::Vmss, false, false))
}

fn hosts(sets: usize, each: usize) -> Vec<MachineQuery> {
    (0..sets).flat_map(|set| (0..each).map(move |number| named(&host(&format!("pool{set}"), number)))).collect()
}

/// All of them have been looked up.
fn known(sets: usize, each: usize) -> InventoryDriver {
    let mut driver = uniform(sets, each);
    assert!(driver.look_up(&hosts(sets, each), Freshness::Cached).iter().all(Result::is_ok));
    driver.requests();
    driver
}

/// Numbers of scale sets, and of pages that the list of each has.
const SIZES: [(usize, usize); 2] = [(1, 2), (2, 3)];

#[test]
fn one_by_one_costs_at_most_twice_as_much() {
    for (sets, pages) in SIZES {
        let mut driver = uniform(sets, 100 * pages);
        for wanted in hosts(sets, 100 * pages) {
            assert!(driver.one(&wanted).is_ok());
        }
        let requests = driver.requests();
        assert!(requests <= 2 * (1 + 2 * sets * pages), "{requests}");
    }
}

#[test]
fn flexible_machines_cost_their_pages_by_name_and_by_id() {
    let configured = [settings(VmType::VmssFlex, false, false), settings(VmType::Vmss, true, false)];
    for (settings, (sets, pages)) in configured.into_iter().zip(SIZES) {
        let each = 100 * pages;
        let ids = (0..sets).flat_map(|set| (0..each).map(move |number| flex(&format!("pool{set}"), number)));
        let ids: Vec<_> = ids.map(|id| with_id("", &id)).collect();
        for wanted in [hosts(sets, each), ids] {
            let mut world = InventoryArmFixture::default();
            (0..sets).for_each(|number| world.add_flex(&format!("pool{number}"), each));
            let mut driver = InventoryDriver::new(world, settings.clone());
            assert!(driver.look_up(&wanted, Freshness::Cached).iter().all(Result::is_ok));
            assert_eq!(driver.requests(), 1 + 2 * sets * pages);
        }
    }
}

/// An inventory of so many machines of their own, and all of them.
fn standalone(settings: InventorySettings, count: usize) -> (InventoryDriver, Vec<MachineQuery>) {
    let mut world = InventoryArmFixture::default();
    (0..count).for_each(|number| world.add_standalone(&format!("node-{number}")));
    let wanted = (0..count).map(|number| named(&format!("node-{number}"))).collect();
    (InventoryDriver::new(world, settings), wanted)
}

#[test]
fn one_further_node_costs_at_most_five_reads() {
    let mut driver = known(2, 300);
    driver.pass(Duration::from_secs(120));
    driver.fixture.add_machine(&instance("pool1", 300), &host("pool1", 300), Some(&set("pool1")));
    let machine = driver.one(&named(&host("pool1", 300).to_uppercase())).unwrap();
    assert_eq!((machine.id.clone(), machine.interfaces.len()), (instance("pool1", 300), 1));
    assert_eq!(driver.requests(), 2);

    driver.fixture.add_standalone("bastion");
    assert!(driver.one(&named("bastion")).is_ok());
    let requests = driver.requests();
    assert!(requests <= 5, "{requests}");
}

#[test]
fn a_machine_made_just_after_its_list_was_read_is_found_by_one_read() {
    let mut driver = known(1, 100);
    driver.fixture.add_machine(&instance("pool0", 100), &host("pool0", 100), Some(&set("pool0")));
    driver.pass(Duration::from_secs(4));
    assert!(driver.one(&named(&host("pool0", 100))).is_ok());
    assert_eq!(driver.requests(), 2, "the machine and its interfaces");
}

#[test]
fn one_further_machine_of_a_large_flexible_or_standard_cluster() {
    let mut world = InventoryArmFixture::default();
    world.add_flex("pool0", 300);
    let flexible = InventoryDriver::new(world, settings(VmType::VmssFlex, false, false));
    let (standard, nodes) = standalone(settings(VmType::Standard, false, false), 300);
    let fresh = (vm("pool0_ffffffff"), host("pool0", 300), Some(set("pool0")));
    for (mut driver, known, (id, host, set)) in
        [(flexible, hosts(1, 300), fresh), (standard, nodes, (vm("node-300"), "node-300".to_owned(), None))]
    {
        driver.look_up(&known, Freshness::Cached);
        driver.requests();
        driver.pass(Duration::from_secs(120));
        driver.fixture.add_machine(&id, &host, set.as_ref());
        let wanted = if set.is_some() { with_id(&host, &id) } else { named(&host) };
        assert!(driver.one(&wanted).is_ok());
        assert_eq!(driver.requests(), 2, "{id}");
    }
}

#[test]
fn a_new_scale_set_is_noticed() {
    let mut driver = known(1, 10);
    driver.pass(Duration::from_secs(120));
    driver.fixture.add_uniform("fresh", 1);
    assert!(driver.one(&named(&host("fresh", 0))).is_ok());
    assert!(driver.requests() <= 5);
}

#[test]
fn a_node_that_is_nowhere_is_not_looked_for_each_time() {
    for settings in
        [settings(VmType::Vmss, true, false), settings(VmType::Standard, false, false), settings(VmType::Vmss, false, true)]
    {
        let mut driver = uniform(2, 300);
        driver.settings = settings;
        for name in [host("pool1", 9999), "elsewhere".to_owned(), "x".to_owned(), String::new()] {
            let first = driver.one(&named(&name));
            assert!(matches!(&first, Err(LookupError::NotListed(why)) if why.contains("rg")), "{name}: {first:?}");
            assert!(driver.requests() <= 5);
            for _ in 0..5 {
                driver.pass(Duration::from_secs(5));
                assert_eq!(driver.one(&named(&name)), first);
            }
            assert!(driver.requests() <= 1, "{name}: new scale sets are looked for now and then");
            driver.pass(Duration::from_secs(60));
            driver.one(&named(&name)).unwrap_err();
            assert!((1..=4).contains(&driver.requests()));
        }
        let first = driver.look_up(&[named(&host("pool1", 9999))], Freshness::Within(Duration::ZERO));
        assert!(first[0].is_err() && driver.requests() > 0, "asked fresh, it is looked for again");
    }
}

#[test]
fn old_knowledge_serves_while_arm_fails() {
    for class in [
        ArmErrorClass::Transient,
        ArmErrorClass::Forbidden,
        ArmErrorClass::Unauthorized,
        ArmErrorClass::Throttled,
        ArmErrorClass::MalformedAnswer,
        ArmErrorClass::ParentNotFound,
    ] {
        let mut driver = known(1, 300);
        driver.fixture.down = Some(class);
        driver.pass(Duration::from_secs(3600));
        driver.requests();
        assert!(driver.look_up(&hosts(1, 300), Freshness::Cached).iter().all(Result::is_ok), "{class:?}");
        assert!(driver.requests() <= 303);
        driver.look_up(&hosts(1, 300), Freshness::Cached);
        assert_eq!(driver.requests(), 0, "a failure is not repeated at once");
        let fresh = driver.look_up(&hosts(1, 3), Freshness::Within(Duration::from_secs(60)));
        assert!(fresh.iter().all(|it| matches!(it, Err(LookupError::Arm(error)) if error.class == class)), "{class:?}");
        let unknown = driver.one(&named(&host("pool0", 5000)));
        assert!(matches!(unknown, Err(LookupError::Arm(_))), "{class:?}: {unknown:?}");
        driver.fixture.down = None;
        driver.pass(Duration::from_secs(10));
        driver.requests();
        assert!(driver.look_up(&hosts(1, 300), Freshness::Cached).iter().all(Result::is_ok));
        assert!(driver.requests() <= 7, "recovers by itself");
        driver.warm();
        assert!(driver.snapshot.failures.iter().all(|(read, _)| !read.is_list()));
    }
}

#[test]
fn a_machine_that_a_list_lacks_is_asked_for_itself() {
    let mut driver = known(1, 100);
    driver.fixture.remove(&instance("pool0", 7));
    driver.pass(Duration::from_secs(601));
    let found = driver.look_up(&hosts(1, 100), Freshness::Cached);
    assert_eq!(found.iter().filter(|it| it.is_ok()).count(), 99);
    assert!(matches!(found[7], Err(LookupError::NotListed(_))));
    assert!(driver.reads.contains(&ArmRead::Machine(instance("pool0", 7))));
}

#[test]
fn names_need_not_follow_numbers() {
    let mut world = InventoryArmFixture::default();
    world.add_set("pool0", false);
    for number in 0..5 {
        world.add_machine(&instance("pool0", number), &host("pool0", number + 1), Some(&set("pool0")));
    }
    let mut driver = InventoryDriver::new(world, settings(VmType::Vmss, false, true));
    for number in 0..5 {
        assert_eq!(driver.one(&named(&host("pool0", number + 1))).unwrap().id, instance("pool0", number));
    }
}

#[test]
fn without_cache_each_call_reads() {
    let mut driver = uniform(1, 100);
    driver.settings = InventorySettings {
        scale_sets_ttl: Duration::ZERO,
        instances_ttl: Duration::ZERO,
        absent_ttl: Duration::ZERO,
        ..driver.settings.clone()
    };
    for _ in 0..3 {
        driver.pass(Duration::from_secs(1));
        driver.look_up(&hosts(1, 100), Freshness::Cached);
        assert!(driver.requests() >= 2);
    }
}

#[test]
fn a_foreign_group_is_looked_at_when_the_label_says_so() {
    let mut driver = uniform(1, 1);
    let wanted = MachineQuery { resource_group: Some("Other".to_owned()), ..named("guest") };
    driver.one(&wanted).unwrap_err();
    let foreign = ResourceId::group_of(SUBSCRIPTION, "other");
    assert!(driver.reads.contains(&ArmRead::ScaleSets(foreign.clone())));
    assert!(driver.reads.iter().all(|read| group_of(read.subject()) == foreign || *read.subject() == foreign));
}

#[test]
fn warm_leaves_nothing_to_read() {
    let mut driver = uniform(2, 300);
    driver.fixture.add_standalone("bastion");
    driver.warm();
    assert_eq!(driver.requests(), 1 + 2 * 3 + 2 * 3 + 1 + 1);
    assert!(driver.look_up(&hosts(2, 300), Freshness::Cached).iter().all(Result::is_ok));
    assert!(driver.one(&named("bastion")).is_ok());
    driver.warm();
    assert_eq!(driver.requests(), 0);
    driver.pass(Duration::from_secs(901));
    driver.warm();
    assert_eq!(driver.requests(), 15);
}

#[test]
fn a_machine_without_address_is_not_there_yet_and_looked_at_again_soon() {
    for (name, id, settings) in [
        (host("pool0", 3), instance("pool0", 3), settings(VmType::Vmss, false, true)),
        ("node-3".to_owned(), vm("node-3"), settings(VmType::Standard, false, false)),
    ] {
        let mut world = InventoryArmFixture::default();
        world.add_uniform("pool0", 5);
        (0..5).for_each(|number| world.add_standalone(&format!("node-{number}")));
        let network = world.azure.document(id.as_str()).unwrap()["properties"]["networkProfile"].clone();
        world.change(&id, "/properties/networkProfile", serde_json::json!({}));
        let mut driver = InventoryDriver::new(world, settings);
        driver.warm();
        assert!(matches!(driver.one(&named(&name)), Err(LookupError::NoAddress(_))), "{id}");
        driver.fixture.change(&id, "/properties/networkProfile", network);
        driver.requests();
        driver.pass(Duration::from_secs(16));
        assert!(driver.one(&named(&name)).is_ok(), "{id}");
        assert!(driver.requests() <= 2);
    }
}
