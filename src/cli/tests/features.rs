//! Groups of flags: leader migration, webhooks, classes of load balancers, content types, cipher suites.

use std::io::Write;

use super::*;

#[test]
fn the_leader_migration_file_is_checked_when_enabled() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "kind: Nothing").unwrap();
    let flag = format!("--leader-migration-config={}", file.path().display());
    assert_eq!(config(&flag).leader_migration, None, "it is not enabled");
    let default = config("--enable-leader-migration").leader_migration.unwrap();
    assert_eq!(default.lease_name, "cloud-provider-extraction-migration");
    let lines = errors(&format!("{flag} --enable-leader-migration"));
    assert_eq!(lines.len(), 1);
    assert!(lines[0].contains("for --leader-migration-config: "), "{lines:?}");
    assert_eq!(errors("--enable-leader-migration --leader-migration-config=/does/not/exist").len(), 1);
}

#[test]
fn webhooks_need_the_gate_and_a_name() {
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
    for (line, expected) in [
        ("--webhook-secure-port=10258", "--webhook-secure-port, --secure-port: the ports are the same"),
        ("--webhook-secure-port=65536", "--webhook-secure-port"),
        ("--webhook-tls-cert-file=/a", "--webhook-tls-cert-file and --webhook-tls-private-key-file must be given together"),
        ("--webhook-tls-min-version=x", "--webhook-tls-min-version"),
        ("--webhook-tls-cipher-suites=x", "--webhook-tls-cipher-suites"),
        ("--webhook-tls-curve-preferences=7", "--webhook-tls-curve-preferences"),
        ("--webhook-service=hooks", "--webhook-service: expected namespace/name"),
        ("--webhook-configurations=other/x", "--webhook-configurations: expected"),
        (
            "--webhook-configurations=x --webhook-tls-cert-file=/a --webhook-tls-private-key-file=/b",
            "only the authority of a generated certificate",
        ),
    ] {
        let errors = errors(&format!("{GATE} --webhooks=a {line}"));
        assert!(errors.iter().any(|error| error.contains(expected)), "{line}: {errors:?}");
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
    for (line, expected) in [
        ("--load-balancer-class=a/b/c", "invalid value \"a/b/c\" for --load-balancer-class: expected a name"),
        ("--serve-services-without-class=false", "--serve-services-without-class: no Service would get a load balancer"),
    ] {
        let errors = errors(line);
        assert!(errors.len() == 1 && errors[0].contains(expected), "{line}: {errors:?}");
    }
}

#[test]
fn content_types_of_go_are_accepted_and_others_are_errors() {
    let notices = |line: &str| config(line).notices;
    for silent in ["", "--kube-api-content-type=", "--kube-api-content-type=application/json"] {
        assert_eq!(notices(silent), Vec::<String>::new(), "{silent}");
    }
    let warnings = notices("--kube-api-content-type=application/vnd.kubernetes.protobuf");
    assert!(warnings.len() == 1 && warnings[0].contains("has no effect: requests are application/json"), "{warnings:?}");
    let errors = errors("--kube-api-content-type=application/yaml");
    let expected = "for --kube-api-content-type: expected application/json or application/vnd.kubernetes.protobuf";
    assert!(errors.len() == 1 && errors[0].contains(expected), "{errors:?}");
}

#[test]
fn deprecated_labels_are_set_once_or_reconciled() {
    use crate::controllers::node::BetaLabels::{Initial, Reconciled};
    for (line, expected) in [("", Initial), ("--enable-deprecated-beta-topology-labels", Reconciled)] {
        assert_eq!(config(line).node.beta_labels, expected, "{line}");
    }
}

#[test]
fn weak_ciphers_are_omitted_and_reported() {
    let config = config("--tls-cipher-suites=TLS_RSA_WITH_RC4_128_SHA,TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305");
    assert_eq!(config.serving.tls_cipher_suites, ["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"]);
    assert_eq!(config.notices, ["cipher suite TLS_RSA_WITH_RC4_128_SHA is too weak and is not offered"]);
}
