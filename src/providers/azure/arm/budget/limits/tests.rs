use http::Method;

use super::*;
use crate::providers::azure::model::api;

const GROUP: &str = "/subscriptions/s/resourceGroups/g/providers";

fn names(charge: &RequestCharge, settings: &BudgetSettings) -> Vec<String> {
    let row = |charge: &BucketCharge| {
        let BucketLimit { capacity, per_second, .. } = charge.limit;
        format!(
            "{}{} {capacity} +{:.2}/min",
            charge.id.name,
            if charge.id.resource.is_some() { " of one" } else { "" },
            per_second * 60.0
        )
    };
    bucket_charges(charge, settings).iter().map(row).collect()
}

#[test]
fn a_request_is_charged_to_the_buckets_of_its_kind() {
    const READS: &str = "subscription-reads 250 +1500.00/min";
    const WRITES: &str = "subscription-writes 200 +600.00/min";
    const DELETES: &str = "subscription-deletes 200 +600.00/min";
    let (network_writes, network_reads) = ("network-writes 500 +100.00/min", "network-reads 5000 +1000.00/min");
    let of_one_machine = ["compute-LowCostGetVM of one 18 +6.00/min", "compute-LowCostGetVM 12000 +4000.00/min", READS];
    let balancer = "Microsoft.Network/loadBalancers/l";
    let (set, machine) = ("Microsoft.Compute/virtualMachineScaleSets/p", "Microsoft.Compute/virtualMachines/a");
    let status = "Microsoft.Compute/locations/eastus/operations/x";
    let of_set = |list: &str| format!("{set}/{list}");
    for (kind, method, path, expected) in [
        (&api::LOAD_BALANCERS, Method::PUT, balancer.to_owned(), vec![network_writes, WRITES]),
        (&api::LOAD_BALANCERS, Method::DELETE, balancer.to_owned(), vec![network_writes, DELETES]),
        (&api::SCALE_SET_INTERFACES, Method::GET, of_set("networkInterfaces"), vec![network_reads, READS]),
        (&api::VIRTUAL_MACHINES, Method::GET, machine.to_owned(), of_one_machine.to_vec()),
        (&api::SCALE_SET_VMS, Method::GET, of_set("virtualMachines"), vec!["compute-ListVMSSVM 540 +180.00/min", READS]),
        (&api::SCALE_SETS, Method::GET, status.to_owned(), vec!["compute-GetOperation 7500 +2500.00/min", READS]),
        (&api::AVAILABILITY_SETS, Method::GET, "Microsoft.Compute/availabilitySets".to_owned(), vec![READS]),
        (&api::RESOURCE_GROUPS, Method::PUT, "x".to_owned(), vec![WRITES]),
    ] {
        let charge = RequestCharge::of(kind, &method, &format!("{GROUP}/{path}"));
        assert_eq!(names(&charge, &BudgetSettings::default()), expected, "{method} {path}");
    }
}

#[test]
fn a_permit_counts_against_the_providers_quota_alone() {
    let charges = bucket_charges(&RequestCharge::permit("S", "web"), &BudgetSettings::default());
    let ids: Vec<_> = charges.iter().map(|charge| (charge.id.name.as_ref(), charge.id.subscription.as_str())).collect();
    assert_eq!(ids, [("network-writes", "s")]);
    assert_eq!(charges[0].limit.reserve(), 100.0, "a fifth of its share");
}

#[test]
fn every_compute_client_of_the_table_exists() {
    let exists = |client: &str| api::ALL.iter().any(|kind| kind.metric == client);
    assert!(COMPUTE.iter().all(|row| exists(row.client)));
}

#[test]
fn the_share_is_clamped_between_1_and_100_percent() {
    let share = |share_percent| BudgetSettings { share_percent, ..BudgetSettings::default() }.share();
    assert_eq!([-5, 0, 1, 50, 100, 1000].map(share), [0.01, 0.01, 0.01, 0.5, 1.0, 1.0]);
    let least = BudgetSettings { share_percent: 1, ..BudgetSettings::default() };
    let charge =
        RequestCharge::of(&api::SCALE_SETS, &Method::PUT, &format!("{GROUP}/Microsoft.Compute/virtualMachineScaleSets/p"));
    assert!(
        bucket_charges(&charge, &least).iter().all(|charge| charge.limit.capacity >= 1.0 && charge.limit.per_second > 0.0)
    );
}

#[test]
fn configured_limits_have_buckets_of_their_own() {
    let limit = |on, qps, bucket| ClientRateLimit {
        cloud_provider_rate_limit: on,
        cloud_provider_rate_limit_qps: qps,
        cloud_provider_rate_limit_bucket: bucket,
        cloud_provider_rate_limit_qps_write: qps / 2.0,
        cloud_provider_rate_limit_bucket_write: bucket / 2,
    };
    let plain = BudgetSettings { limit: limit(true, 6.0, 20), ..BudgetSettings::default() };
    let clients = [
        ("LOADBALANCERrateLimit", limit(true, 1.0, 0)),
        ("publicIPAddress", limit(false, 1.0, 1)),
        ("routeTableRateLimit", limit(true, 0.0, 5)),
    ];
    let client_limits = clients.into_iter().map(|(name, limit)| (name.to_owned(), limit)).collect();
    let of_clients = BudgetSettings { client_limits, ..plain.clone() };
    for (settings, kind, method, expected) in [
        (&plain, &api::ROUTE_TABLES, Method::GET, "routeTable-reads 20 +360.00/min"),
        (&plain, &api::SCALE_SET_VMS, Method::PUT, "VirtualMachineScaleSetVM-writes 10 +180.00/min"),
        (&of_clients, &api::BACKEND_POOLS, Method::GET, "loadBalancer-reads 1 +60.00/min"),
        (&of_clients, &api::LOAD_BALANCERS, Method::DELETE, "loadBalancer-writes 1 +30.00/min"),
        // Switched off, and without a rate.
        (&of_clients, &api::PUBLIC_IPS, Method::GET, "network-reads 5000 +1000.00/min"),
        (&of_clients, &api::ROUTE_TABLES, Method::GET, "network-reads 5000 +1000.00/min"),
    ] {
        assert_eq!(names(&RequestCharge::of(kind, &method, GROUP), settings)[0], expected, "{}", kind.resource_type);
    }
}
