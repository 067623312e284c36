//! The built program as health-probe-proxy, between a client with or without a PROXY header and a server that replaces kube-proxy.
//!
//! `CCM_BINARY` names another program than the one just built: that of the image, whose memory counts.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, outside of test functions")]
#![allow(clippy::disallowed_methods, reason = "the program is another process, whose clock cannot be paused")]

use std::{
    env, fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    os::unix::fs::symlink,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

/// Limit of the process's own memory, in KiB.
const MEMORY: u64 = 5 * 1024;
/// Timeout of operations that take a moment, for busy machines.
const SOON: Duration = Duration::from_secs(30);
const PROBE: &str = "GET /healthz HTTP/1.1\r\nHost: node:10356\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\n\r\n";
const V1: &[u8] = b"PROXY TCP4 168.63.129.16 10.0.0.4 50000 10356\r\n";

/// Returns a header of version 2 with a command, an address family and addresses.
fn v2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).unwrap().to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n", &[command, family][..], &length, body].concat()
}

/// Server that replaces kube-proxy. It passes each request to the test and sends a fixed response.
struct Target {
    port: u16,
    requests: mpsc::Receiver<String>,
    connections: Arc<AtomicUsize>,
}

impl Target {
    fn start(response: &'static str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, requests) = mpsc::channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                count.fetch_add(1, Ordering::SeqCst);
                let head = read_head(&mut BufReader::new(stream.try_clone().unwrap()));
                // Fails if the test does not read the requests.
                let _ = sender.send(head);
                let _ = stream.write_all(response.as_bytes());
            }
        });
        Self { port, requests, connections }
    }

    fn request(&self) -> String {
        self.requests.recv_timeout(SOON).unwrap()
    }
}

fn read_head(reader: &mut impl BufRead) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).unwrap_or(0) > 0 {}
    head
}

/// Running program, which is killed on drop.
struct Proxy {
    process: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn binary() -> String {
    env::var("CCM_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_cloud-controller-manager").to_owned())
}

/// Returns a port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap().local_addr().unwrap().port()
}

impl Proxy {
    fn start(target: u16) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("health-probe-proxy");
        symlink(fs::canonicalize(binary()).unwrap(), &program).unwrap();
        let port = free_port();
        let mut command = Command::new(program);
        command.arg(format!("-health-check-port={port}")).arg(format!("-target-port={target}"));
        let process = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut proxy = Self { process, port, _folder: folder };
        let mut log = BufReader::new(proxy.process.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("serving health probes") {
            line.clear();
            assert!(log.read_line(&mut line).unwrap() > 0, "it ended before it listened");
        }
        // Drains the log, because a full pipe would block the program.
        thread::spawn(move || io::copy(&mut log, &mut io::sink()));
        proxy
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream
    }

    /// Sends a probe after `header`. Returns head and body of the response.
    fn probe(&self, header: &[u8]) -> (String, String) {
        let mut stream = self.connect();
        stream.write_all(&[header, PROBE.as_bytes()].concat()).unwrap();
        read_response(&mut BufReader::new(stream))
    }

    fn terminate(&self) {
        assert!(Command::new("kill").arg(self.process.id().to_string()).status().unwrap().success());
    }

    fn exit_code(&mut self) -> Option<i32> {
        let begun = Instant::now();
        while begun.elapsed() < SOON {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status.code();
            }
            thread::yield_now();
        }
        panic!("it does not end");
    }
}

fn read_response(reader: &mut impl BufRead) -> (String, String) {
    let head = read_head(reader);
    let lower = head.to_ascii_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    (head, String::from_utf8(body).unwrap())
}

/// Returns `true` if the other side closes the connection without a response.
fn is_closed(mut stream: TcpStream) -> bool {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => rest.is_empty(),
        Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
    }
}

const HEALTHY: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Custom: a\r\nContent-Length: 22\r\n\
     Keep-Alive: timeout=5\r\n\r\n{\"nodeEligible\": true}";

const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

#[test]
fn probes_reach_the_target_with_and_without_header() {
    let target = Target::start(HEALTHY);
    let proxy = Proxy::start(target.port);
    let ipv4 = [168, 63, 129, 16, 10, 0, 0, 4, 0, 80, 40, 116];
    let ipv6 = [&Ipv6Addr::LOCALHOST.octets()[..], &[0; 16], &[0, 80, 40, 116]].concat();
    for (header, client) in [
        (Vec::new(), "127.0.0.1"),
        (V1.to_vec(), "168.63.129.16"),
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.1"),
        (v2(0x21, 0x11, &ipv4), "168.63.129.16"),
        (v2(0x21, 0x21, &ipv6), "::1"),
        (v2(0x20, 0x00, &[]), "127.0.0.1"),
        (v2(0x21, 0xf0, b"whatever"), "127.0.0.1"),
    ] {
        let (head, body) = proxy.probe(&header);
        let lower = head.to_ascii_lowercase();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && lower.contains("x-custom: a\r\n"), "{header:02x?}: {head}");
        assert!(!lower.contains("keep-alive"), "{head}");
        assert_eq!(body, "{\"nodeEligible\": true}", "{header:02x?}");
        let request = target.request().to_ascii_lowercase();
        assert!(request.starts_with("get /healthz http/1.1\r\n") && request.contains("host: node:10356\r\n"), "{request}");
        assert!(request.contains(&format!("x-forwarded-for: {client}\r\n")) && !request.contains("x-hop"), "{request}");
    }
}

#[test]
fn responses_are_forwarded_or_replaced_by_a_bad_gateway() {
    let pieces = "1\r\na\r\n".repeat(1_000);
    let unhealthy = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 23\r\n\r\n{\"nodeEligible\": false}";
    for (response, status, expected) in [
        (unhealthy.to_owned(), "503 ", "{\"nodeEligible\": false}".to_owned()),
        (format!("{CHUNKED}{pieces}0\r\n\r\n"), "200 ", "a".repeat(1_000)),
        // It does not end.
        (format!("{CHUNKED}{}", pieces.repeat(70)), "502 Bad Gateway\r\n", String::new()),
        ("SSH-2.0-OpenSSH\r\n".to_owned(), "502 Bad Gateway\r\n", String::new()),
    ] {
        let (head, body) = Proxy::start(Target::start(response.leak()).port).probe(V1);
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")) && body == expected, "{head}{body}");
    }
    let (head, body) = Proxy::start(free_port()).probe(V1);
    assert!(head.starts_with("HTTP/1.1 502 Bad Gateway\r\n") && body.is_empty(), "a target that is down: {head}{body}");
}

#[test]
fn split_headers_and_repeated_probes_are_served() {
    let target = Target::start(HEALTHY);
    let proxy = Proxy::start(target.port);
    let mut stream = proxy.connect();
    stream.set_nodelay(true).unwrap();
    for piece in [&V1[..3], &V1[3..20], &V1[20..], &PROBE.as_bytes()[..9], &PROBE.as_bytes()[9..]] {
        stream.write_all(piece).unwrap();
        stream.flush().unwrap();
        // Keeps the pieces from being read as one. No event shows that a piece was read.
        thread::sleep(Duration::from_millis(20));
    }
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    for _ in 0..3 {
        assert!(read_response(&mut reader).0.starts_with("HTTP/1.1 200 OK\r\n"));
        assert!(target.request().to_ascii_lowercase().contains("x-forwarded-for: 168.63.129.16\r\n"));
        stream.write_all(PROBE.as_bytes()).unwrap();
    }
    assert!(read_response(&mut reader).0.starts_with("HTTP/1.1 200 OK\r\n"));
    assert_eq!(target.connections.load(Ordering::SeqCst), 4);
}

#[test]
fn malformed_and_oversized_requests_are_refused_alone() {
    let target = Target::start(HEALTHY);
    let proxy = Proxy::start(target.port);
    let long = format!("PROXY UNKNOWN {}", "x".repeat(200));
    for header in
        [long.as_bytes(), b"PROXY TCP9 a b c d\r\n", &v2(0x31, 0x11, &[0; 12]), &v2(0x21, 0x11, &[0; 5000])[..4096]]
    {
        let mut stream = proxy.connect();
        // The other side may close the connection during the write.
        let _ = stream.write_all(header);
        assert!(is_closed(stream), "{:02x?}", &header[..16]);
    }
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Long: {}\r\n\r\n", "x".repeat(20_000));
    let mut stream = proxy.connect();
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.shutdown(Shutdown::Write);
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response);
    assert!(response.is_empty() || response.starts_with(b"HTTP/1.1 431 "), "{}", String::from_utf8_lossy(&response));
    // A body is refused before it is read, because each small piece would occupy a whole buffer.
    for body in ["Content-Length: 70000", "Content-Length: 1", "Transfer-Encoding: chunked"] {
        let mut stream = proxy.connect();
        stream.write_all(format!("POST / HTTP/1.1\r\nHost: a\r\n{body}\r\n\r\n").as_bytes()).unwrap();
        assert!(read_head(&mut BufReader::new(stream)).starts_with("HTTP/1.1 413 "), "{body}");
    }
    assert_eq!(target.connections.load(Ordering::SeqCst), 0, "a refused request reached the target");
    assert!(proxy.probe(V1).0.starts_with("HTTP/1.1 200 OK\r\n"));
}

#[test]
fn silent_clients_have_few_slots_and_time_out() {
    let target = Target::start(HEALTHY);
    let proxy = Proxy::start(target.port);
    let begun = Instant::now();
    let silent: Vec<_> = (0..32).map(|_| proxy.connect()).collect();
    assert!(is_closed(proxy.connect()), "a client has 32 connections");
    assert!(silent.into_iter().all(is_closed));
    assert!(begun.elapsed() >= Duration::from_secs(9), "a header has 10 s: {:?}", begun.elapsed());
    assert!(proxy.probe(V1).0.starts_with("HTTP/1.1 200 OK\r\n"));
}

#[test]
fn both_families_are_served() {
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        eprintln!("NOT TESTED HERE: this machine has no IPv6");
        return;
    }
    let target = Target::start(HEALTHY);
    let proxy = Proxy::start(target.port);
    let mut stream = TcpStream::connect(SocketAddr::from((Ipv6Addr::LOCALHOST, proxy.port))).unwrap();
    stream.write_all(PROBE.as_bytes()).unwrap();
    assert!(read_response(&mut BufReader::new(stream)).0.starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(target.request().to_ascii_lowercase().contains("x-forwarded-for: ::1\r\n"));
}

#[test]
fn used_port_ends_the_program_with_an_error() {
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let output =
        Command::new(binary()).args(["health-probe-proxy", &format!("--health-check-port={port}")]).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains(&format!("--health-check-port: cannot listen on port {port}: ")), "{message}");
}

#[test]
fn a_signal_lets_a_probe_in_flight_finish() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut proxy = Proxy::start(listener.local_addr().unwrap().port());
    let idle = proxy.connect();
    let mut stream = proxy.connect();
    stream.write_all(&[V1, PROBE.as_bytes()].concat()).unwrap();
    let (mut target, _) = listener.accept().unwrap();
    read_head(&mut BufReader::new(target.try_clone().unwrap()));
    proxy.terminate();
    assert!(is_closed(idle), "idle connections are closed");
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port)).is_err(), "no new connection is accepted");
    target.write_all(HEALTHY.as_bytes()).unwrap();
    assert!(read_response(&mut BufReader::new(stream)).0.starts_with("HTTP/1.1 200 OK\r\n"));
    assert_eq!(proxy.exit_code(), Some(0));
}

/// Returns a field of `/proc/*/status`, in KiB.
fn memory(process: &Child, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn the_proxy_needs_little_memory() {
    let target = Target::start(HEALTHY);
    let proxy = Proxy::start(target.port);
    (0..200).for_each(|_| assert!(proxy.probe(V1).0.starts_with("HTTP/1.1 200 OK\r\n")));
    let idle: Vec<_> = (0..20).map(|_| proxy.connect()).collect();
    assert!(proxy.probe(V1).0.starts_with("HTTP/1.1 200 OK\r\n"));
    let (own, resident) = (memory(&proxy.process, "RssAnon"), memory(&proxy.process, "VmRSS"));
    drop(idle);
    eprintln!("memory of health-probe-proxy: {own} KiB of its own, {resident} KiB with the pages of the program file");
    assert!(own <= MEMORY, "{own} KiB");
}
