use std::{fs, time::Duration};

use parking_lot::Mutex;

use super::*;
use crate::metrics::Metrics;

fn user(text: &str) -> AuthInfo {
    serde_json::from_str(text).unwrap()
}

/// Sends a request to a server that accepts one token. Returns the status and the received tokens.
async fn send_request(credentials: &KubeCredentials, accepted: &'static str) -> (StatusCode, Vec<String>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let received = Arc::clone(&seen);
    let server = tower::service_fn(move |request: Request<Body>| {
        let header = request.headers().get(AUTHORIZATION).map(|header| header.to_str().unwrap().to_owned());
        let header = header.unwrap_or_default();
        let status = if header == accepted { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
        received.lock().push(header);
        async move { Ok::<_, BoxError>(Response::builder().status(status).body(()).unwrap()) }
    });
    let request = Request::new(Body::from(b"{}".to_vec()));
    let metrics = Arc::new(Metrics::new().unwrap());
    let counting = RequestMetrics::new("host".into(), Arc::clone(&metrics));
    let response = send_with(credentials.clone(), counting, server, request).await.unwrap();
    let seen = seen.lock().clone();
    let retries = metrics.rest_client_request_retries_total.with_label_values(&[response.status().as_str(), "GET", "host"]);
    assert_eq!(retries.get(), f64::from(u8::from(seen.len() > 1)), "a repeated request is counted");
    (response.status(), seen)
}

#[tokio::test(start_paused = true)]
async fn a_token_file_is_trimmed_and_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    fs::write(&path, " first\n").unwrap();
    let mut user = user(&format!("{{\"tokenFile\": {path:?}, \"token\": \"other\"}}"));
    let credentials = KubeCredentials::take_from(&mut user).unwrap();
    assert!(user.token_file.is_none(), "kube would not trim it");
    let tokens_sent = async |accepted| send_request(&credentials, accepted).await.1;
    assert_eq!(tokens_sent("Bearer first").await, ["Bearer first"]);

    fs::write(&path, "second\n").unwrap();
    assert_eq!(tokens_sent("Bearer first").await, ["Bearer first"], "the file is not read for each request");
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(tokens_sent("Bearer second").await, ["Bearer second"]);

    fs::remove_file(&path).unwrap();
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(tokens_sent("Bearer second").await, ["Bearer second"], "the last token is used if the file is missing");
    fs::write(&path, "\n").unwrap();
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(tokens_sent("Bearer second").await, ["Bearer second"], "the last token is used if the file is empty");
}

#[tokio::test(start_paused = true)]
async fn a_rejected_token_is_read_again_from_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    fs::write(&path, "old").unwrap();
    let credentials = KubeCredentials::take_from(&mut user(&format!("{{\"tokenFile\": {path:?}}}"))).unwrap();
    tokio::time::advance(Duration::from_secs(2)).await;
    let refused = (StatusCode::UNAUTHORIZED, vec!["Bearer old".to_owned()]);
    assert_eq!(send_request(&credentials, "Bearer new").await, refused, "an unchanged token is not sent twice");
    fs::write(&path, "new").unwrap();
    tokio::time::advance(Duration::from_secs(2)).await;
    let twice = vec!["Bearer old".to_owned(), "Bearer new".to_owned()];
    assert_eq!(send_request(&credentials, "Bearer new").await, (StatusCode::OK, twice));
}

#[test]
fn unusable_credentials_are_refused_with_the_field() {
    let take = |text: &str| KubeCredentials::take_from(&mut user(text)).err().unwrap_or_default();
    assert!(take(r#"{"tokenFile": "/nowhere"}"#).starts_with("tokenFile /nowhere: "));
    assert_eq!(take(r#"{"tokenFile": "/nowhere", "token": "t"}"#), "");
    assert!(
        take(r#"{"exec": {"command": "c", "apiVersion": "x"}}"#).contains("accepted are client.authentication.k8s.io/v1 ")
    );
    let always =
        r#"{"exec": {"command": "c", "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Always"}}"#;
    assert!(take(always).contains("interactiveMode Always"));
    assert!(take(r#"{"exec": {"apiVersion": "client.authentication.k8s.io/v1"}}"#).contains("no command"));
}

#[test]
fn a_plugin_is_used_only_without_other_credentials() {
    let exec = r#""exec": {"command": "c", "apiVersion": "client.authentication.k8s.io/v1"}"#;
    let is_plugin =
        |more: &str| KubeCredentials::take_from(&mut user(&format!("{{{exec}{more}}}"))).unwrap().exec_plugin().is_some();
    assert!(is_plugin(""));
    for more in [r#", "token": "t""#, r#", "username": "u", "password": "p""#, r#", "client-certificate": "c""#] {
        assert!(!is_plugin(more), "{more}");
    }
}

/// Returns credentials of a plugin that counts its runs, and the folder of the plugin.
fn counting(body: &str) -> (KubeCredentials, tempfile::TempDir) {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plugin");
    let count = folder.path().join("count");
    fs::write(&path, format!("#!/bin/sh\necho x >> {count:?}\nn=$(wc -l < {count:?} | tr -d ' ')\n{body}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let exec = format!(r#"{{"exec": {{"command": {path:?}, "apiVersion": "client.authentication.k8s.io/v1"}}}}"#);
    (KubeCredentials::take_from(&mut user(&exec)).unwrap(), folder)
}

fn runs(folder: &tempfile::TempDir) -> usize {
    fs::read_to_string(folder.path().join("count")).unwrap_or_default().lines().count()
}

fn printing(status: &str) -> String {
    format!(
        "cat <<EOF\n{{\"apiVersion\": \"client.authentication.k8s.io/v1\", \"kind\": \"ExecCredential\", \"status\": {{{status}}}}}\nEOF"
    )
}

#[tokio::test]
async fn a_plugin_runs_once_and_again_after_a_rejection() {
    let (credentials, folder) = counting(&printing(r#""token": "t$n""#));
    let all = futures::future::join_all((0..20).map(|_| send_request(&credentials, "Bearer t1"))).await;
    assert!(all.iter().all(|(status, _)| *status == StatusCode::OK));
    assert_eq!(runs(&folder), 1);
    assert_eq!(send_request(&credentials, "Bearer t2").await.0, StatusCode::UNAUTHORIZED, "it does not run again so soon");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(10)).await;
    tokio::time::resume();
    let all = futures::future::join_all((0..20).map(|_| send_request(&credentials, "Bearer t2"))).await;
    assert!(all.iter().all(|(status, seen)| *status == StatusCode::OK && seen.len() <= 2), "{all:?}");
    assert_eq!(runs(&folder), 2);
}

#[tokio::test]
async fn static_credentials_leave_requests_unchanged() {
    assert_eq!(send_request(&KubeCredentials::Static, "").await, (StatusCode::OK, vec![String::new()]));
}
