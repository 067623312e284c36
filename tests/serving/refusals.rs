//! Requests that are refused early, without delay for other callers.

use std::{sync::atomic::Ordering, time::Duration};

use http::{Method, StatusCode};
use serde_json::Value;

use crate::serving::{
    api_server::reader,
    connections::{connect, head},
    port::{client, client_from, config, eventually, fetch, start},
};

#[tokio::test]
async fn malformed_requests_are_refused_without_a_review() {
    let api = reader("ann");
    let served = start(config(), Some(&api)).await;
    let long = "a".repeat(300);
    let rows = [
        ("PROPFIND", "/metrics".to_owned(), 405),
        ("TRACE", "/healthz".to_owned(), 405),
        ("GET", format!("/{long}"), 414),
        ("GET", format!("/healthz?exclude={}", long.repeat(10)), 414),
        ("GET", "/a[b]".to_owned(), 400),
    ];
    for (method, path, expected) in rows {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let request = client().request(method, served.url(&path)).bearer_auth("token-of-ann");
        let response = request.send().await.unwrap();
        let allow = response.headers().get("allow").cloned();
        let status: Value = response.json().await.unwrap();
        assert_eq!(status["code"], expected, "{path}");
        assert!(status["message"].as_str().unwrap().len() < 128, "{status}");
        assert_eq!(allow.is_some(), expected == 405);
    }
    assert_eq!((api.token_reviews.load(Ordering::SeqCst), api.access_reviews.load(Ordering::SeqCst)), (0, 0));
    let token = "t".repeat(17 * 1024);
    assert_eq!(served.get_as(&token, "/healthz").await.0, 401);
    assert_eq!(api.token_reviews.load(Ordering::SeqCst), 0, "a token without bound is not reviewed");
    let text = served.metrics.render().unwrap();
    assert!(text.contains("cloud_controller_manager_serving_requests_refused_total{reason=\"malformed\"} 5"), "{text}");
}

#[tokio::test]
async fn a_head_has_64_kib_at_most() {
    let served = start(config(), None).await;
    for (length, expected) in [(10_000, 200), (60_000, 200), (140_000, 431), (1_000_000, 431)] {
        let filler = "a".repeat(length);
        // The response is read while the head is sent, because a client that keeps sending may see a reset after the response.
        let (mut reader, mut writer) = tokio::io::split(connect(served.address).await.unwrap());
        let request = format!("HEAD /healthz HTTP/1.1\r\nhost: ccm\r\nx-filler: {filler}\r\n\r\n");
        let sent = tokio::io::AsyncWriteExt::write_all(&mut writer, request.as_bytes());
        let (_, response_head) = tokio::join!(sent, head(&mut reader));
        assert!(response_head.starts_with(&format!("HTTP/1.1 {expected} ")), "{length}: {response_head:?}");
        match client().get(served.url("/healthz")).header("x-filler", filler).send().await {
            Ok(response) => assert_eq!(response.status(), expected, "{length}"),
            // For a head in very many frames, HTTP/2 ends the connection with an error of its own.
            Err(error) => {
                let error = format!("{error:?}");
                assert!(length == 1_000_000 && error.contains("ENHANCE_YOUR_CALM"), "{length}: {error}");
            }
        }
    }
}

#[tokio::test]
async fn anonymous_callers_do_not_delay_authenticated_callers() {
    let api = reader("ann");
    api.silent_to_anonymous.store(true, Ordering::SeqCst);
    let served = start(config(), Some(&api)).await;
    let anonymous = client();
    let send = |number: usize| anonymous.get(served.url(&format!("/{number}"))).send();
    let waiting: Vec<_> = (0..8).map(|number| tokio::spawn(send(number))).collect();
    eventually("reviews", || async { api.access_reviews.load(Ordering::SeqCst) == 8 }).await;
    for number in 100..500 {
        let refused =
            tokio::time::timeout(Duration::from_secs(5), send(number)).await.expect("an immediate response").unwrap();
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(refused.headers()["retry-after"], "1");
    }
    assert_eq!(api.access_reviews.load(Ordering::SeqCst), 8);
    assert_eq!(served.get("/livez").await.0, 200);
    assert_eq!(served.get_as("token-of-ann", "/metrics").await.0, 200);
    api.silent_to_anonymous.store(false, Ordering::SeqCst);
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    eventually("room again", || async { served.get("/metrics").await.0 == 403 }).await;
}

#[tokio::test]
async fn junk_tokens_take_no_reviews_from_known_callers() {
    let api = reader("ann");
    api.tokens.lock().insert("token-of-bob".to_owned(), "bob".to_owned());
    api.silent_to_junk.store(true, Ordering::SeqCst);
    let mut config = config();
    config.authentication.token_cache_ttl = Duration::from_millis(1);
    let served = start(config, Some(&api)).await;
    assert_eq!(served.get_as("token-of-ann", "/metrics").await.0, 200, "her network is now known");

    let junk = |source: u8| {
        let (client, url) = (client_from([127, 0, 0, source]), served.url("/metrics"));
        (0..16).map(move |number| tokio::spawn(client.get(&url).bearer_auth(format!("junk-{source}-{number}")).send()))
    };
    let mut waiting: Vec<_> = (11..15).flat_map(junk).collect();
    eventually("reviews", || async { api.junk.load(Ordering::SeqCst) == 16 }).await;
    assert_eq!(served.get_as("token-of-ann", "/metrics").await.0, 200, "from a known network");
    let elsewhere = client_from([127, 0, 0, 20]).get(served.url("/metrics")).bearer_auth("token-of-ann");
    assert_eq!(fetch(elsewhere).await.0, 200, "from a new network");
    assert_eq!(api.junk.load(Ordering::SeqCst), 16, "more junk causes no review");

    waiting.extend(junk(1));
    eventually("reviews", || async { api.junk.load(Ordering::SeqCst) == 32 }).await;
    assert_eq!(served.get_as("token-of-bob", "/metrics").await.0, 429, "a token without a cached review");
    assert_eq!(served.get_as("token-of-ann", "/metrics").await.0, 200, "a token with a recent review");
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}
