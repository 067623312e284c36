use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::*;
use crate::runtime::admission::AdmissionAnswer;

const LIMIT: usize = 3 << 20;

/// Does what the name of the object says.
struct Obedient;

#[async_trait]
impl AdmissionWebhook for Obedient {
    fn name(&self) -> &'static str {
        "obedient"
    }

    fn path(&self) -> &'static str {
        "/obey"
    }

    async fn review(&self, request: &AdmissionRequest) -> Result<AdmissionAnswer, String> {
        match request.name.as_str() {
            "fail" => Err("out of order".to_owned()),
            "hang" => std::future::pending().await,
            "refuse" => Ok(AdmissionAnswer::refused("no").with_warnings(["hm".to_owned()])),
            "panic" => std::panic::panic_any("on purpose"),
            _ => Ok(AdmissionAnswer::allowed()),
        }
    }
}

fn host() -> WebhookHost {
    WebhookHost::new(vec![Arc::new(Obedient)], Arc::new(Metrics::new().unwrap()))
}

fn review(name: &str) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "0c7b", "name": name, "operation": "CREATE", "object": {"data": "pl4nt3d"}}})
}

fn request(method: &str, path: &str, content_type: Option<&str>, body: impl Into<Body>) -> Request<Body> {
    let request = Request::builder().method(method).uri(path);
    let request = content_type.into_iter().fold(request, |request, value| request.header("content-type", value));
    request.body(body.into()).unwrap()
}

fn admission_request(name: &str) -> Request<Body> {
    request("POST", "/obey?timeout=10s", Some("application/json"), review(name).to_string())
}

async fn respond(host: &WebhookHost, request: Request<Body>) -> (u16, String) {
    let response = host.respond(request).await;
    let status = response.status().as_u16();
    (status, String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap())
}

fn counted(host: &WebhookHost, code: &str) -> f64 {
    host.metrics.webhook_requests_total.with_label_values(&[code, "obedient"]).get()
}

#[tokio::test]
async fn invalid_requests_get_plain_text_responses() {
    let host = host();
    let valid = review("x").to_string();
    let json = Some("application/json");
    let long = |length: usize| Body::from(vec![b' '; length]);
    let unsized_body = |length: usize| {
        let pieces = std::iter::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from(vec![b' '; 1 << 16]))).take(length >> 16);
        Body::from_stream(futures::stream::iter(pieces))
    };
    for (request, code) in [
        (request("POST", "/", json, valid.clone()), 404),
        (request("POST", "/obey/", json, valid.clone()), 404),
        (request("POST", "/obey/more", json, valid.clone()), 404),
        (request("GET", "/obey", None, ""), 400),
        (request("GET", "/obey", json, valid.clone()), 400),
        (request("POST", "/obey", None, valid.clone()), 400),
        (request("POST", "/obey", Some("application/json; charset=utf-8"), valid.clone()), 400),
        (request("POST", "/obey", Some("application/yaml"), valid.clone()), 400),
        (request("POST", "/obey", json, ""), 400),
        (request("POST", "/obey", json, "{"), 400),
        (request("POST", "/obey", json, valid.replace("/v1", "/v1beta1")), 400),
        (request("POST", "/obey", json, valid.replace("AdmissionReview", "Service")), 400),
        (request("POST", "/obey", json, valid.replace("request", "response")), 400),
        (request("POST", "/obey", json, long(LIMIT)), 400),
        (request("POST", "/obey", json, long(LIMIT + 1)), 413),
        (request("POST", "/obey", json, unsized_body(LIMIT)), 400),
        (request("POST", "/obey", json, unsized_body(LIMIT + (1 << 16))), 413),
    ] {
        let about = format!("{} {}", request.method(), request.uri());
        let response = host.respond(request).await;
        assert_eq!(response.status().as_u16(), code, "{about}");
        assert_eq!(response.headers()["content-type"], "text/plain; charset=utf-8", "{about}");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(!String::from_utf8_lossy(&body).contains("pl4nt3d"), "{about}");
    }
    assert_eq!((counted(&host, "400"), counted(&host, "413")), (12.0, 2.0));
}

#[tokio::test]
async fn the_response_has_the_uid_of_the_request() {
    let host = host();
    let (code, body) = respond(&host, admission_request("x")).await;
    let expected = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {"uid": "0c7b", "allowed": true}});
    assert_eq!((code, serde_json::from_str::<Value>(&body).unwrap()), (200, expected));
    let (code, body) = respond(&host, admission_request("refuse")).await;
    let response = serde_json::from_str::<Value>(&body).unwrap()["response"].clone();
    assert_eq!((code, &response["uid"], &response["allowed"]), (200, &json!("0c7b"), &json!(false)));
    assert_eq!((&response["status"]["message"], &response["warnings"]), (&json!("no"), &json!(["hm"])));
    assert_eq!(counted(&host, "200"), 2.0);
}

#[tokio::test]
async fn failures_and_panics_affect_only_their_request() {
    let host = host();
    assert_eq!(respond(&host, admission_request("fail")).await, (500, "out of order".to_owned()));
    assert_eq!(respond(&host, admission_request("panic")).await, (500, "the webhook panicked".to_owned()));
    assert_eq!(respond(&host, admission_request("x")).await.0, 200);
    assert_eq!(counted(&host, "500"), 2.0);
}

#[tokio::test(start_paused = true)]
async fn responses_and_bodies_have_deadlines() {
    let host = host();
    let begun = Instant::now();
    assert_eq!(respond(&host, admission_request("hang")).await, (500, "no response in time".to_owned()));
    assert_eq!(begun.elapsed(), DEADLINE);
    let silent = Body::from_stream(futures::stream::pending::<std::io::Result<Bytes>>());
    let silent = request("POST", "/obey", Some("application/json"), silent);
    assert_eq!(respond(&host, silent).await.0, 408);
    assert_eq!(begun.elapsed(), DEADLINE + Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn bodies_share_a_memory_budget() {
    let host = host();
    let stuck = || {
        let begun = futures::stream::iter([Ok::<_, std::io::Error>(Bytes::from(vec![b' '; LIMIT]))]);
        let body = Body::from_stream(begun.chain(futures::stream::pending()));
        host.respond(request("POST", "/obey", Some("application/json"), body))
    };
    // Four bodies that never end use the whole budget; the fifth request waits until their deadline.
    let mut four = Box::pin(futures::future::join_all((0..4).map(|_| stuck())));
    assert!(futures::poll!(&mut four).is_pending());
    let begun = Instant::now();
    tokio::time::advance(Duration::from_secs(1)).await;
    let mut fifth = Box::pin(host.respond(admission_request("x")));
    assert!(futures::poll!(&mut fifth).is_pending());
    let (four, fifth) = tokio::join!(four, fifth);
    assert!(four.iter().all(|reply| reply.status().as_u16() == 408));
    assert_eq!((begun.elapsed(), fifth.status().as_u16()), (Duration::from_secs(2), 200));
}
