//! A load balancer is not read when its operation has ended, but before it is written the next time.

use std::time::Duration;

use super::*;
use crate::sandbox::azure::{Latencies, Latency};

/// As [`Cloud::served`], with asynchronous writes.
async fn served_by_operations() -> Cloud {
    let cloud = Cloud::served().await;
    let latency = Latency { respond: Duration::ZERO, operation: Duration::from_secs(1) };
    cloud.world.azure().with_options(|options| options.latencies = Latencies::writes(latency));
    cloud
}

fn names(requests: Vec<String>) -> Vec<String> {
    let is_poll = |request: &String| request.rsplit('-').next().is_some_and(|end| end.len() == 12);
    requests.into_iter().filter(|request| !is_poll(request)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_is_read_before_its_next_write_only() {
    let cloud = served_by_operations().await;
    cloud.put_balancer(&["a"]).await.unwrap();
    assert_eq!(names(cloud.requests()), ["PUT kubernetes"]);
    let known = cloud.look().await;
    assert_eq!(known.load_balancers[0].properties.as_ref().unwrap().frontend_ip_configurations.as_ref().unwrap().len(), 1);
    assert_eq!(names(cloud.requests()), [""; 0]);
    cloud.put_balancer(&["a"]).await.unwrap();
    assert_eq!(names(cloud.requests()), ["GET kubernetes", "PUT kubernetes"]);
    cloud.delete_balancer().await.unwrap();
    assert_eq!(names(cloud.requests()), ["GET kubernetes", "DELETE kubernetes"]);
}
