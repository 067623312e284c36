//! Upstream's tables `TestNeedsUpdate`, `TestNeedsCleanup` and the class and type rows of `TestSyncLoadBalancerIfNeeded`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;

fn service() -> Service {
    let mut service = Service::default();
    service.metadata.uid = Some("u1".into());
    let port = ServicePort { port: 80, target_port: Some(IntOrString::Int(8080)), ..Default::default() };
    service.spec = Some(ServiceSpec {
        type_: Some("LoadBalancer".into()),
        ports: Some(vec![port]),
        external_ips: Some(vec!["1.1.1.1".into()]),
        ip_families: Some(vec!["IPv4".into()]),
        ..Default::default()
    });
    service
}

fn needs_update(old: &Service, new: &Service) -> bool {
    super::needs_update(&LoadBalancerClasses::default(), old, new)
}

type Change = fn(&mut Service);

fn with(change: Change) -> Service {
    let mut service = service();
    change(&mut service);
    service
}

fn spec(service: &mut Service) -> &mut ServiceSpec {
    service.spec.as_mut().unwrap()
}

fn port(service: &mut Service) -> &mut ServicePort {
    &mut spec(service).ports.as_mut().unwrap()[0]
}

#[test]
fn changes_of_relevant_fields_need_an_update() {
    let cases: [(&str, Change, Option<&str>); 18] = [
        ("type", |s| spec(s).type_ = Some("ClusterIP".into()), Some("Type: LoadBalancer -> ClusterIP")),
        ("class", |s| spec(s).load_balancer_class = Some("x".into()), Some("Type: LoadBalancer -> LoadBalancer")),
        (
            "ranges",
            |s| spec(s).load_balancer_source_ranges = Some(vec!["10.0.0.0/8".into(), "11.0.0.0/8".into()]),
            Some("LoadBalancerSourceRanges: [] -> [10.0.0.0/8 11.0.0.0/8]"),
        ),
        ("port", |s| port(s).port = 81, None),
        ("port name", |s| port(s).name = Some("web".into()), None),
        ("node port", |s| port(s).node_port = Some(30000), None),
        ("protocol", |s| port(s).protocol = Some("UDP".into()), None),
        ("target port", |s| port(s).target_port = Some(IntOrString::Int(1)), None),
        ("target port as text", |s| port(s).target_port = Some(IntOrString::String("8080".into())), None),
        ("appProtocol", |s| port(s).app_protocol = Some("http".into()), None),
        ("affinity", |s| spec(s).session_affinity = Some("ClientIP".into()), None),
        ("address", |s| spec(s).load_balancer_ip = Some("2.2.2.2".into()), Some("LoadbalancerIP:  -> 2.2.2.2")),
        ("external count", |s| spec(s).external_ips = None, Some("ExternalIP: Count: 1 -> 0")),
        ("external", |s| spec(s).external_ips = Some(vec!["3.3.3.3".into()]), Some("ExternalIP: Added: 3.3.3.3")),
        ("annotations", |s| s.metadata.annotations = Some([("a".into(), "b".into())].into()), None),
        ("uid", |s| s.metadata.uid = Some("u2".into()), Some("UID: u1 -> u2")),
        (
            "policy",
            |s| spec(s).external_traffic_policy = Some("Local".into()),
            Some("ExternalTrafficPolicy: Cluster -> Local"),
        ),
        ("health port", |s| spec(s).health_check_node_port = Some(1), Some("HealthCheckNodePort: 0 -> 1")),
    ];
    for (name, change, event) in cases {
        let (old, new) = (service(), with(change));
        assert!(needs_update(&old, &new) && needs_update(&new, &old), "{name}");
        let announced = change_event(&LoadBalancerClasses::default(), &old, &new)
            .map(|event| format!("{}: {}", event.reason, event.message));
        assert_eq!(announced.as_deref(), event, "{name}");
    }
}

#[test]
fn the_number_of_families_matters_not_their_order() {
    let families = |families: &[&str]| {
        let mut service = service();
        spec(&mut service).ip_families = Some(families.iter().map(|family| (*family).to_owned()).collect());
        service
    };
    let (single, both) = (families(&["IPv4"]), families(&["IPv4", "IPv6"]));
    assert!(needs_update(&single, &both) && needs_update(&both, &single));
    assert_eq!(change_event(&LoadBalancerClasses::default(), &single, &both).unwrap().message, "Count: 1 -> 2");
    assert!(!needs_update(&both, &families(&["IPv6", "IPv4"])));
}

#[test]
fn other_changes_need_no_update() {
    let cases: [(&str, Change); 7] = [
        ("nothing", |_| {}),
        ("labels", |s| s.metadata.labels = Some([("a".into(), "b".into())].into())),
        ("selector", |s| spec(s).selector = Some([("a".into(), "b".into())].into())),
        ("internal policy", |s| spec(s).internal_traffic_policy = Some("Local".into())),
        ("node port allocation", |s| spec(s).allocate_load_balancer_node_ports = Some(false)),
        ("empty annotations", |s| s.metadata.annotations = Some(BTreeMap::new())),
        ("the server's defaults", |s| {
            spec(s).session_affinity = Some("None".into());
            port(s).protocol = Some("TCP".into());
        }),
    ];
    for (name, change) in cases {
        assert!(!needs_update(&service(), &with(change)), "{name}");
    }
    let cluster_ip = with(|s| spec(s).type_ = Some("ClusterIP".into()));
    let node_port = with(|s| spec(s).type_ = Some("NodePort".into()));
    assert!(!needs_update(&cluster_ip, &node_port), "neither wants a load balancer");
}

#[test]
fn only_changes_of_optional_fields_may_be_unread() {
    let cases: [(&str, Change, bool); 6] = [
        ("nothing", |_| {}, false),
        ("annotation", |s| s.metadata.annotations = Some([("a".to_owned(), "b".to_owned())].into()), true),
        ("external address", |s| spec(s).external_ips = None, true),
        ("type", |s| spec(s).type_ = Some("ClusterIP".into()), false),
        ("class", |s| spec(s).load_balancer_class = Some("x".into()), false),
        ("another object", |s| s.metadata.uid = Some("u2".into()), false),
    ];
    for (name, change, expected) in cases {
        let classes = LoadBalancerClasses::default();
        assert_eq!(may_be_same_request(&classes, &service(), &with(change)), expected, "{name}");
        assert_eq!(may_be_same_request(&classes, &with(change), &service()), expected, "{name}, undone");
    }
}

#[test]
fn cleanup_needs_the_finalizer_and_a_deletion_or_another_type() {
    let finalizer: Change = |s| s.metadata.finalizers = Some(vec![FINALIZER.into()]);
    let node_port: Change = |s| spec(s).type_ = Some("NodePort".into());
    let deleted: Change = |s| s.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    let cases: [(&[Change], bool); 6] = [
        (&[], false),
        (&[node_port], false),
        (&[deleted], false),
        (&[finalizer], false),
        (&[finalizer, node_port], true),
        (&[finalizer, deleted], true),
    ];
    for (index, (changes, expected)) in cases.into_iter().enumerate() {
        let mut service = service();
        changes.iter().for_each(|change| change(&mut service));
        assert_eq!(needs_cleanup(&LoadBalancerClasses::default(), &service), expected, "case {index}");
    }
}
