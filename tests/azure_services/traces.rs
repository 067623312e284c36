//! The spans of a Service's way through the stages arrive at a collector, as protobuf over HTTP.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::Duration,
};

use cloud_controller_manager::{
    app::traces::{exporter, exporter_to},
    cli::logging::{self, LoggingOptions},
};
use parking_lot::Mutex;

use crate::azure_services::{
    cluster::{Cluster, MINUTE, alone},
    services::external,
};

/// Bodies of the requests that came.
type Received = Arc<Mutex<Vec<String>>>;

/// A collector on this machine that takes everything.
fn collector() -> (String, Received) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1/traces", listener.local_addr().unwrap());
    let received = Received::default();
    let bodies = Arc::clone(&received);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let bodies = Arc::clone(&bodies);
            thread::spawn(move || while take(stream.as_ref().unwrap(), &bodies).is_some() {});
        }
    });
    (url, received)
}

/// Takes one request; `None`: the connection ended.
fn take(mut stream: &TcpStream, bodies: &Received) -> Option<()> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.trim().parse().unwrap()];
    stream.read_exact(&mut body).ok()?;
    bodies.lock().push(String::from_utf8_lossy(&body).into_owned());
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok()
}

#[test]
fn a_services_way_and_every_arm_request_arrive() {
    let (url, received) = collector();
    let (spans, export) = exporter_to(&url).unwrap();
    let (log, _) = logging::subscriber(&LoggingOptions { quiet: true, ..LoggingOptions::default() }, Some(spans));
    let on = tracing::dispatcher::set_default(&log);
    alone(async {
        let cluster = Cluster::with_two_nodes();
        let life = cluster.start();
        cluster.add(&external("web")).await;
        life.stop().await;
    });
    drop(on);
    drop(export);
    let exported = received.lock().join("\n");
    for part in [
        "cloud-controller-manager",
        "default/web",
        "ensure_loadbalancer",
        "plan",
        "public IPs",
        "load balancer",
        "security group",
        "ARM request",
        "PUT",
        "/Microsoft.Network/loadBalancers/kubernetes",
        "http.response.status_code",
    ] {
        assert!(exported.contains(part), "{part} is missing");
    }
    for secret in ["Bearer", "api-version", "authorization", "client_secret"] {
        assert!(!exported.contains(secret), "{secret} was sent");
    }
}

#[test]
fn without_an_endpoint_there_is_no_exporter() {
    for environment in [
        &[][..],
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", "")],
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"), ("OTEL_SDK_DISABLED", "true")],
    ] {
        let value = |name: &str| environment.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        assert!(exporter(value).unwrap().is_none(), "{environment:?}");
    }
}

/// Nothing waits for a collector that does not answer, and the end of the process hardly does.
#[test]
fn a_collector_that_never_answers_holds_up_nobody() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (spans, export) = exporter_to(&format!("http://{}/v1/traces", silent.local_addr().unwrap())).unwrap();
    let (log, _) = logging::subscriber(&LoggingOptions { quiet: true, ..LoggingOptions::default() }, Some(spans));
    let on = tracing::dispatcher::set_default(&log);
    alone(async {
        let cluster = Cluster::with_two_nodes();
        let life = cluster.start();
        (0..20).for_each(|index| drop(cluster.create(&external(&format!("s{index}")))));
        let took = cluster.until_ready(5 * MINUTE).await;
        assert!(took < 2 * MINUTE, "{took:?}");
        life.stop().await;
    });
    drop(on);
    let (done, ended) = std::sync::mpsc::channel();
    thread::spawn(move || {
        drop(export);
        done.send(()).unwrap();
    });
    ended.recv_timeout(Duration::from_secs(8)).unwrap();
}
