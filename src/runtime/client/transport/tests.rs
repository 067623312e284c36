//! A server whose name cannot be looked up, proxies, and peers that go silent.

mod silence;

use std::{
    convert::Infallible,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
};

use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use super::*;
use crate::{
    metrics::Metrics,
    runtime::client::{KubeClientConfig, KubeClients, with_causes},
};

async fn client(kubeconfig: &str) -> kube::Client {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, kubeconfig).unwrap();
    let config = KubeClientConfig { kubeconfig: Some(path), qps: 20.0, burst: 30, ..KubeClientConfig::default() };
    KubeClients::load(config, Arc::new(Metrics::new().unwrap())).await.unwrap().for_component("c").unwrap()
}

fn kubeconfig(cluster: &str) -> String {
    format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{{cluster}}}}}]\nusers: [{{name: u, user: {{token: t0k3n}}}}]\n"
    )
}

async fn ask(client: &kube::Client) -> Result<String, String> {
    let asked = client.request_text(http::Request::get("/").body(Vec::new()).unwrap()).await;
    asked.map_err(|error| with_causes(&error))
}

#[tokio::test]
async fn a_name_that_cannot_be_looked_up_is_told() {
    let error = ask(&client(&kubeconfig("server: 'https://nothing.invalid:6443'")).await).await.unwrap_err();
    assert!(error.contains("cannot connect to nothing.invalid:6443: "), "{error}");
    assert!(!error.contains("proxy") && !error.contains("t0k3n"), "{error}");
}

/// A proxy that answers the same to everybody, and where it is.
async fn proxy(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut head = vec![0; 4096];
            if socket.read(&mut head).await.is_ok_and(|count| count > 0) {
                let _ = socket.write_all(answer.as_bytes()).await;
            }
        }
    });
    address
}

#[tokio::test]
async fn a_proxy_that_refuses_is_named_without_its_password() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    let refusals = [
        "HTTP/1.1 407 Proxy Authentication Required\r\nproxy-authenticate: Basic\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 26\r\n\r\n<html>Please log in</html>",
    ];
    let proxies = futures::future::join_all(refusals.map(proxy)).await;
    let proxies = proxies.into_iter().map(|address| ("http", "cannot connect to nothing.invalid:6443 ", address));
    for (scheme, told, address) in proxies.chain([("socks5", "", nobody)]) {
        let cluster = format!("server: 'https://nothing.invalid:6443', proxy-url: '{scheme}://user:planted@{address}'");
        let error = ask(&client(&kubeconfig(&cluster)).await).await.unwrap_err();
        assert!(error.contains(&format!("{told}through the proxy {address} (look at proxy-url")), "{error}");
        assert!(!error.contains("planted"), "{error}");
    }
}

/// Reads as much as is asked for.
async fn read(socket: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    socket.read_exact(&mut bytes).await.unwrap();
    bytes
}

/// What is asked of an HTTP proxy, up to the empty line.
async fn connect_request(socket: &mut TcpStream) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        head.push(char::from(read(socket, 1).await[0]));
    }
    socket.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
    head.to_lowercase()
}

/// What is asked of a SOCKS5 proxy (RFC 1928, RFC 1929): login and destination.
async fn socks_request(socket: &mut TcpStream) -> String {
    let methods = read(socket, 2).await[1];
    let method = read(socket, methods.into()).await[0];
    socket.write_all(&[5, method]).await.unwrap();
    let mut asked = String::new();
    if method == 2 {
        for place in [2, 1] {
            let length = read(socket, place).await[place - 1];
            asked += &String::from_utf8(read(socket, length.into()).await).unwrap();
            asked += if place == 2 { ":" } else { "@" };
        }
        socket.write_all(&[1, 0]).await.unwrap();
    }
    let length = read(socket, 5).await[4];
    asked += &String::from_utf8(read(socket, length.into()).await).unwrap();
    let port = read(socket, 2).await;
    socket.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
    format!("{asked}:{}", u16::from_be_bytes([port[0], port[1]]))
}

/// A proxy that leads everybody to one server, whatever name was asked for, and what it is asked.
async fn leading(is_socks: bool) -> (String, mpsc::UnboundedReceiver<String>) {
    let (proxy, server) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let (address, destination) = (proxy.local_addr().unwrap().to_string(), server.local_addr().unwrap());
    tokio::spawn(brief_server(server));
    let (tell, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = proxy.accept().await {
            let asked = if is_socks { socks_request(&mut socket).await } else { connect_request(&mut socket).await };
            let _ = tell.send(asked);
            let mut server = TcpStream::connect(destination).await.unwrap();
            // Whoever has read its answer hangs up.
            let _ = tokio::io::copy_bidirectional(&mut socket, &mut server).await;
        }
    });
    (address, told)
}

#[tokio::test]
async fn a_proxy_is_asked_for_the_server_by_its_name_and_with_the_login() {
    for (scheme, login, expected) in [
        ("http", "", "connect nothing.invalid:6443 http/1.1"),
        ("http", "user:p%40ss@", "proxy-authorization: basic dxnlcjpwqhnz"),
        ("socks5", "", "nothing.invalid:6443"),
        ("socks5h", "user:p%40ss@", "user:p@ss@nothing.invalid:6443"),
    ] {
        let (proxy, mut told) = leading(scheme != "http").await;
        let cluster = format!("server: 'http://nothing.invalid:6443', proxy-url: '{scheme}://{login}{proxy}'");
        assert_eq!(ask(&client(&kubeconfig(&cluster)).await).await, Ok(String::new()), "{scheme} {login}");
        let asked = told.recv().await.unwrap();
        assert!(asked.contains(expected) && asked.contains("nothing.invalid:6443"), "{asked}");
    }
}

/// Serves HTTP/1.1, one request per connection.
async fn brief_server(listener: TcpListener) {
    let answer = |_: Request<Incoming>| async { Ok::<_, Infallible>(Response::new(Body::empty())) };
    while let Ok((socket, _)) = listener.accept().await {
        let mut builder = hyper::server::conn::http1::Builder::new();
        let service = hyper::service::service_fn(answer);
        tokio::spawn(builder.keep_alive(false).serve_connection(TokioIo::new(socket), service));
    }
}

#[tokio::test]
async fn a_name_server_that_fails_for_a_while_costs_the_requests_of_that_while() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(brief_server(listener));
    let fails = Arc::new(AtomicBool::new(false));
    let (failing, direct) = (Arc::clone(&fails), tcp());
    let names = tower::service_fn(move |server: Uri| {
        let (fails, mut direct) = (failing.load(SeqCst), direct.clone());
        async move {
            if fails {
                return Err(BoxError::from("dns error: Temporary failure in name resolution"));
            }
            direct.call(server).await.map_err(BoxError::from)
        }
    });
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let tls = tls.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
    let send = pool_over(names, ThroughProxy::default(), Arc::new(hyper_rustls::DefaultServerNameResolver::default()), 8)(
        tls.into(),
    );
    let ask = async || send(Request::get(&server).body(Body::empty()).unwrap()).await;
    for failing in [false, true, false] {
        fails.store(failing, SeqCst);
        let answer = ask().await.map(|answer| answer.status()).map_err(|error| with_causes(&*error));
        assert_eq!(answer.is_err(), failing, "{answer:?}");
        let told = answer.err().unwrap_or_default();
        assert_eq!(told.contains(": dns error: Temporary failure"), failing, "{told}");
    }
}
