//! Flags that belong together: leader migration, webhooks, classes of load balancers, content types.

use std::io::Write;

use super::*;

#[test]
fn the_leader_migration_file_is_checked_when_enabled() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "kind: Nothing").unwrap();
    let flag = format!("--leader-migration-config={}", file.path().display());
    assert_eq!(config(&flag).leader_migration, None, "it is not switched on");
    let default = config("--enable-leader-migration").leader_migration.unwrap();
    assert_eq!(default.lease_name, "cloud-provider-extraction-migration");
    let lines = complaints(&format!("{flag} --enable-leader-migration"));
    assert_eq!(lines.len(), 1);
    assert!(lines[0].contains("for --leader-migration-config: "), "{lines:?}");
    assert_eq!(complaints("--enable-leader-migration --leader-migration-config=/does/not/exist").len(), 1);
}

#[test]
fn webhooks_are_served_when_the_gate_is_on_and_one_is_named() {
    const GATE: &str = "--feature-gates=CloudControllerManagerWebhook=true";
    let served =
        config(&format!("{GATE} --webhooks=*,-b --webhook-secure-port=9443 --webhook-service=ns/hooks")).webhooks.unwrap();
    assert_eq!((served.names, served.secure.port), (vec!["*".to_owned(), "-b".to_owned()], 9443));
    assert_eq!(
        (served.secure.own_names, served.service.host()),
        (vec!["hooks.ns.svc".to_owned()], "hooks.ns.svc".to_owned())
    );
    assert_eq!(served.secure.pair_name, "cloud-controller-manager-webhook");
    for line in
        ["--webhooks=a", GATE, &format!("{GATE} --webhooks=a --webhook-secure-port=0"), "--webhook-secure-port=10258"]
    {
        assert_eq!(config(line).webhooks, None, "{line}");
    }
    for (line, told) in [
        ("--webhook-secure-port=10258", "--webhook-secure-port, --secure-port: they are the same"),
        ("--webhook-secure-port=65536", "--webhook-secure-port"),
        ("--webhook-tls-cert-file=/a", "--webhook-tls-cert-file and --webhook-tls-private-key-file must be given together"),
        ("--webhook-tls-min-version=x", "--webhook-tls-min-version"),
        ("--webhook-tls-cipher-suites=x", "--webhook-tls-cipher-suites"),
        ("--webhook-tls-curve-preferences=7", "--webhook-tls-curve-preferences"),
        ("--webhook-service=hooks", "--webhook-service: want namespace/name"),
        ("--webhook-configurations=other/x", "--webhook-configurations: want"),
        (
            "--webhook-configurations=x --webhook-tls-cert-file=/a --webhook-tls-private-key-file=/b",
            "only the authority of a self-made certificate",
        ),
    ] {
        let complaints = complaints(&format!("{GATE} --webhooks=a {line}"));
        assert!(complaints.iter().any(|complaint| complaint.contains(told)), "{line}: {complaints:?}");
    }
}

#[test]
fn a_class_is_checked_and_reaches_controller_and_provider() {
    let class = |line: &str| {
        let config = config(line);
        assert_eq!(config.service.classes, config.cloud.config.load_balancer_classes);
        config.service.classes
    };
    use crate::cloud_provider::load_balancer_class::LoadBalancerClasses;
    let of = |class, without| LoadBalancerClasses::new(class, without).unwrap();
    assert_eq!(class(""), LoadBalancerClasses::default());
    assert_eq!(class("--load-balancer-class=example.com/azure"), of(Some("example.com/azure"), true));
    let alone = "--load-balancer-class=azure --serve-services-without-class=false";
    assert_eq!(class(alone), of(Some("azure"), false));
    for (line, told) in [
        ("--load-balancer-class=a/b/c", "invalid value \"a/b/c\" for --load-balancer-class: want a name"),
        ("--serve-services-without-class=false", "--serve-services-without-class: no Service would get a load balancer"),
    ] {
        let complaints = complaints(line);
        assert!(complaints.len() == 1 && complaints[0].contains(told), "{line}: {complaints:?}");
    }
}

#[test]
fn content_types_of_go_are_taken_and_others_are_not() {
    let notices = |line: &str| config(line).notices;
    for quiet in ["", "--kube-api-content-type=", "--kube-api-content-type=application/json"] {
        assert_eq!(notices(quiet), Vec::<String>::new(), "{quiet}");
    }
    let told = notices("--kube-api-content-type=application/vnd.kubernetes.protobuf");
    assert!(told.len() == 1 && told[0].contains("requests are application/json nevertheless"), "{told:?}");
    let complaints = complaints("--kube-api-content-type=application/yaml");
    let wanted = "for --kube-api-content-type: want application/json or application/vnd.kubernetes.protobuf";
    assert!(complaints.len() == 1 && complaints[0].contains(wanted), "{complaints:?}");
}

#[test]
fn deprecated_labels_are_set_once_or_reconciled() {
    use crate::controllers::node::BetaLabels::{Initial, Reconciled};
    for (line, expected) in [("", Initial), ("--enable-deprecated-beta-topology-labels", Reconciled)] {
        assert_eq!(config(line).node.beta_labels, expected, "{line}");
    }
}
