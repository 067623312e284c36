use http::{HeaderName, HeaderValue, Method};
use jiff::Timestamp;

use super::{
    super::{
        super::retry_after,
        charge::RequestCharge,
        limits::{self, BudgetSettings},
    },
    *,
};
use crate::providers::azure::model::{ApiType, api};

fn headers(rows: &[(&'static str, &str)]) -> HeaderMap {
    let row = |(name, value): &(&'static str, &str)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
    rows.iter().map(row).collect()
}

/// Returns the updates with the names of their buckets.
fn updates(kind: &'static ApiType, path: &str, status: u16, code: &str, rows: &[(&'static str, &str)]) -> Vec<String> {
    let charge = RequestCharge::of(kind, &Method::GET, &format!("/subscriptions/s/resourceGroups/g/providers/{path}"));
    let charges = limits::bucket_charges(&charge, &BudgetSettings::default());
    let headers = headers(rows);
    let retry_after = retry_after(&headers, Timestamp::UNIX_EPOCH);
    let updates = quota_updates(
        charge.operation,
        &charges,
        &BudgetSettings::default(),
        &QuotaHeaders { status, headers: &headers, code, retry_after },
    );
    let name = |index: usize| {
        format!("{}{}", charges[index].id.name, if charges[index].id.resource.is_some() { " of one" } else { "" })
    };
    let row = |update: &QuotaUpdate| match update {
        QuotaUpdate::AtMost(index, tokens) => format!("{} <= {tokens}", name(*index)),
        QuotaUpdate::Remaining(index, tokens) => format!("{} = {tokens}", name(*index)),
        QuotaUpdate::Pause(index, pause) => format!("{} pauses {}s", name(*index), pause.as_secs()),
    };
    updates.iter().map(row).collect()
}

const VM: &str = "Microsoft.Compute/virtualMachines/a";
const LB: &str = "Microsoft.Network/loadBalancers/l";
const RESOURCE: &str = "x-ms-ratelimit-remaining-resource";
const READS: &str = "x-ms-ratelimit-remaining-subscription-reads";

#[test]
fn headers_report_the_remaining_quota() {
    let vm = |rows| updates(&api::VIRTUAL_MACHINES, VM, 200, "", rows);
    assert_eq!(vm(&[(READS, "249")]), ["subscription-reads <= 249"]);
    assert_eq!(vm(&[("x-ms-ratelimit-remaining-subscription-global-reads", "20")]), ["subscription-reads <= 10"]);
    assert_eq!(vm(&[("x-ms-ratelimit-remaining-subscription-writes", "3"), ("retry-after", "5")]), [""; 0], "not of a read");
    assert_eq!(vm(&[(READS, "many"), (READS, "-1")]), [""; 0]);
    assert_eq!(
        vm(&[
            (RESOURCE, "Microsoft.Compute/HighCostGet;159,Microsoft.Compute/HighCostGet30Min;20"),
            (RESOURCE, "Microsoft.Compute/GetVMResource;8,Microsoft.Compute/OtherResource;30")
        ]),
        ["compute-LowCostGetVM <= 79.5", "compute-LowCostGetVM <= 10", "compute-LowCostGetVM of one = 4"]
    );
    assert_eq!(vm(&[(RESOURCE, ";,x,y;z,;;9999999999999")]), [""; 0]);
}

#[test]
fn a_429_pauses_only_the_quota_that_it_names() {
    let vm = |code, rows| updates(&api::VIRTUAL_MACHINES, VM, 429, code, rows);
    let lb = |code, rows| updates(&api::LOAD_BALANCERS, LB, 429, code, rows);
    assert_eq!(lb("TooManyRequests", &[("retry-after", "30")]), ["network-reads pauses 30s"]);
    assert_eq!(lb("", &[]), ["network-reads pauses 10s"], "without a time");
    assert_eq!(lb("SubscriptionRequestsThrottled", &[("retry-after", "7")]), ["subscription-reads pauses 7s"]);
    assert_eq!(lb("", &[("x-ms-failure-cause", "gateway"), ("retry-after", "7")]), ["subscription-reads pauses 7s"]);
    assert_eq!(lb("ResourceRequestsThrottled", &[("x-ms-failure-cause", "gateway")]), ["network-reads pauses 10s"]);
    assert_eq!(lb("", &[(READS, "0")]), ["subscription-reads <= 0", "subscription-reads pauses 10s"]);
    assert_eq!(
        vm("OperationNotAllowed", &[(READS, "200"), (RESOURCE, "Microsoft.Compute/GetVMResource;0"), ("retry-after", "60")]),
        ["subscription-reads <= 200", "compute-LowCostGetVM of one = 0", "compute-LowCostGetVM of one pauses 60s"]
    );
    let several = [(RESOURCE, "Microsoft.Compute/HighCostGet3Min;0,Microsoft.Compute/HighCostGet30Min;3")];
    assert_eq!(vm("OperationNotAllowed", &several).last().unwrap(), "compute-LowCostGetVM pauses 10s");
    assert_eq!(vm("TooManyRequests", &[("retry-after", "0")]), ["compute-LowCostGetVM pauses 1s"]);
    assert_eq!(vm("TooManyRequests", &[("retry-after", "999999999")]), ["compute-LowCostGetVM pauses 3600s"]);
    let group = updates(&api::AVAILABILITY_SETS, "Microsoft.Compute/availabilitySets", 429, "TooManyRequests", &[]);
    assert_eq!(group, ["subscription-reads pauses 10s"], "the next wider bucket");
}

#[test]
fn a_response_without_an_exhausted_quota_pauses_nothing() {
    for (status, code) in [
        (429, "RetryableErrorDueToAnotherOperation"),
        (429, "retryableerrorduetoanotheroperation"),
        (409, ""),
        (503, ""),
        (500, "TooManyRequests"),
    ] {
        assert_eq!(updates(&api::LOAD_BALANCERS, LB, status, code, &[("retry-after", "20")]), [""; 0], "{status} {code}");
    }
}

#[test]
fn retry_after_is_seconds_a_date_or_milliseconds() {
    let wall: Timestamp = "2026-11-21T08:00:00Z".parse().unwrap();
    type Case<'a> = (&'a [(&'static str, &'a str)], Option<f64>);
    let cases: [Case<'_>; 10] = [
        (&[("retry-after", "5")], Some(5.0)),
        (&[("retry-after", " 1.5 ")], Some(1.5)),
        (&[("retry-after", "Sat, 21 Nov 2026 08:00:30 GMT")], Some(30.0)),
        (&[("retry-after", "Sat, 21 Nov 2026 07:00:00 GMT")], Some(0.0)),
        (&[("retry-after-ms", "250"), ("retry-after", "5")], Some(0.25)),
        (&[("x-ms-retry-after-ms", "1500")], Some(1.5)),
        (&[("retry-after", "-1")], None),
        (&[("retry-after", "soon")], None),
        (&[("retry-after", "1e300")], None),
        (&[], None),
    ];
    for (rows, expected) in cases {
        assert_eq!(retry_after(&headers(rows), wall).map(|wait| wait.as_secs_f64()), expected, "{rows:?}");
    }
}
