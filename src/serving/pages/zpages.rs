//! `/statusz` and `/flagz`: text, the objects that KEP-4827 and KEP-4828 define, or the program's own JSON.
//!
//! In: query and `Accept` header. Out: the page in the form that they select, or 406. Upstream:
//! `apiserver/pkg/server/statusz` and `flagz`.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    extract::Query,
    http::{HeaderMap, StatusCode, header::ACCEPT},
    response::{IntoResponse, Response},
};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    super::deps::ServingDeps,
    responses::{plain, refuse},
};
use crate::runtime::{clock::Clock, yaml};

const GROUP: &str = "config.k8s.io";
const VERSION: &str = "v1beta1";
/// Pages that respond to GET, for the list in upstream's object.
const PATHS: &[&str] = &["/configz", "/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/statusz"];

/// Description of the process in objects.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProcessDescription {
    component: &'static str,
    started: Timestamp,
    started_at: Instant,
}

impl ProcessDescription {
    pub(super) fn new(component: &'static str, clock: Clock) -> Self {
        Self { component, started: clock.wall(), started_at: clock.now() }
    }
}

/// Form of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageForm {
    Text,
    /// JSON in the format of this program (`?format=json`).
    OwnJson,
    /// Object of upstream's API group, as JSON.
    Object,
}

/// Returns the form that the request selects, or `None` if this page does not have it. `kind` is that of upstream's object.
fn form(query: &[(String, String)], headers: &HeaderMap, kind: &str) -> Option<PageForm> {
    if query.iter().any(|(key, value)| key == "format" && value == "json") {
        return Some(PageForm::OwnJson);
    }
    let accept = headers.get(ACCEPT).map_or(Some(""), |accept| accept.to_str().ok())?;
    if accept.trim().is_empty() {
        return Some(PageForm::Text);
    }
    accept.split(',').find_map(|range| form_of_range(range, kind))
}

fn form_of_range(range: &str, kind: &str) -> Option<PageForm> {
    let mut parts = range.split(';').map(str::trim);
    let media_type = parts.next()?.to_ascii_lowercase();
    let parameters: BTreeMap<&str, &str> = parts.filter_map(|part| part.split_once('=')).collect();
    let object = [("as", kind), ("g", GROUP), ("v", VERSION)];
    let names_object = object.iter().all(|(key, value)| parameters.get(key) == Some(value));
    match media_type.as_str() {
        "text/plain" | "text/*" | "*/*" if !parameters.contains_key("as") => Some(PageForm::Text),
        "application/json" | "application/*" if names_object => Some(PageForm::Object),
        _ => None,
    }
}

fn not_acceptable(kind: &str) -> Response {
    let message = format!(
        "only the following media types are accepted: text/plain, application/json;v={VERSION};g={GROUP};as={kind}; ?format=json \
         selects the JSON of this program"
    );
    refuse(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", &message)
}

/// Returns an object of `kind` about the process, with additional `fields`.
fn object(kind: &str, process: &ProcessDescription, fields: Value) -> Response {
    let mut object = json!({
        "kind": kind, "apiVersion": format!("{GROUP}/{VERSION}"), "metadata": {"name": process.component},
    });
    if let (Some(object), Value::Object(fields)) = (object.as_object_mut(), fields) {
        object.extend(fields);
    }
    axum::Json(object).into_response()
}

pub(super) async fn flagz(
    deps: Arc<ServingDeps>,
    process: ProcessDescription,
    Query(query): Query<Vec<(String, String)>>,
    headers: HeaderMap,
) -> Response {
    const KIND: &str = "Flagz";
    let flags = || deps.flagz.iter().cloned().collect::<BTreeMap<_, _>>();
    match form(&query, &headers, KIND) {
        Some(PageForm::Text) => {
            let lines: String = deps.flagz.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
            plain(StatusCode::OK, format!("cloud-controller-manager flags\n\n{lines}"))
        }
        Some(PageForm::OwnJson) => axum::Json(flags()).into_response(),
        Some(PageForm::Object) => object(KIND, &process, json!({"flags": flags()})),
        None => not_acceptable(KIND),
    }
}

pub(super) async fn statusz(
    deps: Arc<ServingDeps>,
    process: ProcessDescription,
    Query(query): Query<Vec<(String, String)>>,
    headers: HeaderMap,
) -> Response {
    const KIND: &str = "Statusz";
    let status = || (deps.status)();
    match form(&query, &headers, KIND) {
        Some(PageForm::Text) => {
            let text = yaml::print(&json!(status())).unwrap_or_else(|error| format!("{error}\n"));
            plain(StatusCode::OK, format!("cloud-controller-manager status\n\n{text}"))
        }
        Some(PageForm::OwnJson) => axum::Json(json!(status())).into_response(),
        Some(PageForm::Object) => {
            let fields = json!({
                "startTime": format!("{:.0}", process.started),
                "uptimeSeconds": process.started_at.elapsed().as_secs(),
                // Upstream requires the field; this program is not built with Go.
                "goVersion": "",
                "binaryVersion": status().version,
                "paths": PATHS,
            });
            object(KIND, &process, fields)
        }
        None => not_acceptable(KIND),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accept_header_selects_the_form() {
        const OBJECT: &str = "application/json;v=v1beta1;g=config.k8s.io;as=Statusz";
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        let both = format!("application/yaml;v=v1beta1;g=config.k8s.io;as=Statusz, {OBJECT}");
        for (accept, expected) in [
            ("", Some(PageForm::Text)),
            ("*/*", Some(PageForm::Text)),
            ("text/plain", Some(PageForm::Text)),
            (browser, Some(PageForm::Text)),
            (OBJECT, Some(PageForm::Object)),
            ("application/json; as=Statusz; g=config.k8s.io; v=v1beta1", Some(PageForm::Object)),
            (&both, Some(PageForm::Object)),
            ("application/json;v=v1beta1;g=config.k8s.io;as=Flagz", None),
            ("application/json;v=v1alpha1;g=config.k8s.io;as=Statusz", None),
            ("application/json", None),
            ("application/yaml", None),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, accept.parse().unwrap())]);
            assert_eq!(form(&[], &headers, "Statusz"), expected, "{accept}");
        }
        assert_eq!(form(&[], &HeaderMap::new(), "Statusz"), Some(PageForm::Text));
        let own = [("format".to_owned(), "json".to_owned())];
        let yaml = HeaderMap::from_iter([(ACCEPT, "application/yaml".parse().unwrap())]);
        assert_eq!(form(&own, &yaml, "Statusz"), Some(PageForm::OwnJson));
    }
}
