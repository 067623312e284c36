//! Authentication and authorization of callers: tokens, client certificates, front proxies, and the lookup of the authorities.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use cloud_controller_manager::serving::{ReviewClients, ServingDeps};
use reqwest::Client;
use serde_json::Value;

use crate::serving::{
    api_server::{ApiServer, reader},
    authority::Authority,
    port::{client, config, eventually, fetch, parts, start, start_with},
};

#[tokio::test]
async fn anonymous_gets_health_only() {
    let served = start(config(), Some(&Arc::new(ApiServer::default()))).await;
    eventually("the lookup", || async { served.get("/readyz").await.0 == 200 }).await;
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(served.get(path).await, (200, "ok".to_owned()), "{path}");
    }
    for path in ["/metrics", "/configz", "/flagz", "/statusz", "/planz", "/readyz/ping", "/nonsense"] {
        let (code, body) = served.get(path).await;
        let status: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(code, 403, "{path}");
        assert_eq!((status["kind"].as_str(), status["code"].as_u64()), (Some("Status"), Some(403)));
        let message = format!("forbidden: User \"system:anonymous\" cannot get path \"{path}\": by the list");
        assert_eq!(status["message"], message);
    }
}

#[tokio::test]
async fn without_an_api_server_only_health_is_served() {
    let served = start(config(), None).await;
    assert_eq!(served.get("/readyz").await.0, 200);
    assert_eq!(served.get("/metrics").await.0, 403);
    assert_eq!(served.get_as("any", "/healthz").await.0, 401);
}

#[tokio::test]
async fn a_token_is_reviewed_once_and_its_access_is_authorized() {
    let api = reader("ann");
    api.tokens.lock().insert("token-of-bob".to_owned(), "bob".to_owned());
    let served = start(config(), Some(&api)).await;
    for _ in 0..3 {
        let (code, body) = served.get_as("token-of-ann", "/metrics").await;
        assert_eq!(code, 200);
        assert!(body.contains("workqueue_depth{name=\"service\"} 42"), "gauges are refreshed first");
    }
    assert_eq!((api.token_reviews.load(Ordering::SeqCst), api.access_reviews.load(Ordering::SeqCst)), (1, 1));
    assert_eq!(served.get_as("token-of-bob", "/metrics").await.0, 403);
    let (code, body) = served.get_as("stolen", "/healthz").await;
    assert_eq!((code, serde_json::from_str::<Value>(&body).unwrap()["reason"].as_str()), (401, Some("Unauthorized")));
    let text = served.metrics.render().unwrap();
    for line in [
        "authentication_attempts{result=\"success\"} 4",
        "authentication_attempts{result=\"error\"} 1",
        "authorization_attempts_total{result=\"allowed\"} 3",
        "authorization_attempts_total{result=\"no-opinion\"} 1",
        "apiserver_delegated_authn_request_total{code=\"201\"} 3",
        "apiserver_delegated_authz_request_total{code=\"201\"} 2",
        "authenticated_user_requests{username=\"other\"} 4",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[tokio::test]
async fn tokens_and_access_can_have_different_api_servers() {
    let (tokens, access) = (reader("ann"), reader("ann"));
    let reviews = ReviewClients { authentication: tokens.client(), authorization: access.client() };
    let verbosity = Arc::default();
    let served = start_with(config(), ServingDeps { reviews: Some(reviews), ..parts(None, &verbosity) }, verbosity).await;
    assert_eq!(served.get_as("token-of-ann", "/metrics").await.0, 200);
    let review_counts =
        |api: &ApiServer| (api.token_reviews.load(Ordering::SeqCst), api.access_reviews.load(Ordering::SeqCst));
    assert_eq!((review_counts(&tokens), review_counts(&access)), ((1, 0), (0, 1)));
}

#[tokio::test]
async fn a_failing_review_is_repeated() {
    let api = reader("ann");
    api.failing_reviews.store(1, Ordering::SeqCst);
    let served = start(config(), Some(&api)).await;
    assert_eq!(served.get_as("token-of-ann", "/metrics").await.0, 200);
    assert_eq!(api.token_reviews.load(Ordering::SeqCst), 2);
    assert!(served.metrics.render().unwrap().contains("apiserver_delegated_authn_request_total{code=\"503\"} 1"));
}

#[tokio::test]
async fn client_certificates_name_users_and_their_ca_may_change() {
    let (first, second) = (Authority::new("first"), Authority::new("second"));
    let api = reader("ann");
    *api.config_map.lock() = Some(BTreeMap::from([("client-ca-file".to_owned(), first.pem.clone())]));
    let served = start(config(), Some(&api)).await;
    eventually("the lookup", || async { served.get("/readyz").await.0 == 200 }).await;
    let url = served.url("/metrics");
    assert_eq!(fetch(first.client("ann", None).get(&url)).await.0, 200);
    assert_eq!(fetch(first.client("bob", None).get(&url)).await.0, 403);
    assert_eq!(fetch(first.client("admin", Some("system:masters")).get(&url)).await.0, 200);
    assert_eq!(fetch(second.client("admin", Some("system:masters")).get(&url)).await.0, 401);
    let bearer = second.client("x", None).get(&url).bearer_auth("token-of-ann");
    assert_eq!(fetch(bearer).await.0, 200, "a good token counts although the certificate is not trusted");

    *api.config_map.lock() = Some(BTreeMap::from([("client-ca-file".to_owned(), second.pem.clone())]));
    let rotated = second.client("ann", None);
    eventually("the new CA", || async { fetch(rotated.get(&url)).await.0 == 200 }).await;
    assert_eq!(fetch(first.client("ann", None).get(&url)).await.0, 401);
}

#[tokio::test]
async fn a_front_proxy_may_name_the_user_and_others_may_not() {
    let (proxies, clients) = (Authority::new("proxies"), Authority::new("clients"));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("proxy-ca.crt");
    std::fs::write(&file, &proxies.pem).unwrap();
    let client_ca = directory.path().join("client-ca.crt");
    std::fs::write(&client_ca, &clients.pem).unwrap();
    let mut config = config();
    config.authentication.requestheader_client_ca_file = Some(file);
    config.authentication.requestheader.allowed_names = vec!["aggregator".to_owned()];
    config.authentication.client_ca_file = Some(client_ca);
    let served = start(config, Some(&reader("ann"))).await;
    let send = |client: Client, user: &'static str, group: &'static str| {
        let request = client.get(served.url("/metrics"));
        fetch(request.header("X-Remote-User", user).header("X-Remote-Group", group))
    };
    assert_eq!(send(proxies.client("aggregator", None), "ann", "dev").await.0, 200);
    assert_eq!(send(proxies.client("aggregator", None), "bob", "dev").await.0, 403);
    assert_eq!(send(proxies.client("aggregator", None), "bob", "system:masters").await.0, 200);
    assert_eq!(send(proxies.client("impostor", None), "ann", "system:masters").await.0, 401);
    assert_eq!(send(clients.client("bob", None), "ann", "system:masters").await.0, 403, "headers of a client do not count");
    assert_eq!(send(client(), "ann", "system:masters").await.0, 403);
}

#[tokio::test]
async fn a_failing_lookup_is_reported_and_retried() {
    let api = reader("ann");
    *api.config_map_forbidden.lock() = true;
    let served = start(config(), Some(&api)).await;
    eventually("the reason", || async {
        let (code, body) = served.get_as("token-of-ann", "/readyz?verbose").await;
        code == 500 && body.contains("forbidden to get configmaps in namespace kube-system")
    })
    .await;
    let (code, body) = served.get("/readyz").await;
    assert_eq!(
        (code, body.as_str()),
        (500, "[-]extension-apiserver-authentication failed: reason withheld\nreadyz check failed\n")
    );
    assert_eq!(served.get("/livez").await.0, 200, "a restart would not help");
    *api.config_map_forbidden.lock() = false;
    eventually("readiness", || async { served.get("/readyz").await.0 == 200 }).await;

    *api.config_map_forbidden.lock() = true;
    let mut tolerant = config();
    tolerant.authentication.tolerate_lookup_failure = true;
    let served = start(tolerant, Some(&api)).await;
    assert_eq!(served.get("/readyz").await.0, 200);
}
