//! Tests of reads that only some Services name, and that ARM does not answer in time.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::*;
use crate::providers::azure::load_balancer::observe::NetworkReadFailure;

const SECOND: Duration = Duration::from_secs(1);

/// Returns a cloud with a second resource group that has a public IP, and a query that names the group.
fn cloud_with_group() -> (Cloud, NetworkQuery) {
    let cloud = cloud();
    let group = ResourceId::group_of(cloud.settings.group.subscription(), "elsewhere");
    let id = group.resource("Microsoft.Network/publicIPAddresses", &["far"]);
    let document = json!({"id": id, "name": "far", "type": "Microsoft.Network/publicIPAddresses", "location": "eastus",
        "sku": {"name": "Standard"}, "properties": {"publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4"}});
    for document in [cloud.world.topology().group_document(&group), document] {
        cloud.world.azure().put_document(document).unwrap();
    }
    (cloud, NetworkQuery { public_ip_groups: [group].into(), ..NetworkQuery::default() })
}

impl Cloud {
    /// Adds a delay of ten seconds to requests with these paths.
    fn delay(&self, path: &str) {
        self.world.azure().add_fault(Fault::new(Effect::Delay(10 * SECOND)).method("GET").path(path));
    }

    /// Reads, and returns how long that took, what was read, and what was not.
    async fn timed_read(&self, query: &NetworkQuery) -> (Duration, Arc<ObservedNetwork>, Vec<NetworkReadFailure>) {
        let start = Instant::now();
        let (observed, unread) = self.observer.observe(query, URGENCY).await.unwrap();
        (start.elapsed(), observed, unread)
    }

    fn reads_of_group(&self) -> usize {
        self.requests().iter().filter(|request| *request == "GET publicIPAddresses").count()
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_named_read_delays_one_plan_by_a_second() {
    let (cloud, query) = cloud_with_group();
    cloud.delay("*/resourceGroups/elsewhere/*");
    let (took, observed, unread) = cloud.timed_read(&query).await;
    assert!(took >= SECOND && took < 2 * SECOND, "{took:?}");
    assert!(observed.security_group.is_some() && observed.public_ips.is_empty());
    assert_eq!(cloud.reads_of_group(), 2, "one of each group");
    let [failure] = unread.as_slice() else { panic!("{unread:?}") };
    assert_eq!(failure.error.class, ArmErrorClass::Busy);
    assert!(failure.error.to_string().contains("/resourceGroups/elsewhere/"), "{}", failure.error);

    let (took, _, unread) = cloud.timed_read(&query).await;
    assert!(took < SECOND / 10 && unread.len() == 1, "{took:?}: {unread:?}");

    sleep(10 * SECOND).await;
    let (took, observed, unread) = cloud.timed_read(&query).await;
    assert!(took < SECOND / 10 && unread.is_empty(), "{took:?}: {unread:?}");
    assert_eq!(observed.public_ips.len(), 1);
    assert_eq!(cloud.reads_of_group(), 0, "the first read is used");
}

#[tokio::test(start_paused = true)]
async fn named_reads_are_waited_for_as_long_as_common_ones() {
    let (cloud, query) = cloud_with_group();
    cloud.delay("*");
    let (took, observed, unread) = cloud.timed_read(&query).await;
    assert!(took < 12 * SECOND && unread.is_empty(), "{took:?}: {unread:?}");
    assert_eq!(observed.public_ips.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_named_read_that_fails_late_is_reported() {
    let (cloud, query) = cloud_with_group();
    cloud.world.azure().add_fault(Fault::refuse(503, "ServiceUnavailable").path("*/resourceGroups/elsewhere/*"));
    let (_, _, unread) = cloud.timed_read(&query).await;
    assert_eq!(unread[0].error.class, ArmErrorClass::Busy, "the client still tries");
    sleep(5 * SECOND).await;
    let (took, _, unread) = cloud.timed_read(&query).await;
    assert_eq!((took, unread[0].error.class), (Duration::ZERO, ArmErrorClass::Transient), "{unread:?}");
    assert!(cloud.observer.denied().is_empty(), "others still read it");
}
