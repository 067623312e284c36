use http::Method;

use super::{super::super::api, *};

const GROUP: &str = "/subscriptions/s/resourceGroups/g/providers";

fn names(charge: &RequestCharge, settings: &BudgetSettings) -> Vec<String> {
    let row = |drain: &BucketCharge| {
        let BucketLimit { capacity, per_second, .. } = drain.limit;
        format!(
            "{}{} {capacity} +{:.2}/min",
            drain.id.name,
            if drain.id.resource.is_some() { " of one" } else { "" },
            per_second * 60.0
        )
    };
    bucket_charges(charge, settings).iter().map(row).collect()
}

#[test]
fn a_request_counts_against_these() {
    let cases: [(&super::super::super::ApiType, Method, &str, &[&str]); 8] = [
        (
            &api::LOAD_BALANCERS,
            Method::PUT,
            "Microsoft.Network/loadBalancers/l",
            &["network-writes 500 +100.00/min", "subscription-writes 200 +600.00/min"],
        ),
        (
            &api::LOAD_BALANCERS,
            Method::DELETE,
            "Microsoft.Network/loadBalancers/l",
            &["network-writes 500 +100.00/min", "subscription-deletes 200 +600.00/min"],
        ),
        (
            &api::SCALE_SET_INTERFACES,
            Method::GET,
            "Microsoft.Compute/virtualMachineScaleSets/p/networkInterfaces",
            &["network-reads 5000 +1000.00/min", "subscription-reads 250 +1500.00/min"],
        ),
        (
            &api::VIRTUAL_MACHINES,
            Method::GET,
            "Microsoft.Compute/virtualMachines/a",
            &[
                "compute-LowCostGetVM of one 18 +6.00/min",
                "compute-LowCostGetVM 12000 +4000.00/min",
                "subscription-reads 250 +1500.00/min",
            ],
        ),
        (
            &api::SCALE_SET_VMS,
            Method::GET,
            "Microsoft.Compute/virtualMachineScaleSets/p/virtualMachines",
            &["compute-ListVMSSVM 540 +180.00/min", "subscription-reads 250 +1500.00/min"],
        ),
        (
            &api::SCALE_SETS,
            Method::GET,
            "Microsoft.Compute/locations/eastus/operations/x",
            &["compute-GetOperation 7500 +2500.00/min", "subscription-reads 250 +1500.00/min"],
        ),
        (
            &api::AVAILABILITY_SETS,
            Method::GET,
            "Microsoft.Compute/availabilitySets",
            &["subscription-reads 250 +1500.00/min"],
        ),
        (&api::RESOURCE_GROUPS, Method::PUT, "x", &["subscription-writes 200 +600.00/min"]),
    ];
    for (kind, method, path, expected) in cases {
        let charge = RequestCharge::of(kind, &method, &format!("{GROUP}/{path}"));
        assert_eq!(names(&charge, &BudgetSettings::default()), expected, "{method} {path}");
    }
}

#[test]
fn every_compute_client_of_the_table_exists() {
    let known = |client: &str| api::ALL.iter().any(|kind| kind.metric == client);
    assert!(COMPUTE.iter().all(|row| known(row.client)));
    assert!(CLIENTS.iter().all(|(metric, _)| known(metric)));
}

#[test]
fn the_share_is_held_between_one_and_a_hundred() {
    let share = |share_percent| BudgetSettings { share_percent, ..BudgetSettings::default() }.share();
    assert_eq!([-5, 0, 1, 50, 100, 1000].map(share), [0.01, 0.01, 0.01, 0.5, 1.0, 1.0]);
    let least = BudgetSettings { share_percent: 1, ..BudgetSettings::default() };
    let charge =
        RequestCharge::of(&api::SCALE_SETS, &Method::PUT, &format!("{GROUP}/Microsoft.Compute/virtualMachineScaleSets/p"));
    assert!(bucket_charges(&charge, &least).iter().all(|drain| drain.limit.capacity >= 1.0 && drain.limit.per_second > 0.0));
}

#[test]
fn configured_limits_are_bounds_of_their_own() {
    let limit = |on, qps, bucket| ClientRateLimit {
        cloud_provider_rate_limit: on,
        cloud_provider_rate_limit_qps: qps,
        cloud_provider_rate_limit_bucket: bucket,
        cloud_provider_rate_limit_qps_write: qps / 2.0,
        cloud_provider_rate_limit_bucket_write: bucket / 2,
    };
    let charge = |kind, method| RequestCharge::of(kind, &method, GROUP);
    let first = |settings: &BudgetSettings, charge: &RequestCharge| names(charge, settings).swap_remove(0);
    let mut settings = BudgetSettings { limit: limit(true, 6.0, 20), ..BudgetSettings::default() };
    assert_eq!(first(&settings, &charge(&api::ROUTE_TABLES, Method::GET)), "routeTable-reads 20 +360.00/min");
    assert_eq!(
        first(&settings, &charge(&api::SCALE_SET_VMS, Method::PUT)),
        "VirtualMachineScaleSetVM-writes 10 +180.00/min"
    );
    settings.client_limits = BTreeMap::from([
        ("LOADBALANCERrateLimit".to_owned(), limit(true, 1.0, 0)),
        ("publicIPAddress".to_owned(), limit(false, 1.0, 1)),
        ("routeTableRateLimit".to_owned(), limit(true, 0.0, 5)),
    ]);
    assert_eq!(first(&settings, &charge(&api::BACKEND_POOLS, Method::GET)), "loadBalancer-reads 1 +60.00/min");
    assert_eq!(first(&settings, &charge(&api::LOAD_BALANCERS, Method::DELETE)), "loadBalancer-writes 1 +30.00/min");
    assert_eq!(first(&settings, &charge(&api::PUBLIC_IPS, Method::GET)), "network-reads 5000 +1000.00/min", "switched off");
    assert_eq!(
        first(&settings, &charge(&api::ROUTE_TABLES, Method::GET)),
        "network-reads 5000 +1000.00/min",
        "no rate, no bound"
    );
}
