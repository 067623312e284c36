//! A control plane without IPv4: the built program finds its API server at `[::1]`, becomes leader, works, and serves probes and
//! authenticated callers there.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, outside of test functions")]

use crate::{any_server, secure_port_flood::target::spawn};

use std::{fs, net::SocketAddr, time::Duration};

use cloud_controller_manager::{
    runtime::{clock::Clock, shutdown::Shutdown},
    sandbox::{api_server::ApiServer, objects, reviews::User, serve::Certificates},
};
use k8s_openapi::api::core::v1::Service;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};

/// Timeout for all steps, on a machine that may be busy.
const SOON: Duration = Duration::from_secs(60);
const TOKEN: &str = "token-of-admin";

/// Returns the whole response to a GET; `None` if no server listens yet.
async fn get(address: SocketAddr, path: &str) -> Option<String> {
    let socket = TcpStream::connect(address).await.ok()?;
    let mut stream = any_server::connector("http/1.1").connect("localhost".try_into().unwrap(), socket).await.ok()?;
    let head = format!("GET {path} HTTP/1.1\r\nhost: ccm\r\nconnection: close\r\nauthorization: Bearer {TOKEN}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.ok()?;
    let mut response = String::new();
    let _ = stream.read_to_string(&mut response).await;
    Some(response)
}

fn is_served(server: &ApiServer) -> bool {
    let status = server.get::<Service>("default", "web").and_then(|service| service.status?.load_balancer?.ingress);
    status.is_some_and(|ingress| !ingress.is_empty())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_control_plane_without_ipv4_is_served() {
    let (server, stop, folder) = (ApiServer::new(Clock::System), Shutdown::new(), tempfile::tempdir().unwrap());
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    let certificates = Certificates::generate().unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    ApiServer::write_kubeconfig(&folder.path().join("kubeconfig"), &url, Some(&certificates)).unwrap();
    fs::write(folder.path().join("cloud.yaml"), "anyInstance: {}\nloadBalancers: {addressPool: ['fd00::/126']}").unwrap();
    server.add_token(TOKEN, User { name: "admin".to_owned(), groups: vec!["system:masters".to_owned()] });
    let mut web = objects::load_balancer_service("default", "web");
    web.spec.get_or_insert_default().ip_families = Some(vec!["IPv6".to_owned()]);
    server.create::<Service>(&web);
    let (serving, until) = (server.clone(), stop.clone());
    tokio::spawn(async move { serving.serve_tls(listener, &certificates, until).await });
    let address = TcpListener::bind("[::1]:0").await.unwrap().local_addr().unwrap();
    let config = format!("--cloud-config={}", folder.path().join("cloud.yaml").display());
    let _program = spawn(folder.path(), address, &[config]);

    let log = || fs::read_to_string(folder.path().join("log")).unwrap();
    let served = timeout(SOON, server.wait_until(is_served)).await;
    assert!(served.is_ok(), "the Service is not served:\n{}", log());
    for path in ["/livez", "/readyz", "/metrics"] {
        let response = get(address, path).await.unwrap_or_default();
        assert!(response.starts_with("HTTP/1.1 200 "), "{path}: {response}\n{}", log());
    }
    stop.begin();
}
