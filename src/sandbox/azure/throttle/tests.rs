use super::*;

const LB: ThrottledRequest<'_> = ThrottledRequest {
    subscription: "s",
    principal: "us",
    kind: "microsoft.network/loadbalancers",
    resource: "/lb",
    list: false,
    class: Class::Write,
};
const INSTANCE: ThrottledRequest<'_> =
    ThrottledRequest { kind: "microsoft.compute/virtualmachinescalesets/virtualmachines", resource: "/vm/0", ..LB };

fn status(response: &Result<Headers, Refusal>) -> u16 {
    response.as_ref().map_or_else(|refusal| refusal.status, |_| 200)
}

#[test]
fn a_principals_bucket_empties_and_fills() {
    let quotas = Quotas { network: None, ..Quotas::azure() };
    let (mut throttle, start) = (Throttle::default(), Instant::now());
    let mut write = |at: Duration| throttle.charge(&quotas, &LB, start + at);
    for remaining in (0..200).rev() {
        let headers = write(Duration::ZERO).unwrap();
        assert_eq!(headers, [(WRITES[0], remaining.to_string()), (WRITES[1], (remaining + 2_800).to_string())]);
    }
    let refused = write(Duration::ZERO).unwrap_err();
    assert_eq!(
        (refused.status, refused.code.as_str(), refused.retry_after),
        (429, "SubscriptionRequestsThrottled", Some(1))
    );
    assert!(write(Duration::from_millis(99)).is_err());
    assert!(write(Duration::from_millis(200)).is_ok());
    let mut other = |request| throttle.charge(&quotas, &request, start).is_ok();
    assert!(other(ThrottledRequest { class: Class::Read, ..LB }), "reads have a bucket of their own");
    assert!(other(ThrottledRequest { subscription: "t", ..LB }), "and so has each subscription");
    assert!(other(ThrottledRequest { principal: "neighbor", ..LB }), "and each principal");
}

#[test]
fn a_window_counts_writes_and_deletes_of_all_principals() {
    let quotas = Quotas { arm: None, ..Quotas::azure() };
    let (mut throttle, start) = (Throttle::default(), Instant::now());
    for index in 0..1_000 {
        let (class, principal) = if index % 2 == 0 { (Class::Write, "us") } else { (Class::Delete, "neighbor") };
        assert!(throttle.charge(&quotas, &ThrottledRequest { class, principal, ..LB }, start).is_ok());
    }
    let refused = throttle.charge(&quotas, &LB, start + Duration::from_secs(100)).unwrap_err();
    assert_eq!((refused.code.as_str(), refused.retry_after), ("TooManyRequests", Some(200)));
    assert_eq!(refused.headers, [("x-ms-failure-cause", "service".to_owned())]);
    assert!(throttle.charge(&quotas, &ThrottledRequest { class: Class::Read, ..LB }, start).is_ok());
    assert!(throttle.charge(&quotas, &LB, start + Duration::from_secs(300)).is_ok());
}

#[test]
fn compute_counts_for_each_resource() {
    let quotas = Quotas { arm: None, ..Quotas::azure() };
    let (mut throttle, start) = (Throttle::default(), Instant::now());
    let mut write = |request, after| throttle.charge(&quotas, &request, start + Duration::from_secs(after));
    let headers = write(INSTANCE, 0).unwrap();
    let expected = "Microsoft.Compute/UpdateVMSSVMResource;11,Microsoft.Compute/UpdateVMSSVMSubscriptionMaximum;1499";
    assert_eq!(headers, [(REMAINING, expected.to_owned())]);
    assert!((0..11).all(|_| write(INSTANCE, 0).is_ok()));
    let refused = write(INSTANCE, 0).unwrap_err();
    assert_eq!((refused.status, refused.retry_after), (429, Some(15)));
    assert!(refused.headers.contains(&(REMAINING, "Microsoft.Compute/UpdateVMSSVMResource;0".to_owned())));
    assert_eq!(status(&write(ThrottledRequest { resource: "/vm/1", ..INSTANCE }, 0)), 200, "another instance");
    assert_eq!(status(&write(ThrottledRequest { class: Class::Read, ..INSTANCE }, 0)), 200, "a read");
    let interface = ThrottledRequest { kind: "microsoft.compute/virtualmachinescalesets/networkinterfaces", ..INSTANCE };
    assert_eq!(write(interface, 0).unwrap(), [], "the network provider's");
    assert_eq!((status(&write(INSTANCE, 15)), status(&write(INSTANCE, 15))), (200, 429));
}
