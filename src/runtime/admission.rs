//! Admission webhooks: requests of the API server and the responses to them.
//!
//! In: an `AdmissionReview` of `admission.k8s.io/v1`. Out: an [`AdmissionRequest`] or an error; and the review with the
//! response. Upstream: `k8s.io/api/admission/v1`; the webhook server of `k8s.io/cloud-provider/app/webhooks.go`.

use async_trait::async_trait;
use k8s_openapi::ByteString;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json, value::RawValue};

use super::text::one_line;

/// Only version of `AdmissionReview` that is supported.
const VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";
/// Maximum number of list and map elements in a review. A decoded element takes up to a hundred times its bytes; a Service
/// has a few hundred elements.
const MOST_ELEMENTS: usize = 64 << 10;
/// Longest warning and message, in characters. The API server truncates longer texts, and kubectl prints each on one line.
const LONGEST_TEXT: usize = 512;
/// Maximum number of warnings in a response. The API server drops warnings beyond 4,096 characters in total.
const MOST_WARNINGS: usize = 10;

/// Kind or resource in a version of an API group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct AdmissionType {
    pub group: String,
    pub version: String,
    /// Name of the kind, or plural name of the resource.
    #[serde(alias = "resource")]
    pub kind: String,
}

/// Undecoded object of a request. The sender is untrusted, and a decoded object takes much more memory.
#[derive(Clone, Default, Deserialize)]
#[serde(transparent)]
pub struct AdmissionObject(Option<Box<RawValue>>);

impl AdmissionObject {
    /// Decodes the object; `None` if it is missing or of another type. Callers check resource and operation first.
    pub fn read<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_str(self.0.as_ref()?.get()).ok()
    }
}

impl From<Value> for AdmissionObject {
    fn from(document: Value) -> Self {
        Self(
            Some(document)
                .filter(|document| !document.is_null())
                .and_then(|document| RawValue::from_string(document.to_string()).ok()),
        )
    }
}

/// Change that the API server requests to review. Its `Debug` output contains nothing of the objects.
#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdmissionRequest {
    pub uid: String,
    pub kind: AdmissionType,
    pub resource: AdmissionType,
    pub sub_resource: String,
    pub name: String,
    pub namespace: String,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: String,
    /// Object after the change; null for a deletion.
    pub object: AdmissionObject,
    /// Current object; null for a creation.
    pub old_object: AdmissionObject,
}

impl std::fmt::Debug for AdmissionRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("AdmissionRequest");
        shown.field("uid", &self.uid).field("resource", &self.resource).field("operation", &self.operation);
        shown.finish_non_exhaustive()
    }
}

/// Response to an [`AdmissionRequest`].
#[derive(Debug, Clone, PartialEq)]
pub struct AdmissionAnswer {
    /// Reason for a refusal; `None` to allow the change.
    pub refusal: Option<String>,
    /// Warnings for the author, in either case.
    pub warnings: Vec<String>,
    /// Operations of a JSON patch; empty to leave the object unchanged.
    pub patch: Vec<Value>,
}

impl AdmissionAnswer {
    /// Creates a response that allows the change.
    pub fn allowed() -> Self {
        Self { refusal: None, warnings: Vec::new(), patch: Vec::new() }
    }

    /// Creates a response that refuses the change.
    pub fn refused(reason: impl Into<String>) -> Self {
        Self { refusal: Some(reason.into()), ..Self::allowed() }
    }

    /// Adds warnings to the response.
    #[must_use]
    pub fn with_warnings(mut self, warnings: impl IntoIterator<Item = String>) -> Self {
        self.warnings.extend(warnings);
        self
    }
}

/// Webhook that the manager serves if `--webhooks` names it.
///
/// It is called on every replica, whether it leads or not. So it must not write.
#[async_trait]
pub trait AdmissionWebhook: Send + Sync {
    /// Returns the name for `--webhooks`, which is the label of the metrics.
    fn name(&self) -> &'static str;
    /// Returns the HTTP path of the webhook, which starts with a slash.
    fn path(&self) -> &'static str;
    /// Returns the verdict on a change.
    ///
    /// # Errors
    ///
    /// Any error means that the response is 500, so the API server applies the `failurePolicy` of the webhook.
    async fn review(&self, request: &AdmissionRequest) -> Result<AdmissionAnswer, String>;
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionReviewDocument {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<AdmissionRequest>,
}

/// Parses a review. The error contains nothing of its content.
pub fn parse_review(body: &[u8]) -> Result<AdmissionRequest, String> {
    if body.is_empty() {
        return Err("the body is empty".to_owned());
    }
    if elements(body) > MOST_ELEMENTS {
        return Err(format!("the body has more than {MOST_ELEMENTS} elements"));
    }
    // The parser would also accept a list of fields in order.
    let body = Some(body).filter(|body| body.trim_ascii_start().starts_with(b"{"));
    let review: Option<AdmissionReviewDocument> = body.and_then(|body| serde_json::from_slice(body).ok());
    let review = review.ok_or_else(|| format!("the body is not an {KIND} in JSON"))?;
    if (review.api_version.as_str(), review.kind.as_str()) != (VERSION, KIND) {
        return Err(format!("the body is not an {KIND} of {VERSION}"));
    }
    review.request.ok_or_else(|| format!("the {KIND} has no request"))
}

/// Returns the number of opening brackets and commas outside of strings.
fn elements(body: &[u8]) -> usize {
    let (mut found, mut in_string, mut is_escaped) = (0, false, false);
    for byte in body {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' | b',' if !in_string => found += 1,
            _ => {}
        }
    }
    found
}

/// Returns the review with the response to the request `uid`.
pub fn respond_to_review(uid: &str, verdict: &AdmissionAnswer) -> Value {
    let mut response = json!({"uid": uid, "allowed": verdict.refusal.is_none()});
    if let Some(reason) = &verdict.refusal {
        response["status"] = json!({"code": 403, "reason": "Forbidden", "message": shortened(reason, 4 * LONGEST_TEXT)});
    }
    if !verdict.warnings.is_empty() {
        response["warnings"] = json!(bounded(&verdict.warnings));
    }
    if !verdict.patch.is_empty() && verdict.refusal.is_none() {
        response["patchType"] = json!("JSONPatch");
        response["patch"] = json!(ByteString(Value::from(verdict.patch.clone()).to_string().into_bytes()));
    }
    json!({"apiVersion": VERSION, "kind": KIND, "response": response})
}

fn bounded(warnings: &[String]) -> Vec<String> {
    let mut shown: Vec<String> = warnings.iter().take(MOST_WARNINGS).map(|text| shortened(text, LONGEST_TEXT)).collect();
    if let Some(more @ 1..) = warnings.len().checked_sub(MOST_WARNINGS) {
        shown.push(format!("and {more} more"));
    }
    shown
}

/// Returns the first characters of a text, on one line.
fn shortened(text: &str, longest: usize) -> String {
    one_line(&text.chars().take(longest).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_review_is_read() {
        let text = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","x":1,"request":{"uid":"u","operation":"UPDATE",
            "resource":{"group":"","version":"v1","resource":"services"},"kind":{"group":"","version":"v1","kind":"Service"},
            "name":"n","namespace":"ns","object":{"a":"secret"},"oldObject":{"b":1},"dryRun":false}}"#;
        let request = parse_review(text.as_bytes()).unwrap();
        assert_eq!(
            (request.uid.as_str(), request.operation.as_str(), request.resource.kind.as_str()),
            ("u", "UPDATE", "services")
        );
        let objects = (request.object.read::<Value>(), request.old_object.read::<Value>());
        assert_eq!(objects, (Some(json!({"a": "secret"})), Some(json!({"b": 1}))));
        assert!(AdmissionObject::from(Value::Null).read::<Value>().is_none());
        assert!(!format!("{request:?}").contains("secret"));
    }

    #[test]
    fn invalid_reviews_are_refused_without_their_content() {
        let review =
            |version: &str, kind: &str, rest: &str| format!(r#"{{"apiVersion":"{version}","kind":"{kind}"{rest}}}"#);
        for (text, expected) in [
            (String::new(), "empty"),
            ("secret".to_owned(), "not an AdmissionReview in JSON"),
            (r#"["admission.k8s.io/v1","AdmissionReview",{"uid":"secret"}]"#.to_owned(), "not an AdmissionReview in JSON"),
            ("{}".to_owned(), "not an AdmissionReview of admission.k8s.io/v1"),
            (review("admission.k8s.io/v1beta1", KIND, r#","request":{"uid":"secret"}"#), "not an AdmissionReview of"),
            (review(VERSION, "Service", r#","request":{"uid":"secret"}"#), "not an AdmissionReview of"),
            (review(VERSION, KIND, ""), "no request"),
            (review(VERSION, KIND, r#","request":null"#), "no request"),
            (review(VERSION, KIND, r#","response":{"uid":"secret"}"#), "no request"),
            (review(VERSION, KIND, r#","request":{"uid":{"secret":1}}"#), "not an AdmissionReview in JSON"),
        ] {
            let error = parse_review(text.as_bytes()).unwrap_err();
            assert!(error.contains(expected) && !error.contains("secret"), "{text}: {error}");
        }
    }

    #[test]
    fn a_small_body_that_would_be_large_in_memory_is_refused() {
        let review = |object: &str| {
            format!(r#"{{"apiVersion":"{VERSION}","kind":"{KIND}","request":{{"uid":"u","object":{object}}}}}"#)
        };
        let list = |element: &str| format!("[{}0]", element.repeat((3 << 20) / (element.len() + 1)));
        for object in [list(r#"{"":0},"#), list("[],"), list("0,"), format!(r#"{{"spec":{{"ports":{}}}}}"#, list("{},"))] {
            let error = parse_review(review(&object).as_bytes()).map(drop).unwrap_err();
            assert!(error.contains("more than 65536 elements"), "{error}");
        }
        for filling in [r#"{\",[\\"#, "x"] {
            let annotations = filling.repeat((1 << 20) / filling.len());
            let object = format!(r#"{{"metadata":{{"annotations":{{"a":"{annotations}"}}}}}}"#);
            let request = parse_review(review(&object).as_bytes()).unwrap();
            assert!(request.object.read::<k8s_openapi::api::core::v1::Service>().is_some());
        }
        assert_eq!((elements(br#"{"a":[1,2],"b":"\"{"}"#), elements(b"[\\\"{")), (4, 1));
    }

    #[test]
    fn responses_have_the_uid_and_bounded_texts() {
        let allowed = respond_to_review("u-1", &AdmissionAnswer::allowed());
        let expected = json!({"apiVersion": VERSION, "kind": KIND, "response": {"uid": "u-1", "allowed": true}});
        assert_eq!(allowed, expected);
        let long = "x\n".repeat(LONGEST_TEXT);
        let refused = AdmissionAnswer::refused(long.clone()).with_warnings(vec![long; MOST_WARNINGS + 2]);
        let response = respond_to_review("u", &refused)["response"].clone();
        let warnings = response["warnings"].as_array().unwrap().clone();
        assert_eq!((warnings.len(), &warnings[MOST_WARNINGS]), (MOST_WARNINGS + 1, &json!("and 2 more")));
        assert_eq!(warnings[0].as_str().unwrap().len(), LONGEST_TEXT);
        assert!(!response["status"]["message"].as_str().unwrap().contains('\n'));
        assert_eq!((&response["allowed"], &response["status"]["code"]), (&json!(false), &json!(403)));
    }

    #[test]
    fn a_patch_is_encoded_unless_the_change_is_refused() {
        let patch = vec![json!({"op": "add", "path": "/a", "value": 1})];
        let verdict = AdmissionAnswer { patch, ..AdmissionAnswer::allowed() };
        let response = respond_to_review("u", &verdict)["response"].clone();
        assert_eq!(response["patchType"], "JSONPatch");
        let decoded: ByteString = serde_json::from_value(response["patch"].clone()).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&decoded.0).unwrap(), json!(verdict.patch));
        let refused = AdmissionAnswer { refusal: Some("no".to_owned()), ..verdict };
        assert!(respond_to_review("u", &refused)["response"].get("patch").is_none());
    }
}
