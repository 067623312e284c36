//! Connections that are dead without being closed: noticed within 45 s, or the other replica leads.

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

/// What is noticed within this time is noticed in time; a busy machine gets some seconds on top.
const NOTICED: Duration = Duration::from_secs(45 + 5);
const FLAGS: &[&str] = &["--cluster-cidr=10.244.0.0/16"];

/// The kubeconfig of manager `name`, whose server is `relay`.
async fn through(plane: &ControlPlane, name: &str, relay: &Relay) -> PathBuf {
    let direct = plane.manager_kubeconfig(name).await;
    let text = std::fs::read_to_string(&direct).expect("kubeconfig");
    let text = text.replace(&plane.address(), &relay.address.to_string());
    assert!(text.contains(&relay.address.to_string()), "{text}");
    let path = direct.with_extension("relayed");
    std::fs::write(&path, text).expect("kubeconfig");
    path
}

/// The watches' connections go dead and the lease's does not: the replica goes on leading, and serves a new Service soon.
pub(crate) async fn dead_watches(plane: &mut ControlPlane, objects: &Objects) {
    let cloud = Cloud::new(plane.folder(), "dead-watches").with_instances(&["node-a"]);
    let relay = Relay::start(plane.address()).await;
    let kubeconfig = through(plane, "manager-a", &relay).await;
    let mut manager = Manager::start_with(plane, "manager-a", &kubeconfig, cloud.path(), FLAGS);
    objects.add_service("first").await;

    // The lease is renewed every two seconds; by now nothing else moves.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let killed = relay.kill_all_but_the_busiest(Duration::from_secs(9)).await;
    assert!(killed > 0, "there was nothing to kill");
    let cut = Instant::now();
    objects.create_service("second").await;
    eventually("the new Service is served", NOTICED, async || !objects.ingress("second").await.is_empty()).await;
    eprintln!("dead watches were noticed within {:?}", cut.elapsed());
    assert!(manager.is_running());
    assert_eq!(manager.log_text().matches("became leader").count(), 1, "{}", manager.log_text());
}

/// All connections of the leader are dead, or bring no answers: it ends at its renew deadline, and the other replica leads and works.
pub(crate) async fn partitioned(plane: &mut ControlPlane, objects: &Objects) {
    // The deadlines that are shipped: with shorter ones a busy machine alone costs the lease.
    const RENEW_DEADLINE: Duration = Duration::from_secs(10);
    let cloud = Cloud::new(plane.folder(), "partitioned").with_instances(&["node-a"]);
    for (dead, service) in [(Dead::Both, "both"), (Dead::Answers, "answers")] {
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
