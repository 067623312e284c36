//! The admission policy about annotations of Services on Azure: decoded by the API's own types, its expressions evaluated, and never of
//! another opinion than the table it is generated from.

use cloud_controller_manager::providers::azure::planner::load_balancer::annotations::{
    ANNOTATIONS, AnnotationEntry, PREFIX,
};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use serde_json::json;

use super::{admission::messages, *};

const POLICY: &str = "azure/admission/policy.yaml";

fn policy() -> ValidatingAdmissionPolicy {
    let [policy, binding] = <[Value; 2]>::try_from(documents(POLICY)).unwrap();
    assert_eq!(binding["spec"], json!({"policyName": policy["metadata"]["name"], "validationActions": ["Warn"]}));
    serde_json::from_value(policy).unwrap()
}

fn service(annotations: &Value) -> Value {
    json!({"metadata": {"name": "web", "annotations": annotations},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}, {"port": 443}]}})
}

fn told(object: &Value, old: &Value) -> Vec<String> {
    messages(&policy(), usize::MAX, [&json!({"operation": "CREATE"}), object, old])
}

fn key(row: &AnnotationEntry) -> String {
    row.key.replace("{p}", "80")
}

/// What is told when every row of the table has this text.
fn told_of_all(text: &str) -> Vec<String> {
    let annotations: serde_json::Map<_, _> = ANNOTATIONS.iter().map(|row| (key(row), text.into())).collect();
    told(&service(&annotations.into()), &Value::Null)
}

/// Rows in which a text that the program takes for another one, or of which it takes only a part, is told.
fn is_lenient(row: &AnnotationEntry) -> bool {
    let accepts = (row.accepts)();
    ["true", "count as", "service tags", "CIDR", "port of the Service", "public IP prefix"]
        .iter()
        .any(|word| accepts.contains(word))
        || accepts == "an IP address"
}

const SHORT_TEXTS: &[&str] = &[
    "", " ", "true", " TRUE ", "True", "false", "yes", "0", "1", "4", " 5 ", "+7", "0008", "9", "100", "101", "-5", "4.5",
    "tcp", " HTTPS ", "/healthz", "/a b", "a b", "name", "name-", "_x", "x_", "1x", "a.b", "ends.", "a/b", "10.0.0.1",
    "Internet", "a=b,c=d", "*", "__auto__", "s-1 s-2", "a,b", "http", "x\u{7}y", "x\u{85}y",
];
const LONG_TEXTS: &[&str] = &[
    "2147483647",
    "2147483648",
    "99999999999999999999999",
    "\u{a0}6\u{a0}",
    "Größe_(1)",
    " 10.0.0.1 , fd00::1",
    "10.0.0.0/8,fd00::/8",
    "10.0.0.1,x",
    "Internet, AzureCloud",
    "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/publicIPPrefixes/p",
];

fn texts() -> Vec<&'static str> {
    [SHORT_TEXTS, LONG_TEXTS].concat()
}

#[test]
fn what_the_program_takes_is_not_told() {
    let long = ["a".repeat(80), "a".repeat(81), "a".repeat(129), "a".repeat(200_000)];
    for text in texts().into_iter().chain(long.iter().map(String::as_str)) {
        let messages = told_of_all(text);
        for row in ANNOTATIONS.iter().filter(|row| !is_lenient(row) && !(row.refuses)(text)) {
            let mistaken = messages.iter().any(|message| message.starts_with(&format!("{}: ", row.key)));
            assert!(!mistaken, "{} {text:?}: {messages:?}", row.key);
        }
    }
}

/// The other direction, which CEL reaches only in part: most of what the table refuses is told.
#[test]
fn most_of_what_the_program_refuses_is_told() {
    let (mut refused, mut missed) = (0, Vec::new());
    for text in texts() {
        let messages = told_of_all(text);
        let is_invisible = messages.iter().any(|message| message.contains("control characters"));
        for row in ANNOTATIONS.iter().filter(|row| (row.refuses)(text)) {
            refused += 1;
            if !is_invisible && !messages.iter().any(|message| message.starts_with(&format!("{}: ", row.key))) {
                missed.push((row.key, text));
            }
        }
    }
    assert!(refused > 300 && missed.len() * 20 < refused, "{} of {refused} are missed: {missed:?}", missed.len());
}

#[test]
fn mistakes_are_told_with_key_and_format() {
    for (name, text, expected) in [
        ("azure-load-balancer-tcp-idle-timeout", "3", "a whole number from 4 to 100"),
        ("azure-load-balancer-tcp-idle-timeout", "four", "a whole number from 4 to 100"),
        ("azure-load-balancer-internal", "True", "exactly `true`"),
        ("azure-load-balancer-internal", "yes", "exactly `true`"),
        ("azure-disable-load-balancer-floating-ip", " true", "`true` in any letter case"),
        ("azure-dns-label-name", "Not_A_Label!", "3 to 63 lower-case letters"),
        ("azure-additional-public-ips", "10.0.0.1,x", "IP addresses between commas"),
        ("azure-allowed-ip-ranges", "everybody", "CIDR ranges between commas"),
        ("port_{p}_health-probe_interval", "4", "a whole number from 5 up"),
        ("port_{p}_health-probe_port", "No_Port", "the name of a port"),
    ] {
        let messages = told(&service(&json!({format!("{PREFIX}{}", name.replace("{p}", "443")): text})), &Value::Null);
        let [message] = messages.as_slice() else { panic!("{name} {text}: {messages:?}") };
        assert!(message.starts_with(&format!("{PREFIX}{name}: expected {expected}")), "{message}");
    }
    let misspelt = format!("{PREFIX}azure-load-balancer-internl");
    assert_eq!(
        told(&service(&json!({&misspelt: "true"})), &Value::Null),
        [format!("unknown annotation, ignored: {misspelt}")]
    );
}

#[test]
fn what_is_not_the_programs_or_was_there_before_is_not_told() {
    let timeout = format!("{PREFIX}azure-load-balancer-tcp-idle-timeout");
    let bad = service(&json!({&timeout: "1", "a": "b"}));
    let with = |pointer: &str, value: Value| {
        let mut object = bad.clone();
        object[pointer.split('/').next().unwrap()][pointer.split('/').nth(1).unwrap()] = value;
        object
    };
    assert_eq!(told(&bad, &Value::Null).len(), 1);
    assert_eq!(told(&bad, &with("spec/type", json!("ClusterIP"))).len(), 1, "the type changes: everything is new");
    assert_eq!(told(&bad, &service(&json!({&timeout: "2"}))).len(), 1, "another mistake");
    assert_eq!(told(&bad, &bad), [""; 0]);
    for other in [
        with("spec/type", json!("ClusterIP")),
        with("spec/loadBalancerClass", json!("example.com/other")),
        with("metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
        service(&json!({"service.beta.kubernetes.io/aws-load-balancer-type": "nlb", "azure-x": "y"})),
        service(&json!({format!("{PREFIX}port_81_health-probe_interval"): "1"})),
        json!({"metadata": {"name": "web"}, "spec": {"type": "LoadBalancer"}}),
    ] {
        assert_eq!(told(&other, &Value::Null), [""; 0], "{other}");
    }
}

#[test]
fn the_component_is_the_policy() {
    assert_eq!(component("azure/admission")["resources"], json!(["policy.yaml"]));
    let policy = policy().spec.unwrap();
    assert_eq!(policy.failure_policy.as_deref(), Some("Ignore"), "it is never in the way");
    assert_eq!(policy.validations.unwrap().len(), ANNOTATIONS.len() + 2);
}
