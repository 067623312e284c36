use super::{
    super::{Freshness, tests::arm_fixture::*},
    *,
};
use crate::providers::azure::{
    config::VmType,
    model::{ArmErrorClass, MachineQuery},
};

fn uniform(sets: usize, each: usize) -> InventoryDriver {
    let mut fixture = InventoryArmFixture::default();
    (0..sets).for_each(|number| fixture.add_uniform(&format!("pool{number}"), each));
    InventoryDriver::new(fixture, settings(VmType::Vmss, false, false))
}

fn hosts(sets: usize, each: usize) -> Vec<MachineQuery> {
    (0..sets).flat_map(|set| (0..each).map(move |number| named(&host(&format!("pool{set}"), number)))).collect()
}

/// Returns a driver that has looked up all machines.
fn warmed(sets: usize, each: usize) -> InventoryDriver {
    let mut driver = uniform(sets, each);
    assert!(driver.lookup(&hosts(sets, each), Freshness::Cached).iter().all(Result::is_ok));
    driver.requests();
    driver
}

/// Numbers of scale sets, and of pages that the list of each has.
const SIZES: [(usize, usize); 2] = [(1, 2), (2, 3)];

#[test]
fn single_lookups_cost_at_most_twice_as_much() {
    for (sets, pages) in SIZES {
        let mut driver = uniform(sets, 100 * pages);
        for query in hosts(sets, 100 * pages) {
            assert!(driver.lookup_one(&query).is_ok());
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
        for queries in [hosts(sets, each), ids] {
            let mut fixture = InventoryArmFixture::default();
            (0..sets).for_each(|number| fixture.add_flex(&format!("pool{number}"), each));
            let mut driver = InventoryDriver::new(fixture, settings.clone());
            assert!(driver.lookup(&queries, Freshness::Cached).iter().all(Result::is_ok));
            assert_eq!(driver.requests(), 1 + 2 * sets * pages);
        }
    }
}

/// Returns an inventory of `count` standalone machines, and the queries for them.
fn standalone(settings: InventorySettings, count: usize) -> (InventoryDriver, Vec<MachineQuery>) {
    let mut fixture = InventoryArmFixture::default();
    (0..count).for_each(|number| fixture.add_standalone(&format!("node-{number}")));
    let queries = (0..count).map(|number| named(&format!("node-{number}"))).collect();
    (InventoryDriver::new(fixture, settings), queries)
}

#[test]
fn a_new_node_costs_at_most_five_reads() {
    let mut driver = warmed(2, 300);
    driver.pass(Duration::from_secs(120));
    driver.fixture.add_machine(&instance("pool1", 300), &host("pool1", 300), Some(&set("pool1")));
    let machine = driver.lookup_one(&named(&host("pool1", 300).to_uppercase())).unwrap();
    assert_eq!((machine.id.clone(), machine.interfaces.len()), (instance("pool1", 300), 1));
    assert_eq!(driver.requests(), 2);

    driver.fixture.add_standalone("bastion");
    assert!(driver.lookup_one(&named("bastion")).is_ok());
    let requests = driver.requests();
    assert!(requests <= 5, "{requests}");
}

#[test]
fn a_machine_created_after_the_list_is_found_by_a_single_read() {
    let mut driver = warmed(1, 100);
    driver.fixture.add_machine(&instance("pool0", 100), &host("pool0", 100), Some(&set("pool0")));
    driver.pass(Duration::from_secs(4));
    assert!(driver.lookup_one(&named(&host("pool0", 100))).is_ok());
    assert_eq!(driver.requests(), 2, "the machine and its interfaces");
}

#[test]
fn a_new_flexible_or_standalone_machine_costs_two_reads() {
    let mut fixture = InventoryArmFixture::default();
    fixture.add_flex("pool0", 300);
    let flexible = InventoryDriver::new(fixture, settings(VmType::VmssFlex, false, false));
    let (standard, nodes) = standalone(settings(VmType::Standard, false, false), 300);
    let new_machine = (vm("pool0_ffffffff"), host("pool0", 300), Some(set("pool0")));
    for (mut driver, cached, (id, host, set)) in
        [(flexible, hosts(1, 300), new_machine), (standard, nodes, (vm("node-300"), "node-300".to_owned(), None))]
    {
        driver.lookup(&cached, Freshness::Cached);
        driver.requests();
        driver.pass(Duration::from_secs(120));
        driver.fixture.add_machine(&id, &host, set.as_ref());
        let query = if set.is_some() { with_id(&host, &id) } else { named(&host) };
        assert!(driver.lookup_one(&query).is_ok());
        assert_eq!(driver.requests(), 2, "{id}");
    }
}

#[test]
fn a_new_scale_set_is_noticed() {
    let mut driver = warmed(1, 10);
    driver.pass(Duration::from_secs(120));
    driver.fixture.add_uniform("fresh", 1);
    assert!(driver.lookup_one(&named(&host("fresh", 0))).is_ok());
    assert!(driver.requests() <= 5);
}

#[test]
fn a_missing_node_is_not_searched_for_on_each_lookup() {
    for settings in
        [settings(VmType::Vmss, true, false), settings(VmType::Standard, false, false), settings(VmType::Vmss, false, true)]
    {
        let mut driver = uniform(2, 300);
        driver.settings = settings;
        for name in [host("pool1", 9999), "elsewhere".to_owned(), "x".to_owned(), String::new()] {
            let first = driver.lookup_one(&named(&name));
            assert!(matches!(&first, Err(LookupError::NotListed(reason)) if reason.contains("rg")), "{name}: {first:?}");
            assert!(driver.requests() <= 5);
            for _ in 0..5 {
                driver.pass(Duration::from_secs(5));
                assert_eq!(driver.lookup_one(&named(&name)), first);
            }
            assert!(driver.requests() <= 1, "{name}: new scale sets are looked for now and then");
            driver.pass(Duration::from_secs(60));
            driver.lookup_one(&named(&name)).unwrap_err();
            assert!((1..=4).contains(&driver.requests()));
        }
        let first = driver.lookup(&[named(&host("pool1", 9999))], Freshness::Within(Duration::ZERO));
        assert!(first[0].is_err() && driver.requests() > 0, "asked fresh, it is looked for again");
    }
}

#[test]
fn cached_machines_are_returned_while_arm_fails() {
    for class in [
        ArmErrorClass::Transient,
        ArmErrorClass::Forbidden,
        ArmErrorClass::Unauthorized,
        ArmErrorClass::Throttled,
        ArmErrorClass::MalformedAnswer,
        ArmErrorClass::ParentNotFound,
    ] {
        let mut driver = warmed(1, 300);
        driver.fixture.down = Some(class);
        driver.pass(Duration::from_secs(3600));
        driver.requests();
        assert!(driver.lookup(&hosts(1, 300), Freshness::Cached).iter().all(Result::is_ok), "{class:?}");
        assert!(driver.requests() <= 303);
        driver.lookup(&hosts(1, 300), Freshness::Cached);
        assert_eq!(driver.requests(), 0, "a failure is not repeated at once");
        let current = driver.lookup(&hosts(1, 3), Freshness::Within(Duration::from_secs(60)));
        assert!(current.iter().all(|it| matches!(it, Err(LookupError::Arm(error)) if error.class == class)), "{class:?}");
        let unlisted = driver.lookup_one(&named(&host("pool0", 5000)));
        assert!(matches!(unlisted, Err(LookupError::Arm(_))), "{class:?}: {unlisted:?}");
        driver.fixture.down = None;
        driver.pass(Duration::from_secs(10));
        driver.requests();
        assert!(driver.lookup(&hosts(1, 300), Freshness::Cached).iter().all(Result::is_ok));
        assert!(driver.requests() <= 7, "recovers by itself");
        driver.warm();
        assert!(driver.snapshot.failures.iter().all(|(read, _)| !read.is_list()));
    }
}

#[test]
fn a_machine_that_a_list_lacks_is_read_alone() {
    let mut driver = warmed(1, 100);
    driver.fixture.remove(&instance("pool0", 7));
    driver.pass(Duration::from_secs(601));
    let found = driver.lookup(&hosts(1, 100), Freshness::Cached);
    assert_eq!(found.iter().filter(|it| it.is_ok()).count(), 99);
    assert!(matches!(found[7], Err(LookupError::NotListed(_))));
    assert!(driver.reads.contains(&ArmRead::Machine(instance("pool0", 7))));
}

#[test]
fn names_may_differ_from_numbers() {
    let mut fixture = InventoryArmFixture::default();
    fixture.add_set("pool0", false);
    for number in 0..5 {
        fixture.add_machine(&instance("pool0", number), &host("pool0", number + 1), Some(&set("pool0")));
    }
    let mut driver = InventoryDriver::new(fixture, settings(VmType::Vmss, false, true));
    for number in 0..5 {
        assert_eq!(driver.lookup_one(&named(&host("pool0", number + 1))).unwrap().id, instance("pool0", number));
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
        driver.lookup(&hosts(1, 100), Freshness::Cached);
        assert!(driver.requests() >= 2);
    }
}

#[test]
fn a_group_that_a_label_names_is_read() {
    let mut driver = uniform(1, 1);
    let query = MachineQuery { resource_group: Some("Other".to_owned()), ..named("guest") };
    driver.lookup_one(&query).unwrap_err();
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
    assert!(driver.lookup(&hosts(2, 300), Freshness::Cached).iter().all(Result::is_ok));
    assert!(driver.lookup_one(&named("bastion")).is_ok());
    driver.warm();
    assert_eq!(driver.requests(), 0);
    driver.pass(Duration::from_secs(901));
    driver.warm();
    assert_eq!(driver.requests(), 15);
}

#[test]
fn a_machine_without_address_is_an_error_and_reread_soon() {
    for (name, id, settings) in [
        (host("pool0", 3), instance("pool0", 3), settings(VmType::Vmss, false, true)),
        ("node-3".to_owned(), vm("node-3"), settings(VmType::Standard, false, false)),
    ] {
        let mut fixture = InventoryArmFixture::default();
        fixture.add_uniform("pool0", 5);
        (0..5).for_each(|number| fixture.add_standalone(&format!("node-{number}")));
        let network = fixture.azure.document(id.as_str()).unwrap()["properties"]["networkProfile"].clone();
        fixture.change(&id, "/properties/networkProfile", serde_json::json!({}));
        let mut driver = InventoryDriver::new(fixture, settings);
        driver.warm();
        assert!(matches!(driver.lookup_one(&named(&name)), Err(LookupError::NoAddress(_))), "{id}");
        driver.fixture.change(&id, "/properties/networkProfile", network);
        driver.requests();
        driver.pass(Duration::from_secs(16));
        assert!(driver.lookup_one(&named(&name)).is_ok(), "{id}");
        assert!(driver.requests() <= 2);
    }
}
