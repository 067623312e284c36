//! ValidatingAdmissionPolicy about annotations of Services, derived from the table: the checks that CEL can do without the program. Pure.
//!
//! Out: the manifest. The policy checks only what a request adds or changes, so that a Service with old mistakes remains editable. The
//! policy checks nothing that depends on the configuration or on other annotations.

use super::{ANNOTATIONS, AnnotationEntry, PREFIX};

/// Name of policy and binding.
const NAME: &str = "azure-service-annotations";

const HEAD: &str = r#"# Generated from the table in src/providers/azure/planner/load_balancer/annotations.rs; do not edit. `make docs` writes it again.
# What the API server can say about the annotations of Services without asking the program; docs/guides/webhooks.md explains it.
# For Kubernetes 1.30 and newer.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: NAME
spec:
  failurePolicy: Ignore
  matchConstraints:
    resourceRules:
    - apiGroups: [""]
      apiVersions: [v1]
      operations: [CREATE, UPDATE]
      resources: [services]
  matchConditions:
  - name: load-balancer-of-the-cloud
    expression: object.spec.?type.orValue('') == 'LoadBalancer' && !has(object.spec.loadBalancerClass)
  - name: not-being-deleted
    expression: "!has(object.metadata.deletionTimestamp)"
  variables:
  - name: before
    expression: >-
      oldObject != null && oldObject.spec.?type.orValue('') == 'LoadBalancer' && !has(oldObject.spec.loadBalancerClass)
      ? oldObject.metadata.?annotations.orValue({}) : {}
  - name: after
    expression: object.metadata.?annotations.orValue({})
  # Keys that the request adds, or whose values it changes.
  - name: given
    expression: >-
      variables.after.filter(key, key.startsWith('PREFIX')
      && !(key in variables.before && variables.before[key] == variables.after[key]))
  - name: ports
    expression: object.spec.?ports.orValue([]).map(port, string(port.port))
  validations:
"#;

const BINDING: &str = "---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: NAME
spec:
  policyName: NAME
  # Deny refuses instead. It is stricter than the program in annotations that do not count for a Service.
  validationActions: [Warn]
";

/// Returns the text of `manifests/azure/admission/policy.yaml`.
pub fn admission_policy() -> String {
    let validations: String = [unknown(), invisible()].into_iter().chain(ANNOTATIONS.iter().map(of_row)).collect();
    [HEAD, &validations, BINDING].concat().replace("NAME", NAME).replace("PREFIX", PREFIX)
}

fn validation(expression: &str, told: &str) -> String {
    format!("  - expression: >-\n      {expression}\n    {told}\n")
}

fn message(text: &str) -> String {
    format!("message: '{}'", text.replace('\'', "''"))
}

fn unknown() -> String {
    let services = ANNOTATIONS.iter().filter(|row| !row.key.contains("{p}"));
    let known: Vec<_> = services.map(|row| format!("'{}'", row.key)).collect();
    let is_unknown = format!("key.startsWith('PREFIXazure-') && !(key in [{}])", known.join(", "));
    let told = format!(
        "messageExpression: >-\n      'unknown annotation, ignored: ' + variables.given.filter(key, {is_unknown})[0]"
    );
    validation(&format!("variables.given.all(key, !({is_unknown}))"), &told)
}

/// Returns the check that forbids the control characters that the reader of annotations refuses.
fn invisible() -> String {
    let expression = r"variables.given.all(key, !variables.after[key].matches(r'[\x00-\x08\x0b\x0e-\x1f\x7f-\x{9f}]'))";
    validation(expression, &message("annotations of Services must not have control characters"))
}

fn of_row(row: &AnnotationEntry) -> String {
    let told = message(&format!("{}: expected {}", row.key, (row.accepts)()));
    validation(&expression(row), &told)
}

fn expression(row: &AnnotationEntry) -> String {
    match row.key.split_once("{p}") {
        None => {
            let key = format!("'{}'", row.key);
            format!("!({key} in variables.given) || ({})", accepted(row, &format!("variables.after[{key}]")))
        }
        Some((start, end)) => {
            let key = format!("('{start}' + port + '{end}')");
            let value = format!("variables.after[{key}]");
            format!("variables.ports.all(port, !({key} in variables.given) || ({}))", accepted(row, &value))
        }
    }
}

/// Returns the expression that accepts the text at `value`. CEL counts characters, and the table counts bytes, of which there are as many
/// or more.
fn accepted(row: &AnnotationEntry, value: &str) -> String {
    let length = Some(format!("size({value}) <= {}", row.longest));
    let pattern = (row.pattern)().map(|pattern| format!("{value}.matches(r'{pattern}')"));
    let bounds = (row.bounds)().map(|(least, most)| {
        format!("(!{value}.matches('^[0-9]{{1,18}}$') || (int({value}) >= {least} && int({value}) <= {most}))")
    });
    length.into_iter().chain(pattern).chain(bounds).collect::<Vec<_>>().join(" && ")
}
