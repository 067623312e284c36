//! Upstream's tables (`cidrset/cidr_set_test.go`), and random histories against a model without counts.

use rand::{RngExt, SeedableRng, rngs::SmallRng};

use super::*;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn set(cluster: &str, unit: u8) -> CidrSet {
    CidrSet::new(net(cluster), unit).unwrap()
}

fn next(set: &mut CidrSet, prefix: u8) -> Option<String> {
    set.allocate(prefix).map(|block| block.cidr.to_string())
}

#[test]
fn shorter_prefixes_take_aligned_runs() {
    let ten = &[8, 9, 10, 11, 12, 13, 14, 15][..];
    let odd = &[1, 3, 5, 7, 9, 11, 12, 13, 14][..];
    type Row = (&'static str, u8, u8, &'static [usize], Option<&'static str>);
    let table: &[Row] = &[
        ("127.123.234.0/30", 32, 31, &[0, 3], None),
        ("127.123.234.0/30", 32, 31, &[1, 2], None),
        ("127.123.234.0/30", 32, 31, &[2], None),
        ("127.123.234.0/30", 32, 31, &[2, 3], Some("127.123.234.2/31")),
        ("beef:1234::/30", 32, 31, &[2, 3], Some("beef:1236::/31")),
        ("127.123.234.0/30", 32, 31, &[0, 1, 2], Some("127.123.234.0/31")),
        ("beef:1234::/30", 32, 31, &[0, 1, 2], Some("beef:1234::/31")),
        ("10.244.0.0/16", 20, 17, ten, Some("10.244.128.0/17")),
        ("beef::/16", 20, 17, ten, Some("beef:8000::/17")),
        ("10.244.0.0/16", 20, 17, &ten[..7], None),
        ("10.244.0.0/16", 20, 19, odd, Some("10.244.192.0/19")),
        ("beef::/16", 20, 19, odd, Some("beef:c000::/19")),
        ("10.244.0.0/16", 20, 19, &[1, 3, 5, 7, 9, 11, 13, 14], None),
    ];
    for (cluster, unit, prefix, free, expected) in table {
        let mut set = set(cluster, *unit);
        set.occupy(&net(cluster));
        for index in *free {
            let block = set.block(*index, *unit).unwrap();
            set.release(&block);
        }
        assert_eq!(next(&mut set, *prefix).as_deref(), *expected, "{cluster} {free:?}");
    }
}

#[test]
fn finer_units_keep_allocations() {
    let table = [
        ("127.123.234.0/30", 31, 32, "127.123.234.0/31", [1, 1, 0, 0]),
        ("beef:1234::/30", 31, 32, "beef:1236::/31", [0, 0, 1, 1]),
    ];
    for (cluster, unit, finer, allocated, expected) in table {
        let mut coarse = set(cluster, unit);
        coarse.occupy(&net(allocated));
        let finer = coarse.in_units_of(finer, [&net(allocated)]).unwrap();
        assert_eq!((finer.holders.as_slice(), finer.allocated), (&expected[..], 2), "{cluster}");
        assert_eq!(finer.counts, coarse.counts, "nothing was allocated");
    }
}

#[test]
fn units_are_numbered_from_the_start_of_the_cluster() {
    for (cluster, prefix, index, expected) in [
        ("127.123.3.0/16", 24, 0, "127.123.0.0/24"),
        ("127.123.0.0/16", 24, 15, "127.123.15.0/24"),
        ("192.168.5.219/28", 32, 5, "192.168.5.213/32"),
        ("2001:0db8:1234:3::/48", 64, 0, "2001:db8:1234::/64"),
        ("2001:0db8:1234::/48", 64, 15, "2001:db8:1234:f::/64"),
        ("2001:0db8:85a3::8a2e:0370:7334/50", 63, 6425, "2001:db8:85a3:3232::/63"),
        ("2001:0db8:85a3::8a2e:0370:7334/32", 48, 6425, "2001:db8:1919::/48"),
        ("2001:0db8:1234:ff00::/56", 72, 15, "2001:db8:1234:ff00:f00::/72"),
        ("2001:0db8:1234:ff00::0370:7334/56", 72, 6425, "2001:db8:1234:ff19:1900::/72"),
        ("2001:0db8:1234:0:1234::/80", 96, 15, "2001:db8:1234:0:1234:f::/96"),
        ("2001:0db8:1234:ff00::0370:7334/80", 96, 6425, "2001:db8:1234:ff00:0:1919::/96"),
    ] {
        let set = set(cluster, prefix);
        let block = set.block(index, prefix).unwrap();
        assert_eq!(block.to_string(), expected);
        assert_eq!(set.range(&block), Some(index..index + 1), "{cluster}");
    }
}

#[test]
fn cidr_overlaps_the_units_in_its_range() {
    let table: &[(&str, u8, &str, Option<Range<usize>>)] = &[
        ("127.0.0.0/8", 16, "127.0.0.0/8", Some(0..256)),
        ("127.0.0.0/8", 16, "127.0.0.0/2", Some(0..256)),
        ("2001:beef:1200::/40", 48, "2001:beef::/34", Some(0..256)),
        ("127.0.0.0/8", 16, "127.0.0.0/16", Some(0..1)),
        ("127.0.0.0/8", 32, "127.0.0.0/16", Some(0..65_536)),
        ("2001:beef:1200::/48", 64, "2001:beef:1200::/48", Some(0..65_536)),
        ("127.0.0.0/7", 16, "127.0.0.0/15", Some(256..258)),
        ("2001:beef:7f00::/39", 48, "2001:beef:7f00::/47", Some(256..258)),
        ("127.0.0.0/7", 15, "127.0.0.0/15", Some(128..129)),
        ("127.0.0.0/7", 18, "127.0.0.0/15", Some(1024..1032)),
        ("2001:beef:7f00::/39", 50, "2001:beef:7f00::/47", Some(1024..1032)),
        ("127.0.0.0/8", 16, "127.123.0.0/16", Some(123..124)),
        ("be00::/8", 16, "beef::/16", Some(0xef..0xf0)),
        ("192.168.0.0/16", 24, "192.168.151.0/24", Some(151..152)),
        ("192.168.0.0/16", 24, "192.168.151.7/32", Some(151..152)),
        ("192.168.0.0/16", 24, "127.168.224.0/24", None),
        ("beef::/16", 24, "2001:db00::/24", None),
        ("beef::/16", 24, "10.0.0.0/24", None),
    ];
    for (cluster, unit, cidr, expected) in table {
        assert_eq!(set(cluster, *unit).range(&net(cidr)), *expected, "{cluster} {cidr}");
    }
}

#[test]
fn a_unit_is_free_after_its_last_holder_releases_it() {
    let mut set = set("10.42.0.0/16", 24);
    for (cidr, occupies, allocated) in [
        ("10.42.5.0/24", true, 1),
        ("10.42.9.0/24", true, 2),
        ("10.42.8.0/22", true, 5),
        ("10.42.9.0/24", true, 5),
        ("10.42.9.0/24", false, 5),
        ("10.42.9.0/24", false, 5),
        ("10.42.8.0/22", false, 1),
        ("10.42.4.0/22", false, 0),
        ("10.42.4.0/22", false, 0),
    ] {
        if occupies {
            set.occupy(&net(cidr))
        } else {
            set.release(&net(cidr))
        }
        assert_eq!(set.allocated, allocated, "{cidr} {occupies}");
    }
}

#[test]
fn sets_with_too_many_units_are_refused() {
    for (cluster, unit, is_accepted) in [
        ("127.0.0.0/8", 32, true),
        ("0.0.0.0/0", 24, true),
        ("0.0.0.0/7", 32, false),
        ("beef:1234::/32", 48, true),
        ("beef:1234::/32", 49, false),
        ("10.0.0.0/16", 15, false),
        ("10.0.0.0/24", 33, false),
        ("fd00::/127", 129, false),
    ] {
        assert_eq!(CidrSet::new(net(cluster), unit).is_ok(), is_accepted, "{cluster} {unit}");
    }
}

#[test]
fn released_blocks_are_allocated_in_order() {
    for cluster in ["127.123.0.0/16", "beef::/16"] {
        let mut set = set(cluster, 24);
        let mut all = || std::iter::from_fn(|| next(&mut set, 24)).collect::<Vec<_>>();
        let first = all();
        assert_eq!((first.len(), all().len()), (256, 0), "{cluster}");
        first.iter().for_each(|block| set.release(&net(block)));
        assert_eq!(std::iter::from_fn(|| next(&mut set, 24)).collect::<Vec<_>>(), first);
        // The second half is occupied, its first block twice.
        first.iter().for_each(|block| set.release(&net(block)));
        first[128..].iter().chain([&first[128]]).for_each(|block| set.occupy(&net(block)));
        assert_eq!(std::iter::from_fn(|| next(&mut set, 24)).collect::<Vec<_>>(), first[..128]);
    }
}

#[test]
fn a_released_block_is_not_reused_until_the_search_wraps() {
    let mut set = set("10.0.0.0/22", 24);
    assert_eq!(next(&mut set, 24).as_deref(), Some("10.0.0.0/24"));
    set.release(&net("10.0.0.0/24"));
    let all: Vec<_> = std::iter::from_fn(|| next(&mut set, 24)).collect();
    assert_eq!(all, ["10.0.1.0/24", "10.0.2.0/24", "10.0.3.0/24", "10.0.0.0/24"]);
    set.release(&net("10.0.2.0/24"));
    assert_eq!(set.allocate(24), Some(AllocatedBlock { cidr: net("10.0.2.0/24"), passed: 1 }));
}

/// Upstream: `TestCidrSetMetrics`, `TestCidrSetMetricsDual` and `TestCidrSetMetricsHistogram`.
#[test]
fn whole_clusters_are_counted_by_their_units() {
    for (cluster, prefix, units) in [("10.0.0.0/16", 24, 256), ("2001:db8::/48", 64, 65_536)] {
        let mut set = set(cluster, prefix);
        while set.allocate(prefix).is_some() {}
        assert_eq!(
            (set.allocated, set.take_counts()),
            (units, UnitCounts { allocated: units as u64, released: 0 }),
            "{cluster}"
        );
        set.release(&net(cluster));
        assert_eq!((set.allocated, set.take_counts()), (0, UnitCounts { allocated: 0, released: units as u64 }));
        set.occupy(&net(cluster));
        assert_eq!((set.allocated, set.take_counts()), (units, UnitCounts { allocated: units as u64, released: 0 }));
    }
    let mut half = set("10.0.0.0/16", 24);
    half.occupy(&net("10.0.0.0/17"));
    assert_eq!(half.allocate(24), Some(AllocatedBlock { cidr: net("10.0.128.0/24"), passed: 128 }));
    assert_eq!((half.allocated, half.take_counts().allocated), (129, 129));
}

#[test]
fn no_block_is_allocated_while_a_part_of_it_is_held() {
    for seed in 0..200 {
        let mut random = SmallRng::seed_from_u64(seed);
        let cluster = ["10.0.0.0/20", "fd00::/56"][random.random_range(0..2)];
        let longest = net(cluster).prefix_len() + 6;
        let mut set = set(cluster, longest);
        let mut occupied: Vec<IpNet> = Vec::new();
        for step in 0..300 {
            let prefix = random.random_range(longest - 3..=longest);
            if random.random_bool(0.55) {
                let Some(block) = set.allocate(prefix) else {
                    let is_free = |block: &IpNet| !occupied.iter().any(|other| overlap(block, other));
                    assert!(!net(cluster).subnets(prefix).unwrap().any(|block| is_free(&block)), "{seed} {step}");
                    continue;
                };
                assert!(!occupied.iter().any(|other| overlap(&block.cidr, other)), "{seed} {step}: {}", block.cidr);
                occupied.push(block.cidr);
            } else if !occupied.is_empty() {
                let deleted = occupied.swap_remove(random.random_range(0..occupied.len()));
                set.release(&deleted);
            }
            let allocated: usize = occupied.iter().map(|block| 1 << (longest - block.prefix_len())).sum();
            assert_eq!(set.allocated, allocated, "{seed} {step}");
        }
    }
}

fn overlap(cidr: &IpNet, other: &IpNet) -> bool {
    cidr.contains(other) || other.contains(cidr)
}
