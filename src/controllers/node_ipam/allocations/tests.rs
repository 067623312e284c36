//! Allocations of Nodes: upstream's cases (`range_allocator_test.go`, `cloud_cidr_allocator_test.go`) and random histories.

use std::collections::HashMap;

use rand::{RngExt, SeedableRng, rngs::SmallRng};

use super::*;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn cluster(cidrs: &[(&str, u8)], services: &[&str]) -> Allocations {
    let cidrs: Vec<_> = cidrs.iter().map(|(cidr, prefix)| (net(cidr), *prefix)).collect();
    Allocations::new(&cidrs, &services.iter().map(|cidr| net(cidr)).collect::<Vec<_>>()).unwrap()
}

fn texts(cidrs: &[&str]) -> Vec<String> {
    cidrs.iter().map(|&cidr| cidr.to_owned()).collect()
}

fn reserve(allocations: &mut Allocations, uid: &str, prefixes: &[u8]) -> Result<String, AllocationError> {
    let (cidrs, _) = allocations.reserve(uid, prefixes)?;
    Ok(cidrs.iter().map(IpNet::to_string).collect::<Vec<_>>().join(","))
}

#[test]
fn cidrs_of_services_and_nodes_are_not_allocated() {
    for (clusters, services, allocated, prefixes, expected) in [
        (&[("127.123.234.0/24", 30)][..], &["127.123.234.0/26"][..], &[][..], &[30][..], "127.123.234.64/30"),
        (
            &[("127.123.234.0/24", 30), ("ace:cab:deca::/84", 98)],
            &["127.123.234.0/26"],
            &[],
            &[30, 98],
            "127.123.234.64/30,ace:cab:deca::/98",
        ),
        (
            &[("ace:cab:deca::/84", 98), ("127.123.234.0/24", 30)],
            &["127.123.234.0/26", "ace:cab:deca::/97"],
            &[],
            &[98, 30],
            "ace:cab:deca:0:0:0:8000:0/98,127.123.234.64/30",
        ),
        (
            &[("127.123.234.0/28", 30)],
            &["127.123.234.0/30"],
            &["127.123.234.4/30", "127.123.234.8/30"],
            &[30],
            "127.123.234.12/30",
        ),
        (&[("10.10.0.0/16", 24)], &["10.0.0.0/8"], &[], &[24], ""),
        (&[("127.123.234.0/24", 30)], &[], &[], &[30], "127.123.234.0/30"),
        (
            &[("127.123.234.0/24", 30)],
            &["127.123.234.0/26"],
            &["127.123.234.64/30", "127.123.234.68/30", "127.123.234.72/30", "127.123.234.80/30"],
            &[30],
            "127.123.234.76/30",
        ),
        (
            &[("127.123.234.0/8", 24), ("ace:cab:deca::/84", 98)],
            &["127.123.234.0/26"],
            &[],
            &[24, 98],
            "127.0.0.0/24,ace:cab:deca::/98",
        ),
        (&[("10.10.0.0/22", 24)], &[], &["10.10.0.0/24", "10.10.2.0/24"], &[24], "10.10.1.0/24"),
        (
            &[("127.123.234.0/28", 30)],
            &[],
            &["127.123.234.0/30", "127.123.234.4/30", "127.123.234.8/30", "127.123.234.12/30"],
            &[30],
            "",
        ),
    ] {
        let mut allocations = cluster(clusters, services);
        for (index, cidr) in allocated.iter().enumerate() {
            allocations.observe(&index.to_string(), &texts(&[cidr])).unwrap();
        }
        let expected = expected.split(',').filter(|cidr| !cidr.is_empty()).map(|cidr| net(cidr).to_string());
        let expected = expected.collect::<Vec<_>>().join(",");
        assert_eq!(reserve(&mut allocations, "new", prefixes).unwrap_or_default(), expected, "{clusters:?}");
    }
}

/// Upstream: `TestReleaseCIDRSuccess`, `TestNodeDeletionReleaseCIDR`.
#[test]
fn released_blocks_are_allocated_again() {
    let all = ["127.123.234.0/30", "127.123.234.4/30", "127.123.234.8/30", "127.123.234.12/30"];
    let mut full = cluster(&[("127.123.234.0/28", 30)], &[]);
    for cidr in all {
        full.observe(cidr, &texts(&[cidr])).unwrap();
    }
    assert!(reserve(&mut full, "node0", &[30]).is_err());
    assert!(full.release(all[1]));
    assert_eq!(reserve(&mut full, "node0", &[30]).unwrap(), all[1]);

    let mut recycling = cluster(&[("127.123.234.0/28", 30)], &[]);
    for cidr in &all[1..] {
        recycling.observe(cidr, &texts(&[cidr])).unwrap();
    }
    for _ in 0..2 {
        assert_eq!(reserve(&mut recycling, "node0", &[30]).unwrap(), all[0]);
        assert!(recycling.release("node0"));
    }

    // A Node keeps its block until it is released.
    for (is_there, expected) in [(true, "10.10.1.0/24"), (false, "10.10.0.0/24")] {
        let mut allocations = cluster(&[("10.10.0.0/16", 24)], &[]);
        allocations.observe("node0", &texts(&["10.10.0.0/24"])).unwrap();
        assert!(is_there || allocations.release("node0"));
        assert_eq!(reserve(&mut allocations, "next", &[24]).unwrap(), expected);
    }
}

#[test]
fn node_gets_blocks_of_all_families_or_none() {
    for clusters in
        [&[("10.10.0.0/22", 24), ("127.123.234.0/30", 30)][..], &[("127.123.234.0/30", 30), ("10.10.0.0/22", 24)]]
    {
        let prefixes: Vec<u8> = clusters.iter().map(|(_, prefix)| *prefix).collect();
        let mut allocations = cluster(clusters, &[]);
        reserve(&mut allocations, "first", &prefixes).unwrap();
        let allocated = allocations.usage();
        let Err(AllocationError::Exhausted { prefix: 30, .. }) = reserve(&mut allocations, "second", &prefixes) else {
            panic!("there is one /30 only")
        };
        assert_eq!(allocations.usage(), allocated);
        assert!(allocations.release("first"));
        assert!(allocations.usage().iter().all(|(_, allocated, _)| *allocated == 0));
        assert!(reserve(&mut allocations, "second", &prefixes).is_ok());
    }
}

#[test]
fn a_node_keeps_its_blocks_until_a_refusal_or_its_deletion() {
    let mut allocations = cluster(&[("10.0.0.0/23", 24)], &[]);
    let first = reserve(&mut allocations, "a", &[24]).unwrap();
    assert_eq!(reserve(&mut allocations, "a", &[24]).unwrap(), first, "requested again without a response");
    assert!(allocations.withdraw("a") && !allocations.withdraw("a"));
    let second = reserve(&mut allocations, "a", &[24]).unwrap();
    assert_ne!(second, first);
    allocations.confirm("a");
    assert!(!allocations.withdraw("a"), "the Node has it");
    assert!(allocations.release("a") && !allocations.release("a"));
}

#[test]
fn cidrs_from_another_allocator_release_ours() {
    let mut allocations = cluster(&[("10.0.0.0/22", 24)], &[]);
    reserve(&mut allocations, "a", &[24]).unwrap();
    assert_eq!(allocations.observe("a", &texts(&["10.0.2.0/24"])), Ok(true));
    assert_eq!(allocations.observe("a", &texts(&["10.0.2.0/24"])), Ok(false));
    assert_eq!(allocations.usage()[0].1, 1);
    assert_eq!(reserve(&mut allocations, "b", &[24]).unwrap(), "10.0.1.0/24");
    assert_eq!(allocations.observe("b", &texts(&["10.0.1.0/24"])), Ok(false));
    assert_eq!(reserve(&mut allocations, "c", &[24]).unwrap(), "10.0.3.0/24", "10.0.2.0/24 is a's");
}

#[test]
fn invalid_pod_cidrs_are_reported_once() {
    let mut allocations = cluster(&[("10.0.0.0/16", 24)], &[]);
    for (cidrs, expected) in [
        (&["nonsense"][..], ForeignCidrError::Garbage("nonsense".into())),
        (&["10.0.1.0/24", "fd00::/64"], ForeignCidrError::TooMany(2, 1)),
        (&["10.1.0.0/24"], ForeignCidrError::OutOfRange(net("10.1.0.0/24"))),
    ] {
        let uid = cidrs.join(",");
        assert_eq!(allocations.observe(&uid, &texts(cidrs)), Err(expected));
        assert_eq!(allocations.observe(&uid, &texts(cidrs)), Ok(false), "reported once");
    }
    assert_eq!(reserve(&mut allocations, "new", &[24]).unwrap(), "10.0.0.0/24");
    assert_eq!(
        reserve(&mut allocations, "newer", &[24]).unwrap(),
        "10.0.2.0/24",
        "10.0.1.0/24 is recorded, although its Node also has an invalid CIDR"
    );
}

#[test]
fn the_order_of_a_nodes_families_does_not_matter() {
    let mut allocations = cluster(&[("10.0.0.0/16", 24), ("fd00::/48", 64)], &[]);
    allocations.observe("n", &texts(&["fd00::/64", "10.0.0.0/24"])).unwrap();
    assert_eq!(reserve(&mut allocations, "m", &[24, 64]).unwrap(), "10.0.1.0/24,fd00:0:0:1::/64");
}

#[test]
fn finer_units_keep_services_and_other_nodes() {
    let mut allocations = cluster(&[("10.0.0.0/20", 24)], &["10.0.1.0/24"]);
    for (uid, prefix, expected) in [
        ("a", 24, "10.0.0.0/24"),
        ("b", 26, "10.0.2.0/26"),
        ("c", 24, "10.0.3.0/24"),
        ("d", 25, "10.0.4.0/25"),
        ("e", 26, "10.0.4.128/26"),
        ("f", 22, "10.0.8.0/22"),
        ("g", 23, "10.0.12.0/23"),
    ] {
        assert_eq!(reserve(&mut allocations, uid, &[prefix]).unwrap(), expected, "{uid}");
    }
}

/// Upstream: `TestUpdateSubnetMaskSize`: only a longer prefix makes the units finer.
#[test]
fn units_are_as_long_as_the_longest_prefix() {
    for (cidr, unit, requested, expected) in
        [("127.123.234.0/30", 32, 32, 32), ("127.123.234.0/30", 31, 32, 32), ("127.123.234.0/30", 31, 30, 31)]
    {
        let mut allocations = cluster(&[(cidr, unit)], &[]);
        reserve(&mut allocations, "n", &[requested]).unwrap();
        let prefix = net(cidr).prefix_len();
        assert_eq!(allocations.usage()[0].2, 1 << (expected - prefix), "{cidr} {unit} {requested}");
        assert_eq!(allocations.usage()[0].1, 1 << (expected - requested));
    }
}

#[test]
fn sizes_that_do_not_fit_the_cluster_are_refused() {
    for (clusters, prefixes) in [
        ([("10.0.0.0/16", 24), ("fd00::/48", 64)], [15, 64]),
        ([("10.0.0.0/16", 24), ("fd00::/48", 64)], [24, 65]),
        ([("10.240.0.0/16", 24), ("beef::/48", 64)], [15, 64]),
        ([("10.240.0.0/16", 24), ("beef::/48", 64)], [25, 45]),
    ] {
        let mut allocations = cluster(&clusters, &[]);
        assert!(matches!(reserve(&mut allocations, "a", &prefixes), Err(AllocationError::Prefix(_))), "{prefixes:?}");
        assert_eq!(allocations.usage().iter().map(|(_, allocated, _)| allocated).sum::<usize>(), 0);
        assert!(reserve(&mut allocations, "a", &[25, 64]).is_ok(), "the refused reservation left no blocks");
    }
}

#[test]
fn no_cidr_is_allocated_twice_in_random_histories() {
    for seed in 0..300 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mixed = random.random_bool(0.5);
        let mut allocations = cluster(&[("10.0.0.0/20", 24), ("fd00::/52", 64)], &["10.0.4.0/22", "fd00:0:0:0f00::/56"]);
        // CIDRs that Nodes have, whether or not the allocations have recorded them.
        let mut nodes: HashMap<String, Vec<IpNet>> = HashMap::new();
        for step in 0..200 {
            let uid = random.random_range(0..30).to_string();
            match random.random_range(0..10) {
                0..=5 if !nodes.contains_key(&uid) => {
                    let longer = if mixed { random.random_range(0..4) } else { 0 };
                    let Ok((cidrs, _)) = allocations.reserve(&uid, &[24 + longer, 64 + longer]) else { continue };
                    assert_free(&cidrs, &nodes, (seed, step));
                    match random.random_range(0..4) {
                        0 => drop(allocations.withdraw(&uid)),
                        // The write is not reported to the allocations.
                        1 => drop(nodes.insert(uid, cidrs)),
                        _ => {
                            allocations.confirm(&uid);
                            nodes.insert(uid, cidrs);
                        }
                    }
                }
                6 | 7 => {
                    nodes.remove(&uid);
                    allocations.release(&uid);
                }
                8 => {
                    // A new leader starts with the CIDRs of the Nodes.
                    allocations = cluster(&[("10.0.0.0/20", 24), ("fd00::/52", 64)], &["10.0.4.0/22", "fd00:0:0:0f00::/56"]);
                    for (uid, cidrs) in &nodes {
                        allocations.observe(uid, &cidrs.iter().map(IpNet::to_string).collect::<Vec<_>>()).unwrap();
                    }
                }
                _ => {
                    if let Some(cidrs) = nodes.get(&uid) {
                        allocations.observe(&uid, &cidrs.iter().map(IpNet::to_string).collect::<Vec<_>>()).unwrap();
                    }
                }
            }
        }
    }
}

fn assert_free(cidrs: &[IpNet], nodes: &HashMap<String, Vec<IpNet>>, case: (u64, u32)) {
    let services = [net("10.0.4.0/22"), net("fd00:0:0:0f00::/56")];
    for cidr in cidrs {
        let allocated = nodes.values().flatten().chain(&services);
        for other in allocated {
            assert!(!cidr.contains(other) && !other.contains(cidr), "{case:?}: {cidr} and {other}");
        }
    }
}

/// The kubelet that registers a Node may claim any pod CIDR.
#[test]
fn a_claim_of_the_whole_range_takes_no_blocks() {
    let masks = vec![(net("10.0.0.0/16"), 24)];
    let mut allocations = cluster(&[("10.0.0.0/16", 24)], &[]).limiting_claims(masks);
    let whole = ["10.0.0.0/16".to_owned()];
    assert_eq!(allocations.observe("evil", &whole), Err(ForeignCidrError::TooLarge(net("10.0.0.0/16"), 24)));
    assert_eq!(allocations.observe("evil", &whole), Ok(false), "reported once");
    assert_eq!(allocations.reserve("new", &[24]).unwrap().0, [net("10.0.0.0/24")]);
    assert_eq!(allocations.observe("older", &["10.0.16.0/20".to_owned()]), Ok(true), "the mask was another");
}

/// A Node from before the mask was raised keeps its pod CIDR and its route.
#[test]
fn other_nodes_get_addresses_of_oversized_claims_last() {
    let masks = vec![(net("10.0.0.0/19"), 26)];
    let mut allocations = cluster(&[("10.0.0.0/19", 26)], &[]).limiting_claims(masks);
    let claim = ["10.0.0.0/20".to_owned()];
    assert_eq!(allocations.observe("old", &claim), Err(ForeignCidrError::TooLarge(net("10.0.0.0/20"), 26)));
    let blocks: Vec<_> = (0..65).map(|index| reserve(&mut allocations, &format!("n{index}"), &[26]).unwrap()).collect();
    assert_eq!((blocks[0].as_str(), blocks[63].as_str()), ("10.0.16.0/26", "10.0.31.192/26"));
    assert_eq!(blocks[64], "10.0.0.0/26", "no others are free");
}
