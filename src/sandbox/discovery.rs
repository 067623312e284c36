//! Description of the server: version, groups, resources, health, and a minimal OpenAPI document. Pure.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    kinds::{KINDS, Kind},
    refusal::Refusal,
};

/// A document, as JSON or as plain text.
#[derive(Debug, PartialEq)]
pub enum Document {
    Json(Value),
    Text(&'static str),
}

const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// Groups that only have reviews: group, path and kind of each.
const REVIEWS: [(&str, &str, &str); 3] = [
    ("authentication.k8s.io", "tokenreviews", "TokenReview"),
    ("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview"),
    ("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
];

/// Returns the document at `path`.
pub fn document(path: &str) -> Result<Document, Refusal> {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let json = match segments.as_slice() {
        ["healthz" | "readyz" | "livez", ..] => return Ok(Document::Text("ok")),
        ["version"] => version(),
        [] => json!({"paths": ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v2", "/readyz", "/version"]}),
        ["api"] => json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}),
        ["apis"] => {
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups().into_iter().map(group).collect::<Vec<_>>()})
        }
        ["api", "v1"] => resources("", "v1"),
        ["apis", name] if groups().contains(name) => typed_group(name),
        ["apis", name, "v1"] if groups().contains(name) => resources(name, "v1"),
        ["openapi", "v2"] => {
            json!({"swagger": "2.0", "info": {"title": "sandbox", "version": "v1"}, "paths": {}, "definitions": {}})
        }
        ["openapi", "v3"] => json!({"paths": KINDS.into_iter().map(openapi_entry).collect::<serde_json::Map<_, _>>()}),
        ["openapi", "v3", "api", "v1"] => openapi(""),
        ["openapi", "v3", "apis", name, "v1"] if groups().contains(name) => openapi(name),
        _ => return Err(Refusal::no_such_path()),
    };
    Ok(Document::Json(json))
}

fn base(kind: &Kind) -> String {
    if kind.group.is_empty() { "api/v1".to_owned() } else { format!("apis/{}/v1", kind.group) }
}

fn openapi_entry(kind: &Kind) -> (String, Value) {
    (base(kind), json!({"serverRelativeURL": format!("/openapi/v3/{}", base(kind))}))
}

/// Returns the minimum for which kubectl leaves validation to the server: PATCH of each kind accepts fieldValidation.
fn openapi(group: &str) -> Value {
    let paths = KINDS.into_iter().filter(|kind| kind.group == group).map(|kind| {
        let patch = json!({
            "parameters": [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}], "responses": {},
            "x-kubernetes-group-version-kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        });
        (format!("/{}/{}/{{name}}", base(kind), kind.plural), json!({"patch": patch}))
    });
    let paths: serde_json::Map<_, _> = paths.collect();
    json!({"openapi": "3.0.0", "info": {"title": "sandbox", "version": "v1"}, "paths": paths})
}

/// Returns the minor version that the crate's types have.
fn version() -> Value {
    json!({
        "major": "1", "minor": "37", "gitVersion": "v1.37.0-sandbox", "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none", "compiler": "rustc", "platform": "linux/amd64",
    })
}

fn groups() -> BTreeSet<&'static str> {
    let stored = KINDS.into_iter().map(|kind| kind.group).filter(|group| !group.is_empty());
    stored.chain(REVIEWS.into_iter().map(|(group, _, _)| group)).collect()
}

fn group(name: &str) -> Value {
    let version = json!({"groupVersion": format!("{name}/v1"), "version": "v1"});
    json!({"name": name, "versions": [version], "preferredVersion": version})
}

fn typed_group(name: &str) -> Value {
    let mut group = group(name);
    group["kind"] = json!("APIGroup");
    group["apiVersion"] = json!("v1");
    group
}

fn resources(group: &str, version: &str) -> Value {
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let stored = KINDS.into_iter().filter(|kind| kind.group == group).flat_map(of_kind);
    let reviews = REVIEWS.into_iter().filter(|(of, _, _)| *of == group);
    let reviews = reviews.map(|(_, plural, kind)| {
        json!({"name": plural, "singularName": kind.to_lowercase(), "namespaced": false, "kind": kind, "verbs": ["create"]})
    });
    let resources: Vec<_> = stored.chain(reviews).collect();
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources})
}

fn of_kind(kind: &Kind) -> Vec<Value> {
    let mut resources = vec![json!({
        "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind,
        "verbs": VERBS, "shortNames": kind.short_names,
    })];
    if kind.status {
        resources.push(json!({
            "name": format!("{}/status", kind.plural), "singularName": "", "namespaced": kind.namespaced, "kind": kind.kind,
            "verbs": ["get", "patch", "update"],
        }));
    }
    if kind.plural == "serviceaccounts" {
        resources.push(json!({
            "name": "serviceaccounts/token", "singularName": "", "namespaced": true, "group": "authentication.k8s.io",
            "version": "v1", "kind": "TokenRequest", "verbs": ["create"],
        }));
    }
    resources
}
