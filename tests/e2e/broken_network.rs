//! Connections that are dead without being closed: the manager detects them within 45 s, or the other replica takes over.

use std::{path::PathBuf, time::Duration};

use tokio::time::Instant;

use crate::{
    cloud::Cloud,
    control_plane::ControlPlane,
    objects::Objects,
    relay::{Dead, Relay},
    scenarios::leads,
    support::{Manager, SOON, eventually},
};

/// Time limit for the detection of dead connections, with some seconds for a busy machine.
const DETECTION_TIMEOUT: Duration = Duration::from_secs(45 + 5);
const FLAGS: &[&str] = &["--cluster-cidr=10.244.0.0/16"];

/// Writes the kubeconfig of manager `name` with `relay` as its server.
async fn through(plane: &ControlPlane, name: &str, relay: &Relay) -> PathBuf {
    let direct = plane.manager_kubeconfig(name).await;
    let text = std::fs::read_to_string(&direct).expect("kubeconfig");
    let text = text.replace(&plane.address(), &relay.address.to_string());
    assert!(text.contains(&relay.address.to_string()), "{text}");
    let path = direct.with_extension("relayed");
    std::fs::write(&path, text).expect("kubeconfig");
    path
}

/// The connections of the watches die, that of the Lease does not: the replica remains leader and soon serves a new Service.
pub(crate) async fn dead_watches(plane: &mut ControlPlane, objects: &Objects) {
    let cloud = Cloud::new(plane.folder(), "dead-watches").with_instances(&["node-a"]);
    let relay = Relay::start(plane.address()).await;
    let kubeconfig = through(plane, "manager-a", &relay).await;
    let mut manager = Manager::start_with(plane, "manager-a", &kubeconfig, cloud.path(), FLAGS);
    objects.add_service("first").await;

    // The Lease is renewed every two seconds, so its connection is the busiest once the first Service is served.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let killed = relay.kill_all_but_the_busiest(Duration::from_secs(9)).await;
    assert!(killed > 0, "there was nothing to kill");
    let cut = Instant::now();
    objects.create_service("second").await;
    eventually("the new Service is served", DETECTION_TIMEOUT, async || !objects.ingress("second").await.is_empty()).await;
    eprintln!("dead watches were detected within {:?}", cut.elapsed());
    assert!(manager.is_running());
    assert_eq!(manager.log_text().matches("became leader").count(), 1, "{}", manager.log_text());
}

/// All connections of the leader are dead, or carry no responses: the leader ends at its renew deadline, and the other replica takes over.
pub(crate) async fn partitioned(plane: &mut ControlPlane, objects: &Objects) {
    // The shipped deadline: with a shorter one, a busy machine alone loses the Lease.
    const RENEW_DEADLINE: Duration = Duration::from_secs(10);
    let cloud = Cloud::new(plane.folder(), "partitioned").with_instances(&["node-a"]);
    for (dead, service) in [(Dead::Both, "both"), (Dead::Responses, "responses")] {
        let relay = Relay::start(plane.address()).await;
        let kubeconfig = through(plane, "manager-a", &relay).await;
        let mut first = Manager::start_with(plane, "manager-a", &kubeconfig, cloud.path(), FLAGS);
        eventually("the first replica leads", SOON, async || leads(&first).await).await;
        let mut second = Manager::start(plane, "manager-b", cloud.path(), FLAGS).await;
        second.until_ready().await;

        assert!(leads(&first).await, "{}", first.log_text());
        relay.die(dead);
        let cut = Instant::now();
        let status = first.ended(RENEW_DEADLINE + Duration::from_secs(8)).await;
        assert_eq!(status.code(), Some(1), "{}", first.log_text());
        assert!(first.log_text().contains("leaderelection lost"), "{}", first.log_text());
        objects.add_service(service).await;
        assert!(leads(&second).await && second.is_running(), "{}", second.log_text());
        eprintln!("the other replica served after {:?}", cut.elapsed());
        second.stop().await;
    }
}
