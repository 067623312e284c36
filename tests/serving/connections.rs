//! Limits, protocols and the end of connections.

use std::{net::SocketAddr, time::Duration};

use cloud_controller_manager::serving::SecureServingConfig;
use http::StatusCode;

use crate::serving::{
    any_server,
    api_server::reader,
    port::{client, client_from, config, eventually, fetch, start},
};

/// Connection for raw HTTP/1.1.
pub(crate) type Raw = tokio_rustls::client::TlsStream<tokio::net::TcpStream>;

pub(crate) async fn connect(address: SocketAddr) -> std::io::Result<Raw> {
    let stream = tokio::net::TcpStream::connect(address).await?;
    any_server::connector("http/1.1").connect("localhost".try_into().unwrap(), stream).await
}

/// Returns the head of the next response. It is empty if the connection has ended.
pub(crate) async fn head(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match tokio::io::AsyncReadExt::read_u8(stream).await {
            Ok(byte) => head.push(byte),
            Err(_) => return String::new(),
        }
    }
    String::from_utf8(head).unwrap()
}

/// Sends a HEAD request and returns its status, or `None` if the connection has ended.
pub(crate) async fn status_on(stream: &mut Raw, path: &str, token: &str) -> Option<u16> {
    let request = format!("HEAD {path} HTTP/1.1\r\nhost: ccm\r\nauthorization: Bearer {token}\r\n\r\n");
    // The read of the response detects a closed connection.
    let _ = tokio::io::AsyncWriteExt::write_all(stream, request.as_bytes()).await;
    let response_head = tokio::time::timeout(Duration::from_secs(30), head(stream)).await.unwrap();
    response_head.split(' ').nth(1).map(|status| status.parse().unwrap())
}

#[tokio::test]
async fn only_callers_with_page_access_keep_their_connection() {
    let api = reader("ann");
    api.tokens.lock().insert("token-of-bob".to_owned(), "bob".to_owned());
    let served = start(config(), Some(&api)).await;
    let rows = [
        ("/metrics", "token-of-ann", 200),
        ("/livez", "token-of-ann", 200),
        ("/api/v1", "token-of-ann", 404),
        ("/livez", "token-of-bob", 200),
        ("/metrics", "token-of-bob", 403),
    ];
    let mut open = Vec::new();
    for (path, token, expected) in rows {
        let mut stream = connect(served.address).await.unwrap();
        assert_eq!(status_on(&mut stream, path, token).await, Some(expected), "{path} {token}");
        open.push(stream);
    }
    // Enough connections to replace all that are not protected.
    let mut others = Vec::new();
    let admitted = async {
        while others.len() < 24 + 24 {
            match connect(served.address).await {
                Ok(stream) => others.push(stream),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(60), admitted).await.is_ok(), "new connections are refused");
    let mut statuses = Vec::new();
    for (stream, (path, token, _)) in open.iter_mut().zip(rows) {
        statuses.push(status_on(stream, path, token).await);
    }
    assert_eq!(statuses, [Some(200), None, None, None, None]);
}

#[tokio::test]
async fn a_peer_is_limited_to_its_share_of_connections() {
    let served = start(config(), None).await;
    let mut open = Vec::new();
    for _ in 0..30 {
        open.extend(tokio::net::TcpStream::connect(served.address).await);
    }
    // The number of closed connections is fixed, but the choice depends on the elapsed time.
    let still_open = || {
        let is_open = |stream: &&tokio::net::TcpStream| matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock);
        open.iter().filter(is_open).count()
    };
    eventually("only the share remains open", || async { still_open() <= 24 }).await;
    assert_eq!(fetch(client_from([127, 0, 0, 2]).get(served.url("/livez"))).await.0, 200);
    assert_eq!(still_open(), 24, "another network does not reduce the share");
    let new_connection_is_served = || async { client().get(served.url("/livez")).send().await.is_ok() };
    eventually("a new connection replaces a silent one", new_connection_is_served).await;
    eventually("the silent connection is closed", || async { still_open() < 24 }).await;
    let text = served.metrics.render().unwrap();
    assert!(text.contains("cloud_controller_manager_serving_connections_refused_total{reason=\"replaced\"}"), "{text}");
}

#[tokio::test]
async fn http2_unless_disabled() {
    for (disable_http2, version) in [(false, http::Version::HTTP_2), (true, http::Version::HTTP_11)] {
        let served = start(SecureServingConfig { disable_http2, ..config() }, None).await;
        let response = client().get(served.url("/healthz")).send().await.unwrap();
        assert_eq!((response.status(), response.version()), (StatusCode::OK, version));
    }
}

#[tokio::test]
async fn a_stalled_handshake_does_not_delay_clients_or_shutdown() {
    let served = start(config(), None).await;
    let stalled = tokio::net::TcpStream::connect(served.address).await.unwrap();
    let open_client = client();
    assert_eq!(fetch(open_client.get(served.url("/healthz"))).await.0, 200);
    served.shutdown.begin();
    assert!(served.shutdown.drain(Duration::from_secs(5)).await, "open connections are closed");
    assert!(open_client.get(served.url("/healthz")).send().await.is_err());
    drop(stalled);
}
