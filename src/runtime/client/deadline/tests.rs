use std::convert::Infallible;

use futures::{StreamExt, stream};
use http_body_util::{Full, StreamBody};
use tokio::time::sleep;

use super::*;

/// A body that sends a byte each `pause`, `count` times, and then nothing without ending.
fn trickle(pause: Duration, count: usize) -> BoxedResponseBody {
    let bytes = stream::iter(0..count).then(move |_| async move {
        sleep(pause).await;
        Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"x")))
    });
    StreamBody::new(bytes.chain(stream::pending())).map_err(Into::into).boxed_unsync()
}

/// How the body ended, how many bytes came, and after how many seconds.
async fn read(
    limits: RequestDeadlines,
    version: Version,
    body: BoxedResponseBody,
) -> (Option<DeadlineExceeded>, usize, u64) {
    let started = Instant::now();
    let mut response = Response::new(body);
    *response.version_mut() = version;
    let mut body = with_deadlines(limits, async { Ok::<_, BoxError>(response) }, || ()).await.unwrap().into_body();
    let mut bytes = 0;
    let ended = loop {
        match body.frame().await {
            None => break None,
            Some(Ok(frame)) => bytes += frame.into_data().unwrap().len(),
            Some(Err(error)) => break Some(*error.downcast::<DeadlineExceeded>().unwrap()),
        }
    };
    (ended, bytes, started.elapsed().as_secs())
}

#[test]
fn limits_follow_from_the_query() {
    let watch = |seconds| RequestDeadlines::Watch(Duration::from_secs(seconds));
    for (query, expected) in [
        (None, RequestDeadlines::Read),
        (Some("limit=500&resourceVersion=0"), RequestDeadlines::Read),
        (Some("watch=false"), RequestDeadlines::Read),
        (Some("watching=true&x=watch"), RequestDeadlines::Read),
        (Some("&watch=true&timeoutSeconds=290"), watch(305)),
        (Some("timeoutSeconds=25&watch=1"), watch(40)),
        (Some("watch=true&timeoutSeconds=-1"), watch(3615)),
        (Some("watch=true"), watch(3615)),
    ] {
        assert_eq!(RequestDeadlines::of(&Method::GET, query), expected, "{query:?}");
    }
    assert_eq!(RequestDeadlines::of(&Method::PATCH, Some("watch=true")), RequestDeadlines::Write);
}

#[test]
fn a_brief_watch_differs_in_its_length_alone() {
    for (uri, expected) in [
        ("/api/v1/nodes?&watch=true&timeoutSeconds=290&x=%26", "/api/v1/nodes?timeoutSeconds=35&&watch=true&x=%26"),
        ("https://api:6443/api/v1/nodes?watch=true", "https://api:6443/api/v1/nodes?timeoutSeconds=35&watch=true"),
    ] {
        assert_eq!(shorten_watch(&uri.parse().unwrap()).to_string(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_without_response_fails() {
    // A write may wait for admission webhooks as long as the API server permits.
    for (method, seconds) in [(Method::GET, 30), (Method::PATCH, 65), (Method::POST, 65)] {
        let started = Instant::now();
        let never = std::future::pending::<Result<Response<Full<Bytes>>, BoxError>>();
        let error = with_deadlines(RequestDeadlines::of(&method, None), never, || ()).await.unwrap_err();
        assert_eq!(error.downcast_ref(), Some(&DeadlineExceeded::Head(Duration::from_secs(seconds))));
        assert_eq!(started.elapsed().as_secs(), seconds, "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_that_stops_or_trickles_fails() {
    let second = Duration::from_secs(1);
    let stops = read(RequestDeadlines::Read, Version::HTTP_2, trickle(second, 3)).await;
    assert_eq!(stops, (Some(DeadlineExceeded::Silence), 3, 18));
    let trickles = read(RequestDeadlines::Read, Version::HTTP_2, trickle(second, 1000)).await;
    assert_eq!((trickles.0, trickles.2), (Some(DeadlineExceeded::Whole), 90));
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_ends_earlier_without_pings() {
    let watch = RequestDeadlines::Watch(Duration::from_secs(305));
    let minute = Duration::from_secs(60);
    assert_eq!(read(watch, Version::HTTP_2, trickle(minute, 2)).await, (None, 2, 120 + 90));
    assert_eq!(read(watch, Version::HTTP_11, trickle(minute, 2)).await, (None, 0, 40));
    let (ended, _, seconds) = read(watch, Version::HTTP_2, trickle(Duration::from_secs(1), 1000)).await;
    assert_eq!((ended, seconds), (None, 305), "no watch exceeds its requested duration");
}
