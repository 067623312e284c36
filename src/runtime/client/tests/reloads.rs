//! Resources that clients share, and reloads of files.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    mutual_tls::{Authority, serve as serve_tls},
    *,
};

#[tokio::test]
async fn clients_share_a_plugin_run_except_the_election() {
    let (host, mut seen) = refuse(http::StatusCode::NOT_FOUND, http::header::AUTHORIZATION).await;
    let files = Files::new();
    let credential = format!(r#"{{"apiVersion": "{EXEC}", "status": {{"token": "t"}}}}"#);
    let exec = files.write_plugin(&format!("echo >> {:?}\necho '{credential}'", files.path("runs")));
    let clients = files.clients(&plain_kubeconfig(&host, &exec)).await;
    let all = [
        clients.for_component("a").unwrap(),
        clients.for_component("b").unwrap(),
        clients.for_writer("c", Leadership::unopposed()).unwrap(),
        clients.for_watches().unwrap(),
        clients.for_reviews().unwrap(),
    ];
    let refusal = |client: Client| async move { Api::<Node>::all(client).get("n").await.map(drop).unwrap_err() };
    futures::future::join_all(all.map(refusal)).await;
    let runs = || std::fs::read_to_string(files.path("runs")).unwrap().lines().count();
    assert_eq!(runs(), 1);
    refusal(clients.for_election().unwrap()).await;
    assert_eq!(runs(), 2, "the election does not wait for other clients");
    for _ in 0..6 {
        assert_eq!(seen.recv().await.unwrap(), "Bearer t");
    }
}

#[tokio::test]
async fn new_authorities_are_trusted_without_a_restart() {
    let (old, new, files) = (Authority::new(), Authority::new(), Files::new());
    let (port, mut seen) = serve_tls(&new, usize::MAX).await;
    files.write_certificate(&new.issue(7));
    files.write("ca.crt", &old.pem);
    let clients = files.clients(&kubeconfig(port, WITH_CERTIFICATE)).await;
    let both = [clients.for_component("c").unwrap(), clients.for_election().unwrap()];
    for client in &both {
        assert!(!succeeds(client).await, "no trusted authority signed the server's certificate");
    }
    files.write("ca.crt", &new.pem);
    reload_interval().await;
    for client in &both {
        assert!(succeeds(client).await);
        assert_eq!(seen.recv().await.unwrap().0, 7);
    }
}

#[tokio::test]
async fn retry_after_delays_the_next_request_of_one_client() {
    let router = Router::new().fallback(any(|| async { (http::StatusCode::TOO_MANY_REQUESTS, [("retry-after", "1")]) }));
    let (host, metrics) = (serve(router).await, metrics());
    let clients = clients_of(&host, &metrics).await;
    let [busy, other] = ["a", "b"].map(|name| Api::<Node>::all(clients.for_component(name).unwrap()));
    let begun = Instant::now();
    busy.get("n").await.unwrap_err();
    other.get("n").await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(1), "neither the rejected request nor another client waits");
    busy.get("n").await.unwrap_err();
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(metrics.rest_client_requests_total.with_label_values(&["429", "GET", &host]).get(), 3.0);
}
