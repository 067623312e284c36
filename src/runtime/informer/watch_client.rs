//! Client of an informer: pages of limited size, deadlines, `Retry-After`, and events that kube's watcher does not report.
//!
//! In: the requests of kube's watcher. Out: responses without unread fields. A page of a list has as many objects as fit
//! into [`MAX_PAGE_BYTES`], because users determine the size of objects. The store is marked as current when a watch is
//! accepted, and a list is requested when an event or a bookmark is older than the list, event or bookmark before.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
};

use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use tower::BoxError;

use super::{json_filter::without_unread, unread_fields::UnreadFields};
use crate::{
    metrics::Metrics,
    runtime::{
        client::{
            deadline::{BoxedResponseBody, RequestDeadlines, shorten_watch, with_deadlines, with_parameter},
            throttle::RetryAfterThrottle,
        },
        store::{InformerStore, WatchStatus},
    },
};

/// Number of objects of the first page.
const FIRST_LIMIT: u32 = 10;
/// Maximum number of objects of a page, as in client-go.
const MAX_LIMIT: u32 = 500;
/// Factor between the limits of two pages.
const LIMIT_STEP: u32 = 4;
/// Largest page without unread fields, unless a single object is larger. A page is in memory several times while it is
/// decoded.
const MAX_PAGE_BYTES: usize = 4 << 20;

/// Returns the limit after a page of `limit` objects; `bytes` is `None` for a page that was too large.
fn next_limit(limit: u32, bytes: Option<usize>) -> u32 {
    match bytes {
        None => (limit / LIMIT_STEP).max(1),
        Some(bytes) if bytes < MAX_PAGE_BYTES / 4 => (limit * LIMIT_STEP).min(MAX_LIMIT),
        Some(_) => limit,
    }
}

/// Requests of one informer.
struct WatchClient<K> {
    client: kube::Client,
    store: InformerStore<K>,
    unread: UnreadFields,
    resource: String,
    metrics: Arc<Metrics>,
    throttle: RetryAfterThrottle,
    /// Flag that the last response used a connection without pings, such as HTTP/1.1, which may be dead.
    unproven: AtomicBool,
    /// Version of the last list, event or bookmark. Those of one resource are in order.
    newest: Arc<AtomicU64>,
    /// Number of objects of the next page.
    limit: AtomicU32,
}

/// Returns the client of an informer of `resource` that fills `store`.
pub(super) fn watch_client<K: Send + Sync + 'static>(
    client: kube::Client,
    store: InformerStore<K>,
    unread: UnreadFields,
    resource: String,
    metrics: Arc<Metrics>,
) -> kube::Client {
    let requests = Arc::new(WatchClient {
        client,
        store,
        unread,
        resource,
        metrics,
        throttle: RetryAfterThrottle::default(),
        unproven: AtomicBool::new(false),
        newest: Arc::default(),
        limit: AtomicU32::new(FIRST_LIMIT),
    });
    let service = tower::service_fn(move |request: Request<Body>| {
        let requests = Arc::clone(&requests);
        async move {
            let limits = RequestDeadlines::of(request.method(), request.uri().query());
            if limits == RequestDeadlines::Read { requests.page(request).await } else { requests.exchange(request).await }
        }
    });
    kube::Client::new(service, "default")
}

impl<K: Send + Sync + 'static> WatchClient<K> {
    /// Returns a page of a list: the requested one, or fewer objects of it if they are large.
    async fn page(&self, request: Request<Body>) -> Result<Response<BoxedResponseBody>, BoxError> {
        let (head, _) = request.into_parts();
        loop {
            let limit = self.limit.load(Relaxed);
            let mut head = head.clone();
            head.uri = with_parameter(&head.uri, "limit", limit);
            // A page that fails may be too large for the server or for a proxy.
            self.limit.store(next_limit(limit, None), Relaxed);
            let response = self.exchange(Request::from_parts(head, Body::empty())).await?;
            let is_page = response.status().is_success();
            let (parts, body) = response.into_parts();
            let page = read_page(body, if is_page && limit > 1 { MAX_PAGE_BYTES } else { usize::MAX }).await?;
            if is_page {
                self.limit.store(next_limit(limit, page.as_ref().map(Bytes::len)), Relaxed);
            }
            if let Some(page) = page {
                let body = Full::new(page).map_err(|never| match never {}).boxed_unsync();
                return Ok(Response::from_parts(parts, body));
            }
        }
    }

    async fn exchange(&self, mut request: Request<Body>) -> Result<Response<BoxedResponseBody>, BoxError> {
        self.throttle.open().await;
        let limits = RequestDeadlines::of(request.method(), request.uri().query());
        let is_watch = matches!(limits, RequestDeadlines::Watch(_));
        if is_watch && self.unproven.load(Relaxed) {
            *request.uri_mut() = shorten_watch(request.uri());
        }
        let limits = RequestDeadlines::of(request.method(), request.uri().query());
        let silences = self.metrics.informer_restarts_total.with_label_values(&[self.resource.as_str(), "silence"]);
        let resource = self.resource.clone();
        let silent = move || {
            tracing::debug!(resource, "watch silent for too long, restarting it");
            silences.inc();
        };
        let response = with_deadlines(limits, self.client.send(request), silent).await?;
        self.unproven.store(response.version() != http::Version::HTTP_2, Relaxed);
        self.throttle.note(&response);
        if is_watch && response.status().is_success() {
            self.store.set_status(WatchStatus::mark_current);
        }
        let (store, newest, resource) = (self.store.clone(), Arc::clone(&self.newest), self.resource.clone());
        let note_version = move |version: u64| {
            let before = newest.swap(version, Relaxed);
            if is_watch && version < before {
                tracing::warn!(resource, before, version, "the API server went back to an older state, listing again");
                store.request_relist();
            }
        };
        Ok(without_unread(response, self.unread.clone(), note_version).map(BodyExt::boxed_unsync))
    }
}

/// Reads a page; `None` if it has more than `most` bytes.
async fn read_page(mut body: BoxedResponseBody, most: usize) -> Result<Option<Bytes>, BoxError> {
    let mut page = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if page.len() + data.len() > most {
            return Ok(None);
        }
        page.extend_from_slice(&data);
    }
    Ok(Some(page.freeze()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_grow_while_they_are_small() {
        let (tiny, large) = (Some(1_000), Some(MAX_PAGE_BYTES / 4));
        for (limit, bytes, expected) in [
            (FIRST_LIMIT, tiny, 40),
            (40, tiny, 160),
            (160, tiny, MAX_LIMIT),
            (MAX_LIMIT, tiny, MAX_LIMIT),
            (160, large, 160),
            (MAX_LIMIT, None, 125),
            (FIRST_LIMIT, None, 2),
            (2, None, 1),
            (1, tiny, 4),
        ] {
            assert_eq!(next_limit(limit, bytes), expected, "{limit} objects, {bytes:?} bytes");
        }
    }

    #[tokio::test]
    async fn a_page_that_is_too_large_is_read_again_with_fewer() {
        let limits = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let recorded = Arc::clone(&limits);
        let service = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let limit: usize = query.split('&').find_map(|pair| pair.strip_prefix("limit=")?.parse().ok()).unwrap();
            recorded.lock().push((limit, query.contains("continue=x")));
            let body = Full::new(Bytes::from(" ".repeat(limit * MAX_PAGE_BYTES)));
            std::future::ready(Ok::<_, BoxError>(Response::new(body)))
        });
        let client = kube::Client::new(service, "default");
        let metrics = Arc::new(Metrics::new().unwrap());
        let store = InformerStore::<k8s_openapi::api::core::v1::Node>::default();
        let client = watch_client(client, store, UnreadFields::default(), "nodes".to_owned(), metrics);
        let request = Request::get("/api/v1/nodes?limit=500&continue=x").body(Body::empty()).unwrap();
        let page = client.send(request).await.unwrap().into_body().collect().await.unwrap().to_bytes();
        assert_eq!(page.len(), MAX_PAGE_BYTES);
        assert_eq!(*limits.lock(), [(10, true), (2, true), (1, true)]);
    }
}
