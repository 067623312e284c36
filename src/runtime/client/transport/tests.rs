//! Unresolvable names, proxies, and silent peers.

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

async fn get_root(client: &kube::Client) -> Result<String, String> {
    let response = client.request_text(http::Request::get("/").body(Vec::new()).unwrap()).await;
    response.map_err(|error| with_causes(&error))
}

#[tokio::test]
async fn an_unresolvable_name_is_in_the_error() {
    let error = get_root(&client(&kubeconfig("server: 'https://nothing.invalid:6443'")).await).await.unwrap_err();
    assert!(error.contains("cannot connect to nothing.invalid:6443: "), "{error}");
    assert!(!error.contains("proxy") && !error.contains("t0k3n"), "{error}");
}

/// Starts a proxy that sends the same response to every client, and returns its address.
async fn proxy(response: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut head = vec![0; 4096];
            if socket.read(&mut head).await.is_ok_and(|count| count > 0) {
                let _ = socket.write_all(response.as_bytes()).await;
            }
        }
    });
    address
}

#[tokio::test]
async fn a_proxy_that_refuses_is_named_without_its_password() {
    let unused_address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    let refusals = [
        "HTTP/1.1 407 Proxy Authentication Required\r\nproxy-authenticate: Basic\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 26\r\n\r\n<html>Please log in</html>",
    ];
    let proxies = futures::future::join_all(refusals.map(proxy)).await;
    let proxies = proxies.into_iter().map(|address| ("http", "cannot connect to nothing.invalid:6443 ", address));
    for (scheme, prefix, address) in proxies.chain([("socks5", "", unused_address)]) {
        let cluster = format!("server: 'https://nothing.invalid:6443', proxy-url: '{scheme}://user:planted@{address}'");
        let error = get_root(&client(&kubeconfig(&cluster)).await).await.unwrap_err();
        assert!(error.contains(&format!("{prefix}through the proxy {address} (check proxy-url")), "{error}");
        assert!(!error.contains("planted"), "{error}");
    }
}

/// Reads `length` bytes.
async fn read(socket: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    socket.read_exact(&mut bytes).await.unwrap();
    bytes
}

/// Reads the request to an HTTP proxy up to the empty line, and accepts it.
async fn connect_request(socket: &mut TcpStream) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        head.push(char::from(read(socket, 1).await[0]));
    }
    socket.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
    head.to_lowercase()
}

/// Reads login and destination of a request to a SOCKS5 proxy (RFC 1928, RFC 1929), and accepts it.
async fn socks_request(socket: &mut TcpStream) -> String {
    let methods = read(socket, 2).await[1];
    let method = read(socket, methods.into()).await[0];
    socket.write_all(&[5, method]).await.unwrap();
    let mut requested = String::new();
    if method == 2 {
        for length_index in [2, 1] {
            let length = read(socket, length_index).await[length_index - 1];
            requested += &String::from_utf8(read(socket, length.into()).await).unwrap();
            requested += if length_index == 2 { ":" } else { "@" };
        }
        socket.write_all(&[1, 0]).await.unwrap();
    }
    let length = read(socket, 5).await[4];
    requested += &String::from_utf8(read(socket, length.into()).await).unwrap();
    let port = read(socket, 2).await;
    socket.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
    format!("{requested}:{}", u16::from_be_bytes([port[0], port[1]]))
}

/// Starts a proxy that connects every client to one server. Returns its address and a receiver of its requests.
async fn fixed_proxy(is_socks: bool) -> (String, mpsc::UnboundedReceiver<String>) {
    let (proxy, server) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let (address, destination) = (proxy.local_addr().unwrap().to_string(), server.local_addr().unwrap());
    tokio::spawn(brief_server(server));
    let (report, reported) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = proxy.accept().await {
            let request = if is_socks { socks_request(&mut socket).await } else { connect_request(&mut socket).await };
            let _ = report.send(request);
            let mut server = TcpStream::connect(destination).await.unwrap();
            // The client closes the connection after it has read the response.
            let _ = tokio::io::copy_bidirectional(&mut socket, &mut server).await;
        }
    });
    (address, reported)
}

#[tokio::test]
async fn proxy_requests_contain_the_server_name_and_the_login() {
    for (scheme, login, expected) in [
        ("http", "", "connect nothing.invalid:6443 http/1.1"),
        ("http", "user:p%40ss@", "proxy-authorization: basic dxnlcjpwqhnz"),
        ("socks5", "", "nothing.invalid:6443"),
        ("socks5h", "user:p%40ss@", "user:p@ss@nothing.invalid:6443"),
    ] {
        let (proxy, mut requests) = fixed_proxy(scheme != "http").await;
        let cluster = format!("server: 'http://nothing.invalid:6443', proxy-url: '{scheme}://{login}{proxy}'");
        assert_eq!(get_root(&client(&kubeconfig(&cluster)).await).await, Ok(String::new()), "{scheme} {login}");
        let request = requests.recv().await.unwrap();
        assert!(request.contains(expected) && request.contains("nothing.invalid:6443"), "{request}");
    }
}

/// Serves HTTP/1.1, one request per connection.
async fn brief_server(listener: TcpListener) {
    let respond = |_: Request<Incoming>| async { Ok::<_, Infallible>(Response::new(Body::empty())) };
    while let Ok((socket, _)) = listener.accept().await {
        let mut builder = hyper::server::conn::http1::Builder::new();
        let service = hyper::service::service_fn(respond);
        tokio::spawn(builder.keep_alive(false).serve_connection(TokioIo::new(socket), service));
    }
}

#[tokio::test]
async fn a_failed_name_lookup_does_not_affect_later_requests() {
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
    let get = async || send(Request::get(&server).body(Body::empty()).unwrap()).await;
    for failing in [false, true, false] {
        fails.store(failing, SeqCst);
        let result = get().await.map(|response| response.status()).map_err(|error| with_causes(&*error));
        assert_eq!(result.is_err(), failing, "{result:?}");
        let error = result.err().unwrap_or_default();
        assert_eq!(error.contains(": dns error: Temporary failure"), failing, "{error}");
    }
}
