//! The admission policy for annotations of Services on Azure, decoded with the types of the API and evaluated: it never contradicts the
//! table from which it is generated.

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

fn warnings(object: &Value, old: &Value) -> Vec<String> {
    messages(&policy(), usize::MAX, [&json!({"operation": "CREATE"}), object, old])
}

fn key(row: &AnnotationEntry) -> String {
    row.key.replace("{p}", "80")
}

/// Returns the warnings for a Service that has this text in every annotation.
fn warnings_for_all(text: &str) -> Vec<String> {
    let annotations: serde_json::Map<_, _> = ANNOTATIONS.iter().map(|row| (key(row), text.into())).collect();
    warnings(&service(&annotations.into()), &Value::Null)
}

/// Returns `true` for rows with warnings about texts that the program accepts as another text, or only in part.
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
fn values_that_the_program_accepts_get_no_warning() {
    let long = ["a".repeat(80), "a".repeat(81), "a".repeat(129), "a".repeat(200_000)];
    for text in texts().into_iter().chain(long.iter().map(String::as_str)) {
        let messages = warnings_for_all(text);
        for row in ANNOTATIONS.iter().filter(|row| !is_lenient(row) && !(row.refuses)(text)) {
            let mistaken = messages.iter().any(|message| message.starts_with(&format!("{}: ", row.key)));
            assert!(!mistaken, "{} {text:?}: {messages:?}", row.key);
        }
    }
}

/// CEL cannot express every check of the table, so some refused values get no warning.
#[test]
fn most_values_that_the_program_refuses_get_a_warning() {
    let (mut refused, mut missed) = (0, Vec::new());
    for text in texts() {
        let messages = warnings_for_all(text);
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
fn warnings_name_key_and_format() {
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
        let messages = warnings(&service(&json!({format!("{PREFIX}{}", name.replace("{p}", "443")): text})), &Value::Null);
        let [message] = messages.as_slice() else { panic!("{name} {text}: {messages:?}") };
        assert!(message.starts_with(&format!("{PREFIX}{name}: expected {expected}")), "{message}");
    }
    let misspelled = format!("{PREFIX}azure-load-balancer-internl");
    assert_eq!(
        warnings(&service(&json!({&misspelled: "true"})), &Value::Null),
        [format!("unknown annotation, ignored: {misspelled}")]
    );
}

#[test]
fn foreign_and_unchanged_annotations_get_no_warning() {
    let timeout = format!("{PREFIX}azure-load-balancer-tcp-idle-timeout");
    let bad = service(&json!({&timeout: "1", "a": "b"}));
    let with = |pointer: &str, value: Value| {
        let mut object = bad.clone();
        object[pointer.split('/').next().unwrap()][pointer.split('/').nth(1).unwrap()] = value;
        object
    };
    assert_eq!(warnings(&bad, &Value::Null).len(), 1);
    assert_eq!(warnings(&bad, &with("spec/type", json!("ClusterIP"))).len(), 1, "the type changes: everything is new");
    assert_eq!(warnings(&bad, &service(&json!({&timeout: "2"}))).len(), 1, "another mistake");
    assert_eq!(warnings(&bad, &bad), [""; 0]);
    for other in [
        with("spec/type", json!("ClusterIP")),
        with("spec/loadBalancerClass", json!("example.com/other")),
        with("metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
        service(&json!({"service.beta.kubernetes.io/aws-load-balancer-type": "nlb", "azure-x": "y"})),
        service(&json!({format!("{PREFIX}port_81_health-probe_interval"): "1"})),
        json!({"metadata": {"name": "web"}, "spec": {"type": "LoadBalancer"}}),
    ] {
        assert_eq!(warnings(&other, &Value::Null), [""; 0], "{other}");
    }
}

#[test]
fn the_component_is_the_policy() {
    assert_eq!(component("azure/admission")["resources"], json!(["policy.yaml"]));
    let policy = policy().spec.unwrap();
    assert_eq!(policy.failure_policy.as_deref(), Some("Ignore"), "the policy blocks no request");
    assert_eq!(policy.validations.unwrap().len(), ANNOTATIONS.len() + 2);
}
