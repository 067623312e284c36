//! Attacks on the secure port. An attack ignores that its connections are closed. It counts in its target once its data has reached the
//! port.

use std::{io, net::Ipv4Addr};

use futures::{StreamExt, future::BoxFuture, stream};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{Duration, sleep, timeout},
};

use crate::secure_port_flood::target::{TENANT_TOKEN, Target};

/// Returns the source address of an attack. Probes use other addresses.
pub(crate) fn attacker(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 1, u8::try_from(number % 40).unwrap() + 1)
}

type Attack = BoxFuture<'static, io::Result<()>>;

/// Runs `count` attacks, at most `at_once` in parallel.
async fn swarm(count: usize, at_once: usize, attack: impl Fn(usize) -> Attack) {
    stream::iter(0..count).map(attack).buffer_unordered(at_once).for_each(|_| async {}).await;
}

/// Discards data until the other side closes.
async fn hold(mut stream: impl AsyncReadExt + Unpin) -> io::Result<()> {
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.map(drop)
}

/// (a) Incomplete heads on 1,000 parallel connections.
pub(crate) async fn half_sent_requests(target: Target) {
    let attack = move |number| -> Attack {
        let target = target.clone();
        Box::pin(async move {
            let mut stream = target.http1(attacker(number)).await?;
            let filler = "a".repeat(60_000);
            stream.write_all(format!("GET /livez HTTP/1.1\r\nhost: ccm\r\nx-filler: {filler}").as_bytes()).await?;
            target.count();
            hold(stream).await
        })
    };
    swarm(1000, 1000, attack).await;
}

/// (b) Methods of 950 KB and headers of 1 MiB.
pub(crate) async fn huge_heads(target: Target) {
    let attack = move |number| -> Attack {
        let target = target.clone();
        Box::pin(async move {
            let head = match number % 3 {
                0 | 1 => format!("{} /{number} HTTP/1.1\r\nhost: ccm\r\n\r\n", "A".repeat(950_000)),
                _ => format!("GET /{number} HTTP/1.1\r\nhost: ccm\r\nx-filler: {}\r\n\r\n", "a".repeat(1 << 20)),
            };
            let (mut reader, mut writer) = tokio::io::split(target.http1(attacker(number)).await?);
            let mut response = [0; 1];
            tokio::select! {
                written = writer.write_all(head.as_bytes()) => written?,
                read = reader.read(&mut response) => {
                    target.count();
                    return read.map(drop);
                }
            }
            target.count();
            reader.read(&mut response).await.map(drop)
        })
    };
    swarm(180, 24, attack).await;
}

/// (c) Silent TCP connections, opened as fast as possible.
pub(crate) async fn silent_connections(target: Target) {
    let attack = move |number| -> Attack {
        let target = target.clone();
        Box::pin(async move {
            let stream = target.tcp(attacker(number)).await?;
            target.count();
            hold(stream).await
        })
    };
    swarm(5000, 500, attack).await;
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const INITIAL_WINDOW_SIZE: u8 = 4;
/// END_STREAM and END_HEADERS.
const COMPLETE: u8 = 5;

fn frame(kind: u8, flags: u8, id: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &id.to_be_bytes(), payload].concat()
}

/// Returns the start of a connection whose client accepts no byte of any body.
fn opening() -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &[0, INITIAL_WINDOW_SIZE, 0, 0, 0, 0])].concat()
}

/// Encodes a string in HPACK without compression.
fn text(text: &str) -> Vec<u8> {
    let mut encoded = Vec::new();
    let mut rest = text.len();
    if rest < 127 {
        encoded.push(u8::try_from(rest).unwrap());
    } else {
        encoded.push(127);
        rest -= 127;
        while rest >= 128 {
            encoded.push(u8::try_from(rest % 128).unwrap() | 128);
            rest /= 128;
        }
        encoded.push(u8::try_from(rest).unwrap());
    }
    encoded.extend(text.bytes());
    encoded
}

/// Returns a GET request for `path` with one more header, on stream `id`.
fn get(id: u32, path: &str, (name, value): (&str, &str)) -> Vec<u8> {
    // Fields by index of the static table: `:method: GET`, `:scheme: https`, then `:path` and `:authority` with a value.
    let parts = [vec![0x82, 0x87, 0x04], text(path), vec![0x01], text("ccm"), vec![0x00], text(name), text(value)];
    frame(HEADERS, COMPLETE, id, &parts.concat())
}

fn reset(id: u32) -> Vec<u8> {
    const CANCEL: [u8; 4] = [0, 0, 0, 8];
    frame(RST_STREAM, 0, id, &CANCEL)
}

/// Returns the ids of the streams that a client opens.
fn ids(count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(|number| 2 * number + 1)
}

/// (d) Streams that are reset immediately, and the maximum number of streams whose responses the client does not accept.
pub(crate) async fn http2_floods(target: Target) {
    let attack = move |number: usize| -> Attack {
        let target = target.clone();
        Box::pin(async move {
            let (reader, mut writer) = tokio::io::split(target.http2(attacker(number)).await?);
            let reading = tokio::spawn(hold(reader));
            writer.write_all(&opening()).await?;
            target.count();
            let filler = "a".repeat(10_000);
            for id in ids(if number.is_multiple_of(2) { 2000 } else { 400 }) {
                let bytes = if number.is_multiple_of(2) {
                    [get(id, "/livez", ("x-filler", "a")), reset(id)].concat()
                } else {
                    get(id, "/livez?verbose", ("x-filler", &filler))
                };
                writer.write_all(&bytes).await?;
                writer.flush().await?;
            }
            reading.await?
        })
    };
    swarm(80, 80, attack).await;
}

/// (e) Requests of a caller with access to `/metrics` who does not read the responses, and pipelined requests without a body.
pub(crate) async fn slow_readers(target: Target, token: &'static str) {
    let attack = move |number: usize| -> Attack {
        let target = target.clone();
        Box::pin(async move {
            let authorization = format!("Bearer {token}");
            let mut stream = match number % 3 {
                0 => target.http2(attacker(number)).await?,
                _ => target.http1(attacker(number)).await?,
            };
            let bytes = match number % 3 {
                0 => ids(100).fold(opening(), |mut bytes, id| {
                    bytes.extend(get(id, "/metrics", ("authorization", &authorization)));
                    bytes
                }),
                1 => format!("GET /metrics HTTP/1.1\r\nhost: ccm\r\nauthorization: {authorization}\r\n\r\n")
                    .repeat(1000)
                    .into(),
                _ => "HEAD /livez HTTP/1.1\r\nhost: ccm\r\n\r\n".repeat(200_000).into(),
            };
            stream.write_all(&bytes).await?;
            stream.flush().await?;
            target.count();
            std::future::pending().await
        })
    };
    swarm(120, 120, attack).await;
}

/// (f) Anonymous requests for new paths, abandoned as soon as they are sent. A quarter of the connections remains open for a second, so
/// reviews wait, too.
pub(crate) async fn abandoned_requests(target: Target) {
    let attack = move |number: usize| -> Attack {
        let target = target.clone();
        Box::pin(async move {
            let mut stream = target.http2(attacker(number)).await?;
            stream.write_all(&opening()).await?;
            let length = [150, 4000][number % 2];
            for id in ids(200) {
                let path = format!("/{number}/{id}/{}", "a".repeat(length));
                stream.write_all(&get(id, &path, ("x-filler", "a"))).await?;
            }
            stream.flush().await?;
            target.count();
            if number % 4 == 2 {
                return timeout(Duration::from_secs(1), hold(stream)).await.unwrap_or(Ok(()));
            }
            let mut some = [0; 64];
            stream.read(&mut some).await.map(drop)
        })
    };
    swarm(100, 20, attack).await;
}

/// (g) Pods of a tenant use all connections of four addresses, with a token that the API server accepts, and with requests that it allows
/// to every ServiceAccount. They reconnect when a connection is closed.
pub(crate) async fn tokens_of_a_tenant(target: Target) {
    let attack = move |number: usize| -> Attack {
        let target = target.clone();
        Box::pin(async move {
            loop {
                let _ = send_requests(&target, number).await;
                sleep(Duration::from_millis(100)).await;
            }
        })
    };
    swarm(96, 96, attack).await;
}

/// Sends requests over one connection until it ends.
async fn send_requests(target: &Target, number: usize) -> io::Result<()> {
    let mut stream = target.http1(attacker(number % 4)).await?;
    let path = ["/livez", "/api/v1"][number / 4 % 2];
    let head = format!("HEAD {path} HTTP/1.1\r\nhost: ccm\r\nauthorization: Bearer {TENANT_TOKEN}\r\n\r\n");
    let mut response = [0; 1024];
    loop {
        stream.write_all(head.as_bytes()).await?;
        if stream.read(&mut response).await? == 0 {
            return Ok(());
        }
        if response.starts_with(b"HTTP/1.1 200 ") || response.starts_with(b"HTTP/1.1 404 ") {
            target.count();
        }
        sleep(Duration::from_millis(300)).await;
    }
}
