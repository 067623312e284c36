//! Load balancers: addresses, steps, leadership, and state that outlives the process.

use super::*;
use crate::{
    cloud_provider::{LoadBalancerStatus, ServiceDemand, ServicesPlan},
    runtime::leader_election::LeadershipState,
};

const CLUSTER: &str = "kubernetes";

fn addresses(status: LoadBalancerStatus) -> Vec<String> {
    status.ingress.unwrap_or_default().into_iter().filter_map(|ingress| ingress.ip).collect()
}

async fn ensure(cloud: &FakeCloud, service: &Service, hosts: &[&str]) -> CloudResult<Vec<String>> {
    cloud.ensure_load_balancer(CLUSTER, service, &nodes(hosts)).await.map(addresses)
}

const POOL: &str = "loadBalancers: {addressPool: [203.0.113.0/29, 'fd00::/126']}";

#[tokio::test]
async fn addresses_follow_the_spec() {
    for (spec, expected) in [
        (json!({}), Ok(vec!["203.0.113.2"])),
        (json!({"ipFamilies": ["IPv4"]}), Ok(vec!["203.0.113.2"])),
        (json!({"ipFamilies": ["IPv6"]}), Ok(vec!["fd00::1"])),
        (json!({"ipFamilies": ["IPv6", "IPv4"]}), Ok(vec!["fd00::1", "203.0.113.2"])),
        (json!({"loadBalancerIP": "203.0.113.5"}), Ok(vec!["203.0.113.5"])),
        (json!({"loadBalancerIP": "fd00::2"}), Ok(vec!["fd00::2"])),
        (json!({"loadBalancerIP": "203.0.113.1"}), Err(("failed", "in use by load balancer afirstuid"))),
        (json!({"loadBalancerIP": "198.51.100.1"}), Err(("refused", "203.0.113.0/29"))),
        (json!({"loadBalancerIP": "here"}), Err(("refused", "\"here\" is not an IP address"))),
        (json!({"loadBalancerIP": "fd00::2", "ipFamilies": ["IPv4"]}), Err(("refused", "spec.ipFamilies"))),
    ] {
        let cloud = cloud(POOL);
        assert_eq!(ensure(&cloud, &service("first"), &[]).await.unwrap(), ["203.0.113.1"]);
        match (ensure(&cloud, &service_with("second", &spec), &[]).await, expected) {
            (Ok(seen), Ok(expected)) => assert_eq!(seen, expected, "{spec}"),
            (Err(error), Err((class, part))) => {
                assert_eq!(error.class(), class, "{spec}");
                assert!(error.to_string().contains(part), "{spec}: {error}");
            }
            (seen, expected) => panic!("{spec}: {seen:?}, expected {expected:?}"),
        }
    }
}

#[tokio::test]
async fn an_address_of_another_cloud_is_never_replaced() {
    let published = |ingress: serde_json::Value| {
        let mut service = service("web");
        service.status = serde_json::from_value(json!({"loadBalancer": {"ingress": [ingress]}})).unwrap();
        service
    };
    let cloud = cloud(POOL);
    for (foreign, part) in [(json!({"ip": "20.0.0.4"}), "20.0.0.4"), (json!({"hostname": "lb.example"}), "lb.example")] {
        let service = published(foreign);
        let planned = planned(&cloud, &service, &[]).await.refused.remove("default/web").map_or(Ok(()), Err);
        for refused in [ensure(&cloud, &service, &[]).await.map(drop), planned] {
            let message = match refused {
                Err(CloudError::Refused(message)) => message,
                other => panic!("{other:?}"),
            };
            assert!(message.contains(part) && message.contains("default/web"), "{message}");
        }
    }
    assert_eq!(cloud.write_count(), 0);
    assert_eq!(ensure(&cloud, &published(json!({"ip": "203.0.113.3"})), &[]).await.unwrap(), ["203.0.113.1"]);
    cloud.configure(|config| config.load_balancers.address_pool = vec!["198.51.100.0/29".parse().unwrap()]);
    let own = ensure(&cloud, &published(json!({"ip": "203.0.113.1"})), &[]).await;
    assert!(own.is_ok(), "an address of the load balancer itself, outside the new pool: {own:?}");
}

#[tokio::test]
async fn exhausted_pool_fails_until_an_address_is_released() {
    let cloud = cloud("loadBalancers: {addressPool: [203.0.113.0/30]}");
    for (name, expected) in [("a", "203.0.113.1"), ("b", "203.0.113.2")] {
        assert_eq!(ensure(&cloud, &service(name), &[]).await.unwrap(), [expected]);
    }
    let error = ensure(&cloud, &service("c"), &[]).await.unwrap_err();
    assert!(error.to_string().contains("no IPv4 address is free in loadBalancers.addressPool (203.0.113.0/30)"), "{error}");
    let error = ensure(&cloud, &service_with("d", &json!({"ipFamilies": ["IPv6"]})), &[]).await.unwrap_err();
    assert!(matches!(&error, CloudError::Refused(message) if message.contains("has no IPv6 range")), "{error}");
    cloud.ensure_load_balancer_deleted(CLUSTER, &service("a")).await.unwrap();
    assert_eq!(ensure(&cloud, &service("c"), &[]).await.unwrap(), ["203.0.113.1"]);
}

#[tokio::test]
async fn ensure_update_and_delete_apply_the_planned_steps() {
    let cloud = cloud(POOL);
    let web = service("web");
    let plan = planned(&cloud, &web, &["b", "a"]).await;
    assert_eq!(plan.statuses["default/web"].ingress.as_ref().unwrap().len(), 1);
    assert_eq!(
        plan.writes.writes[0].reasons,
        [
            "allocate address 203.0.113.1",
            "create load balancer awebuid at 203.0.113.1",
            "set ports TCP 80→30080",
            "set hosts a, b"
        ]
    );
    let missing = cloud.update_load_balancer(CLUSTER, &web, &nodes(&["a"])).await.unwrap_err();
    assert!(missing.to_string().contains("awebuid does not exist"));

    ensure(&cloud, &web, &["b", "a"]).await.unwrap();
    assert_eq!(cloud.load_balancer_of("default/web").unwrap().hosts, ["a", "b"]);
    ensure(&cloud, &web, &["a", "b"]).await.unwrap();
    assert_eq!(cloud.write_count(), 4, "the second call has nothing to write");
    cloud.update_load_balancer(CLUSTER, &web, &nodes(&["c"])).await.unwrap();
    assert_eq!(cloud.load_balancer_of("default/web").unwrap().hosts, ["c"]);

    let moved = service_with("web", &json!({"loadBalancerIP": "203.0.113.4", "ports": [{"port": 81, "protocol": "UDP"}]}));
    assert_eq!(ensure(&cloud, &moved, &["c"]).await.unwrap(), ["203.0.113.4"]);
    assert_eq!(cloud.load_balancer_of("default/web").unwrap().ports[0].port, 81);
    assert_eq!(cloud.leaks([&moved]), Vec::<String>::new(), "the old address is released");
    assert_eq!(cloud.leaks([]).len(), 1);
    let demand = ServiceDemand { to_delete: vec![Arc::new(moved.clone())], ..ServiceDemand::default() };
    let plan = cloud.plan_services(CLUSTER, &demand).await.unwrap();
    assert_eq!((plan.existing.len(), plan.writes.writes[0].method), (1, "DELETE"));
    cloud.ensure_load_balancer_deleted(CLUSTER, &moved).await.unwrap();
    assert!(cloud.plan_services(CLUSTER, &demand).await.unwrap().existing.is_empty());
}

#[tokio::test]
async fn a_service_without_uid_is_refused() {
    let error = ensure(&cloud(POOL), &Service::default(), &[]).await.unwrap_err();
    assert!(matches!(error, CloudError::Refused(message) if message.contains("metadata.uid")));
}

#[tokio::test]
async fn requested_failures_precede_configured_failures() {
    let cloud = cloud("calls: {ensureLoadBalancer: {error: configured, times: 1}}");
    cloud.fail_next(CallName::EnsureLoadBalancer, &CloudError::invalid("requested"), 2);
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(ensure(&cloud, &service("web"), &[]).await.err().map(|error| error.to_string()).unwrap_or_default());
    }
    assert_eq!(seen, ["requested", "requested", "configured", ""]);
}

#[tokio::test(start_paused = true)]
async fn only_the_leading_replica_writes() {
    let first = cloud("anyInstance: {}");
    let second = first.replica();
    let (sender, leadership) = Leadership::channel();
    first.initialize(context(Leadership::unopposed())).await.unwrap();
    second.initialize(context(leadership)).await.unwrap();
    let web = service("web");

    ensure(&first, &web, &["a"]).await.unwrap();
    let before = second.write_count();
    assert!(ensure(&second, &web, &["a"]).await.is_ok(), "without a write, leadership is not needed");
    let route = crate::cloud_provider::Route {
        target_node: "a".into(),
        destination_cidr: "10.244.0.0/24".into(),
        ..Default::default()
    };
    let routes = CloudProvider::routes(&second).unwrap();
    let changes = crate::cloud_provider::RouteChanges { create: vec![(String::new(), route.clone())], ..Default::default() };
    let refusals = [
        ensure(&second, &web, &["b"]).await.unwrap_err(),
        second.update_load_balancer(CLUSTER, &web, &[]).await.unwrap_err(),
        second.ensure_load_balancer_deleted(CLUSTER, &web).await.unwrap_err(),
        routes.create_route(CLUSTER, "", &route).await.unwrap_err(),
        routes.delete_route(CLUSTER, &route).await.unwrap_err(),
        routes.apply_routes(CLUSTER, &changes).await.created.remove(0).unwrap_err(),
    ];
    assert!(refusals.iter().all(|error| matches!(error, CloudError::NotLeader(_))), "{refusals:?}");
    assert_eq!(second.write_count(), before);

    sender.send_replace(LeadershipState::Leading {
        until: (tokio::time::Instant::now() + std::time::Duration::from_secs(10)).into(),
    });
    ensure(&second, &web, &["b"]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn lost_leadership_stops_before_the_next_step() {
    let cloud = cloud("calls: {setPorts: {latency: 20s}}");
    let (sender, leadership) = Leadership::channel();
    sender.send_replace(LeadershipState::Leading {
        until: (tokio::time::Instant::now() + std::time::Duration::from_secs(10)).into(),
    });
    cloud.initialize(context(leadership)).await.unwrap();
    assert!(matches!(ensure(&cloud, &service("web"), &[]).await, Err(CloudError::NotLeader(_))));
    assert!(cloud.load_balancer_of("default/web").unwrap().ports.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_state_file_outlives_the_process_and_is_shared() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cloud.yaml");
    let text = format!("{POOL}\nstateFile: state.json\nanyInstance: {{}}\ncalls: {{setHosts: {{hang: true, times: 1}}}}");
    std::fs::write(&path, text).unwrap();
    let web = service("web");
    let (dying, standby) = (FakeCloud::from_file(&path).unwrap(), FakeCloud::from_file(&path).unwrap());
    tokio::select! {
        biased;
        result = ensure(&dying, &web, &["a"]) => panic!("{result:?}"),
        () = dying.wait_until(|cloud| cloud.call_count(CallName::SetHosts) == 1) => {}
    }
    drop(dying);
    assert_eq!(standby.load_balancer_of("default/web").unwrap().hosts, Vec::<String>::new());
    standby.configure(|config| config.calls.clear());
    assert_eq!(ensure(&standby, &web, &["a"]).await.unwrap(), ["203.0.113.1"]);

    let restarted = FakeCloud::from_file(&path).unwrap();
    assert_eq!(restarted.load_balancers(), standby.load_balancers());
    assert_eq!(restarted.leaks([&web]), Vec::<String>::new());
    restarted.ensure_load_balancer_deleted(CLUSTER, &web).await.unwrap();
    assert!(standby.load_balancers().is_empty());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "no temporary file is left");

    std::fs::write(folder.path().join("state.json"), "{").unwrap();
    let error = ensure(&standby, &web, &["a"]).await.unwrap_err();
    assert!(error.to_string().contains("state.json"), "{error}");
    std::fs::remove_file(folder.path().join("state.json")).unwrap();
    assert_eq!(ensure(&standby, &web, &["a"]).await.unwrap(), ["203.0.113.1"], "a removed file is an empty cloud");
}

#[tokio::test]
async fn a_full_disk_is_reported_and_loses_no_state() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cloud.yaml");
    std::fs::write(&path, format!("{POOL}\nstateFile: state.json\nanyInstance: {{}}")).unwrap();
    let cloud = FakeCloud::from_file(&path).unwrap();
    assert_eq!(ensure(&cloud, &service("web"), &["a"]).await.unwrap(), ["203.0.113.1"]);
    let full = folder.path().join(format!("state.json.{}.tmp", std::process::id()));
    std::os::unix::fs::symlink("/dev/full", &full).unwrap();
    let error = ensure(&cloud, &service("other"), &["a"]).await.unwrap_err().to_string();
    assert!(error.contains("stateFile") && error.contains("state.json: No space left on device"), "{error}");
    assert!(!full.is_symlink(), "the partial file is removed");
    for cloud in [&cloud, &FakeCloud::from_file(&path).unwrap()] {
        assert_eq!(cloud.load_balancers().len(), 1);
        assert!(cloud.load_balancer_of("default/other").is_none());
    }
    assert_eq!(ensure(&cloud, &service("other"), &["a"]).await.unwrap(), ["203.0.113.2"]);
}

/// Runs the test again as the process that crashes.
#[tokio::test]
async fn a_crash_ends_the_process_and_keeps_its_writes() {
    const DYING: &str = "FAKE_CLOUD_OF_DYING_PROCESS";
    let web = service("web");
    if let Some(path) = std::env::var_os(DYING) {
        let _ = ensure(&FakeCloud::from_file(path.as_ref()).unwrap(), &web, &["a"]).await;
        return;
    }
    for (loses_response, ports) in [(false, 0), (true, 1)] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cloud.yaml");
        let text = format!("stateFile: state.json\ncalls: {{setPorts: {{crash: true, answerLost: {loses_response}}}}}");
        std::fs::write(&path, text).unwrap();
        let mut dying = std::process::Command::new(std::env::current_exe().unwrap());
        let name = "providers::fake::tests::load_balancers::a_crash_ends_the_process_and_keeps_its_writes";
        let status = dying.args(["--exact", name]).env(DYING, &path).output().unwrap().status;
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(6), "SIGABRT");

        let survivor = FakeCloud::from_file(&path).unwrap();
        assert_eq!(survivor.load_balancer_of("default/web").unwrap().ports.len(), ports);
        survivor.configure(|config| config.calls.clear());
        ensure(&survivor, &web, &["a"]).await.unwrap();
        assert_eq!(survivor.leaks([&web]), Vec::<String>::new());
        assert_eq!(survivor.load_balancer_of("default/web").unwrap().hosts, ["a"]);
    }
}

async fn planned(cloud: &FakeCloud, service: &Service, hosts: &[&str]) -> ServicesPlan {
    let to_ensure = vec![Arc::new(service.clone())];
    let demand = ServiceDemand { to_ensure, nodes: nodes(hosts), ..ServiceDemand::default() };
    cloud.plan_services(CLUSTER, &demand).await.unwrap()
}
