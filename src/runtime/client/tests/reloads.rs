//! What clients share, and what changes under them.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    asking_for_certificates::{Authority, serve as serve_tls},
    *,
};

#[tokio::test]
async fn all_clients_share_a_run_of_the_plugin_and_the_election_has_its_own() {
    let (tokens, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let router = Router::new().fallback(any(move |headers: http::HeaderMap| {
        tokens.send(headers[http::header::AUTHORIZATION].to_str().unwrap().to_owned()).unwrap();
        async { http::StatusCode::NOT_FOUND }
    }));
    let (host, server) = serve(router).await;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let credential = r#"{"apiVersion": "client.authentication.k8s.io/v1", "status": {"token": "t"}}"#;
    let exec = write_plugin(folder.path(), &format!("echo >> {:?}\necho '{credential}'", path("runs")));
    std::fs::write(path("kubeconfig"), plain_kubeconfig(&host, &exec)).unwrap();
    let clients = KubeClients::load(settings(Some(path("kubeconfig")), None), metrics()).await.unwrap();
    let all = [
        clients.for_component("a").unwrap(),
        clients.for_component("b").unwrap(),
        clients.for_writer("c", Leadership::unopposed()).unwrap(),
        clients.for_watches().unwrap(),
        clients.for_reviews().unwrap(),
    ];
    let ask = |client: Client| async move { Api::<Node>::all(client).get("n").await.map(drop).unwrap_err() };
    futures::future::join_all(all.map(ask)).await;
    let runs = || std::fs::read_to_string(path("runs")).unwrap().lines().count();
    assert_eq!(runs(), 1);
    ask(clients.for_election().unwrap()).await;
    assert_eq!(runs(), 2, "it waits for nobody else");
    for _ in 0..6 {
        assert_eq!(seen.recv().await.unwrap(), "Bearer t");
    }
    server.abort();
}

#[tokio::test]
async fn new_authorities_are_trusted_without_a_restart() {
    let (old, new, folder) = (Authority::new(), Authority::new(), tempfile::tempdir().unwrap());
    let (port, mut seen) = serve_tls(&new, usize::MAX).await;
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let (certificate, key) = new.issue(7);
    write("client.crt", &certificate);
    write("client.key", &key);
    write("ca.crt", &old.pem);
    write("kubeconfig", &kubeconfig(port, "client-certificate: client.crt, client-key: client.key"));
    let clients = KubeClients::load(settings(Some(folder.path().join("kubeconfig")), None), metrics()).await.unwrap();
    let both = [clients.for_component("c").unwrap(), clients.for_election().unwrap()];
    for client in &both {
        assert!(!ask(client).await, "nobody vouches for the server");
    }
    write("ca.crt", &new.pem);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(11)).await;
    tokio::time::resume();
    for client in &both {
        assert!(ask(client).await);
        assert_eq!(seen.recv().await.unwrap().0, 7);
    }
}

#[tokio::test]
async fn a_busy_server_holds_up_the_next_request_of_its_client_alone() {
    let router = Router::new().fallback(any(|| async { (http::StatusCode::TOO_MANY_REQUESTS, [("retry-after", "1")]) }));
    let (host, server) = serve(router).await;
    let metrics = metrics();
    let clients = KubeClients::load(settings(None, Some(&format!("http://{host}"))), Arc::clone(&metrics)).await.unwrap();
    let [busy, other] = ["a", "b"].map(|name| Api::<Node>::all(clients.for_component(name).unwrap()));
    let begun = Instant::now();
    busy.get("n").await.unwrap_err();
    other.get("n").await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(1), "neither the refused one nor another client waits");
    busy.get("n").await.unwrap_err();
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(metrics.rest_client_requests_total.with_label_values(&["429", "GET", &host]).get(), 3.0);
    server.abort();
}
