//! Tests of the real HTTP client, over loopback.

use std::{collections::BTreeMap, fs, io::Write, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

use super::super::{AuthError, ReqwestTransport};
use crate::providers::azure::transport::{ArmTransport, ArmTransportError, MaxBodySize};

fn transport(variables: &[(&str, &str)]) -> Result<ReqwestTransport, AuthError> {
    let environment: BTreeMap<_, _> =
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    ReqwestTransport::new(&environment)
}

fn get(url: &str) -> http::Request<Bytes> {
    http::Request::get(url).body(Bytes::new()).unwrap()
}

async fn echo(request: http::Request<Incoming>) -> Result<http::Response<Full<Bytes>>, hyper::Error> {
    let encodings = request.headers().get("accept-encoding").cloned();
    let text = format!("{} {encodings:?}", request.uri());
    Ok(http::Response::builder().status(302).header("location", "/elsewhere").body(Full::from(text)).unwrap())
}

/// Starts a TLS server without client authentication. Returns its address and its certificate as PEM.
async fn tls_server(address: &str) -> (SocketAddr, String) {
    let key = KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned(), "::1".to_owned()];
    let certificate = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], private).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let listener = TcpListener::bind((address, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        while let Ok((socket, _)) = listener.accept().await {
            if let Ok(socket) = acceptor.accept(socket).await {
                tokio::spawn(async move {
                    drop(Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), service_fn(echo)).await);
                });
            }
        }
    });
    (address, certificate.pem())
}

/// Returns a directory with one file of trusted roots, and the file.
fn trusted(pem: &str) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ca.pem");
    fs::write(&file, pem).unwrap();
    (directory, file.display().to_string())
}

/// Returns a response of `size` zeros, compressed by gzip to a thousandth.
fn bomb(size: usize) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    (0..size >> 20).for_each(|_| packed.write_all(&[0; 1 << 20]).unwrap());
    let packed = packed.finish().unwrap();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n", packed.len());
    [head.into_bytes(), packed].concat()
}

/// Starts a server that sends `response` to each connection and closes it. Returns its address and the received requests.
async fn raw_server(response: impl Into<Vec<u8>>) -> (SocketAddr, tokio::sync::mpsc::UnboundedReceiver<String>) {
    let response = response.into();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut buffer = vec![0; 4096];
            let read = socket.read(&mut buffer).await.unwrap_or_default();
            let _ = sender.send(String::from_utf8_lossy(&buffer[..read]).into_owned());
            let _ = socket.write_all(&response).await;
        }
    });
    (address, receiver)
}

#[tokio::test]
async fn roots_come_from_the_environment_and_http_2_is_used() {
    let (address, pem) = tls_server("127.0.0.1").await;
    let (directory, file) = trusted(&pem);
    let url = format!("https://localhost:{}/path?code=planted", address.port());
    for variables in [[("SSL_CERT_FILE", &*file)], [("SSL_CERT_DIR", directory.path().to_str().unwrap())]] {
        let response = transport(&variables).unwrap().send(get(&url)).await.unwrap();
        assert_eq!(
            (response.status().as_u16(), response.version()),
            (302, http::Version::HTTP_2),
            "no redirect is followed"
        );
        let body = String::from_utf8(response.into_body().to_vec()).unwrap();
        assert!(body.contains("/path?code=planted") && body.contains("gzip"), "{body}");
    }
    let error = transport(&[]).unwrap().send(get(&url)).await.unwrap_err();
    assert!(matches!(&error, ArmTransportError::NotSent(reason) if reason.contains("certificate")), "{error}");
    assert!(!error.to_string().contains("planted"), "{error}");
}

#[tokio::test]
async fn an_ipv6_loopback_server_is_reached_without_the_proxy() {
    let (address, pem) = tls_server("::1").await;
    let (_directory, file) = trusted(&pem);
    let variables = [("SSL_CERT_FILE", &*file), ("HTTPS_PROXY", "http://nothing.invalid")];
    let response = transport(&variables).unwrap().send(get(&format!("https://{address}/x"))).await.unwrap();
    assert_eq!((response.status().as_u16(), response.version()), (302, http::Version::HTTP_2));
}

#[tokio::test]
async fn an_unreachable_server_is_named() {
    let unresolved =
        transport(&[]).unwrap().send(get("https://nothing.invalid/?sig=planted")).await.unwrap_err().to_string();
    assert!(unresolved.starts_with("cannot connect: nothing.invalid: ") && !unresolved.contains("PROXY"), "{unresolved}");
    for response in [
        "HTTP/1.1 407 Proxy Authentication Required\r\nproxy-authenticate: Basic\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 26\r\n\r\n<html>Please log in</html>",
    ] {
        let (proxy, _requests) = raw_server(response).await;
        let url = format!("http://user:planted@{proxy}");
        let proxied = transport(&[("HTTPS_PROXY", &url)]).unwrap();
        let error = proxied.send(get("https://nothing.invalid/?sig=planted")).await.unwrap_err();
        assert!(matches!(error, ArmTransportError::NotSent(_)), "{error}");
        let error = error.to_string();
        assert!(error.starts_with("cannot connect: nothing.invalid: "), "{error}");
        assert!(error.contains("check HTTPS_PROXY and NO_PROXY") && !error.contains("planted"), "{error}");
    }
}

#[tokio::test]
async fn errors_report_whether_the_request_was_sent() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let refused = transport(&[]).unwrap().send(get(&format!("http://{closed}/?sig=planted"))).await.unwrap_err();
    assert!(matches!(&refused, ArmTransportError::NotSent(_)), "{refused}");
    let (silent, mut requests) = raw_server("").await;
    let lost = transport(&[]).unwrap().send(get(&format!("http://{silent}/?sig=planted"))).await.unwrap_err();
    assert!(matches!(&lost, ArmTransportError::NoAnswer(_)), "{lost}");
    assert!(requests.recv().await.unwrap().contains("GET /?sig=planted"));
    let (cut, _) = raw_server("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").await;
    let half = transport(&[]).unwrap().send(get(&format!("http://{cut}/?sig=planted"))).await.unwrap_err();
    assert!(matches!(&half, ArmTransportError::NoAnswer(_)), "{half}");
    for error in [refused, lost, half] {
        assert!(!format!("{error} {error:?}").contains("planted"), "{error}");
    }
}

#[tokio::test]
async fn a_response_is_bounded_after_decompression() {
    const MIB: usize = 1 << 20;
    let body_size = |address, largest: Option<MaxBodySize>| async move {
        let mut request = get(&format!("http://{address}/?sig=planted"));
        if let Some(largest) = largest {
            request.extensions_mut().insert(largest);
        }
        transport(&[]).unwrap().send(request).await.map(|response| response.into_body().len())
    };
    let bound = MaxBodySize::default();
    assert_eq!(bound, MaxBodySize(MIB), "limit of tokens and documents about one machine");
    for (size, largest, expected) in [
        (MIB, None, Ok(MIB)),
        (2 * MIB, None, Err(ArmTransportError::TooLarge(bound))),
        (2 * MIB, Some(MaxBodySize::ARM), Ok(2 * MIB)),
        (65 * MIB, Some(MaxBodySize::ARM), Err(ArmTransportError::TooLarge(MaxBodySize::ARM))),
    ] {
        let (address, _requests) = raw_server(bomb(size)).await;
        let result = body_size(address, largest).await;
        assert_eq!(result, expected, "{size} bytes, allowed: {largest:?}");
        let Err(error) = result else { continue };
        assert!(error.to_string().contains("bytes (decompressed)"), "{error}");
    }
}

#[tokio::test]
async fn a_stalled_body_ends_at_the_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let task = tokio::spawn(async move { transport(&[]).unwrap().send(get(&url)).await });
    let (mut socket, _) = listener.accept().await.unwrap();
    assert!(socket.read(&mut [0; 4096]).await.unwrap() > 0);
    socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").await.unwrap();
    tokio::time::pause();
    let error = task.await.unwrap().unwrap_err();
    assert_eq!(error, ArmTransportError::NoAnswer("time limit reached".to_owned()));
    drop(socket);
}

#[tokio::test]
async fn proxies_are_used_unless_excepted() {
    let (proxy, mut requests) =
        raw_server("HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
    let url = format!("http://user:planted@{proxy}");
    let proxied = transport(&[("HTTPS_PROXY", &url), ("http_proxy", &url)]).unwrap();
    let tunnel = proxied.send(get("https://arm.invalid/")).await.unwrap_err();
    assert!(matches!(tunnel, ArmTransportError::NotSent(_)) && !tunnel.to_string().contains("planted"), "{tunnel}");
    assert!(requests.recv().await.unwrap().starts_with("CONNECT arm.invalid:443"));
    assert_eq!(proxied.send(get("http://arm.invalid/x")).await.unwrap().status(), 502);
    assert!(requests.recv().await.unwrap().starts_with("GET http://arm.invalid/x"));

    let (direct, mut direct_requests) = raw_server("HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await;
    assert_eq!(proxied.send(get(&format!("http://{direct}/x"))).await.unwrap().status(), 204, "loopback is never proxied");
    assert!(direct_requests.recv().await.unwrap().starts_with("GET /x"));
    for list in [".invalid", "other, *"] {
        let excepted = transport(&[("HTTPS_PROXY", &url), ("NO_PROXY", list)]).unwrap();
        assert!(excepted.send(get("https://arm.invalid/")).await.is_err());
        assert!(requests.try_recv().is_err(), "NO_PROXY={list}");
    }
}

#[test]
fn a_bad_proxy_is_named_without_its_password() {
    let error = transport(&[("HTTPS_PROXY", "http://user:planted@:bad:")]).unwrap_err();
    assert!(error.is_configuration() && error.to_string().starts_with("HTTPS_PROXY"), "{error}");
    assert!(!format!("{error:?}").contains("planted"));
}
