use super::{super::tests::arm_fixture::*, *};

#[test]
fn single_reads_until_the_list_is_cheaper() {
    let table = [
        // singles, spent, items, list
        (1, 0, Some(1000), false),
        (3, 0, Some(1000), false),
        (9, 0, Some(1000), false),
        (10, 0, Some(1000), true),
        (300, 0, Some(1000), true),
        (1, 9, Some(1000), true),
        (1, 0, Some(100), true),
        (1, 0, Some(101), false),
        (1, 0, Some(0), true),
        (1, 0, None, false),
        (10, 0, None, true),
    ];
    for (singles, spent, items, list) in table {
        assert_eq!(list_pays(singles, spent, items), list, "{singles} {spent} {items:?}");
    }
}

#[test]
fn each_read_is_sent_once() {
    let needs = vec![
        RequiredRead::Machine(vm("a"), None),
        RequiredRead::Machine(vm("A"), None),
        RequiredRead::Read(ArmRead::Machine(vm("a"))),
    ];
    assert_eq!(plan(&needs, &InventorySnapshot::default(), Instant::now()), [ArmRead::Machine(vm("a"))]);
}

#[test]
fn a_list_that_is_read_anyway_serves_single_needs() {
    let scope = ListScope::Uniform(set("pool"));
    let needs = vec![
        RequiredRead::Machine(instance("pool", 1), Some(scope.clone())),
        RequiredRead::Read(ArmRead::Machines(scope.clone())),
    ];
    assert_eq!(plan(&needs, &InventorySnapshot::default(), Instant::now()), [ArmRead::Machines(scope)]);
}
