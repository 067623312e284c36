//! What the peers of the secure port do to it. Each attack ends by itself and ignores that it is cut off,
//! but counts itself in its target once it has brought what it brings.

use std::{io, net::Ipv4Addr};

use futures::{StreamExt, future::BoxFuture, stream};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{Duration, sleep, timeout},
};

use crate::secure_port_flood::target::{TENANT_TOKEN, Target};

/// The addresses that attack. Probes come from others.
pub(crate) fn attacker(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 1, u8::try_from(number % 40).unwrap() + 1)
}

type Attack = BoxFuture<'static, io::Result<()>>;

/// Runs `count` attacks, `at_once` of them at any time.
async fn swarm(count: usize, at_once: usize, attack: impl Fn(usize) -> Attack) {
    stream::iter(0..count).map(attack).buffer_unordered(at_once).for_each(|_| async {}).await;
}

/// Waits until the other side closes, without looking at what it says.
async fn hold(mut stream: impl AsyncReadExt + Unpin) -> io::Result<()> {
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.map(drop)
}

/// (a) Heads that never end, on 1,000 connections at once.
pub(crate) async fn half_sent_requests(target: Target) {
    let one = move |number| -> Attack {
        let target = target.clone();
        Box::pin(async move {
            let mut stream = target.http1(attacker(number)).await?;
            let filler = "a".repeat(60_000);
            stream.write_all(format!("GET /livez HTTP/1.1\r\nhost: ccm\r\nx-filler: {filler}").as_bytes()).await?;
            target.count();
            hold(stream).await
        })
    };
    swarm(1000, 1000, one).await;
}

/// (b) Methods of 950 KB and headers of 1 MiB.
pub(crate) async fn huge_heads(target: Target) {
    let one = move |number| -> Attack {
        let target = target.clone();
        Box::pin(async move {
            let head = match number % 3 {
                0 | 1 => format!("{} /{number} HTTP/1.1\r\nhost: ccm\r\n\r\n", "A".repeat(950_000)),
                _ => format!("GET /{number} HTTP/1.1\r\nhost: ccm\r\nx-filler: {}\r\n\r\n", "a".repeat(1 << 20)),
            };
            let (mut reader, mut writer) = tokio::io::split(target.http1(attacker(number)).await?);
            let mut answer = [0; 1];
            tokio::select! {
                written = writer.write_all(head.as_bytes()) => written?,
                read = reader.read(&mut answer) => {
                    target.count();
                    return read.map(drop);
                }
            }
            target.count();
            reader.read(&mut answer).await.map(drop)
        })
    };
    swarm(180, 24, one).await;
}

/// (c) TCP connections that say nothing, opened as fast as the machine can.
pub(crate) async fn silent_connections(target: Target) {
    let one = move |number| -> Attack {
        let target = target.clone();
        Box::pin(async move {
            let stream = target.tcp(attacker(number)).await?;
            target.count();
            hold(stream).await
        })
    };
    swarm(5000, 500, one).await;
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

/// The start of a connection whose client takes no byte of any body.
fn opening() -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &[0, INITIAL_WINDOW_SIZE, 0, 0, 0, 0])].concat()
}

/// A string of HPACK, not compressed.
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

/// A GET of `path` with one more header, on stream `id`.
fn get(id: u32, path: &str, (name, value): (&str, &str)) -> Vec<u8> {
    // By index of the static table: `:method: GET`, `:scheme: https`, then `:path` and `:authority` with a value.
    let parts = [vec![0x82, 0x87, 0x04], text(path), vec![0x01], text("ccm"), vec![0x00], text(name), text(value)];
    frame(HEADERS, COMPLETE, id, &parts.concat())
}

fn reset(id: u32) -> Vec<u8> {
    const CANCEL: [u8; 4] = [0, 0, 0, 8];
    frame(RST_STREAM, 0, id, &CANCEL)
}

/// The ids of the streams that a client opens.
fn ids(count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(|number| 2 * number + 1)
}

/// (d) Streams that are reset as soon as they are open, and as many streams as fit whose answers nobody takes.
pub(crate) async fn http2_floods(target: Target) {
    let one = move |number: usize| -> Attack {
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
    swarm(80, 80, one).await;
}

/// (e) Requests of somebody who may read `/metrics`, and does not read the answers; and pipelined ones without a body.
pub(crate) async fn slow_readers(target: Target, token: &'static str) {
    let one = move |number: usize| -> Attack {
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
    swarm(120, 120, one).await;
}

/// (f) Requests without a name for paths that nobody has asked for, abandoned as soon as they are sent; a quarter of
/// those who send them waits for a while, so that reviews wait too.
pub(crate) async fn abandoned_requests(target: Target) {
    let one = move |number: usize| -> Attack {
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
    swarm(100, 20, one).await;
}

/// (g) Pods of a tenant hold as many connections as four addresses get, with a token that the API server accepts, and with requests
/// that it allows to every ServiceAccount. Who is cut off comes again.
pub(crate) async fn tokens_of_a_tenant(target: Target) {
    let one = move |number: usize| -> Attack {
        let target = target.clone();
        Box::pin(async move {
            loop {
                let _ = ask_on(&target, number).await;
                sleep(Duration::from_millis(100)).await;
            }
        })
    };
    swarm(96, 96, one).await;
}

/// Asks over one connection until it ends.
async fn ask_on(target: &Target, number: usize) -> io::Result<()> {
    let mut stream = target.http1(attacker(number % 4)).await?;
    let path = ["/livez", "/api/v1"][number / 4 % 2];
    let head = format!("HEAD {path} HTTP/1.1\r\nhost: ccm\r\nauthorization: Bearer {TENANT_TOKEN}\r\n\r\n");
    let mut answer = [0; 1024];
    loop {
        stream.write_all(head.as_bytes()).await?;
        if stream.read(&mut answer).await? == 0 {
            return Ok(());
        }
        if answer.starts_with(b"HTTP/1.1 200 ") || answer.starts_with(b"HTTP/1.1 404 ") {
            target.count();
        }
        sleep(Duration::from_millis(300)).await;
    }
}
