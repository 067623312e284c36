//! Bodies of webhook requests: bounded one by one, in what all of them hold at once, in what one network holds, and in time.
//!
//! In: a request and where it comes from. Out: its bytes with a share of the memory, or the reply that refuses it. The share
//! grows with the bytes that have come: who sends nothing holds nothing. Who comes from a network that has its part waits.

use std::{sync::Arc, time::Duration};

use axum::body::{Body, HttpBody};
use bytes::{Bytes, BytesMut};
use http::{Request, StatusCode};

use http_body_util::BodyExt;
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use super::super::{
    listener::ConnectionPeer,
    peer_network::{NetworkLimits, NetworkPermit, NetworkSemaphore, PeerNetwork},
};

/// A status and what is said with it.
pub(super) type WebhookReply = (StatusCode, String);

/// Most bytes of a body: what an API server takes of a client.
const LARGEST: usize = 3 << 20;
/// Unit of shares, in bytes.
const UNIT: usize = 64 << 10;
/// Units of all bodies together: 12 MiB.
const UNITS: usize = 192;
/// Bodies that are held at once.
const LIMITS: NetworkLimits = NetworkLimits { total: 16, per_network: 2, new_networks: 16 };
/// Time limit of a body, which also ends bodies that wait for each other's memory.
const BODY_DEADLINE: Duration = Duration::from_secs(2);

/// The memory for bodies.
pub(super) struct BodyBudget {
    units: Arc<Semaphore>,
    slots: NetworkSemaphore,
    freed: Arc<Notify>,
}

impl Default for BodyBudget {
    fn default() -> Self {
        let units = Arc::new(Semaphore::new(UNITS));
        Self { units, slots: NetworkSemaphore::new(LIMITS), freed: Arc::default() }
    }
}

/// A body, and its share of the memory.
pub(super) struct ReviewBody {
    pub(super) bytes: Bytes,
    _share: Option<OwnedSemaphorePermit>,
    _slot: Option<BodyPlace>,
}

/// Slot of one body of a network. Dropping it notifies those that wait.
struct BodyPlace {
    permit: Option<NetworkPermit>,
    freed: Arc<Notify>,
}

impl Drop for BodyPlace {
    fn drop(&mut self) {
        self.permit.take();
        self.freed.notify_waiters();
    }
}

impl BodyBudget {
    /// Reads the body of a request, once its network has a place for it.
    pub(super) async fn read(&self, request: Request<Body>) -> Result<ReviewBody, WebhookReply> {
        let network = request.extensions().get::<ConnectionPeer>().map(|peer| peer.slot.peer);
        self.read_from(network, request.into_body()).await
    }

    async fn read_from(&self, network: Option<PeerNetwork>, body: Body) -> Result<ReviewBody, WebhookReply> {
        if body.size_hint().lower() > LARGEST as u64 {
            return Err(too_large());
        }
        let slot = match network {
            Some(network) => Some(self.acquire_slot(network).await),
            None => None,
        };
        let late = |_| (StatusCode::REQUEST_TIMEOUT, "the body took too long".to_owned());
        let (bytes, share) = timeout(BODY_DEADLINE, self.collect(body)).await.map_err(late)??;
        Ok(ReviewBody { bytes, _share: share, _slot: slot })
    }

    async fn acquire_slot(&self, network: PeerNetwork) -> BodyPlace {
        loop {
            let freed = self.freed.notified();
            if let Some(permit) = self.slots.try_acquire(network) {
                return BodyPlace { permit: Some(permit), freed: Arc::clone(&self.freed) };
            }
            freed.await;
        }
    }

    async fn collect(&self, mut body: Body) -> Result<(Bytes, Option<OwnedSemaphorePermit>), WebhookReply> {
        let (mut bytes, mut share) = (BytesMut::new(), None::<OwnedSemaphorePermit>);
        while let Some(frame) = body.frame().await {
            let ends_early = |_| (StatusCode::BAD_REQUEST, "the body ends early".to_owned());
            let Ok(data) = frame.map_err(ends_early)?.into_data() else { continue };
            let length = bytes.len() + data.len();
            if length > LARGEST {
                return Err(too_large());
            }
            let permits = share.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
            let missing = u32::try_from(length.div_ceil(UNIT) - permits).unwrap_or(u32::MAX);
            let unavailable = |_| (StatusCode::SERVICE_UNAVAILABLE, "no room for the body".to_owned());
            let more = Arc::clone(&self.units).acquire_many_owned(missing).await.map_err(unavailable)?;
            match &mut share {
                Some(share) => share.merge(more),
                None => share = Some(more),
            }
            bytes.extend_from_slice(&data);
        }
        Ok((bytes.freeze(), share))
    }
}

fn too_large() -> WebhookReply {
    (StatusCode::PAYLOAD_TOO_LARGE, format!("the body has more than {LARGEST} bytes"))
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt, future::join_all, poll, stream};
    use tokio::time::Instant;

    use super::*;

    fn network(number: u8) -> Option<PeerNetwork> {
        Some(PeerNetwork::of([10, 0, 0, number].into(), [10, 0, 1, 1].into()))
    }

    /// Returns a body that sends `length` bytes and never ends.
    fn stuck(length: usize) -> Body {
        let begun = stream::iter([Ok::<_, std::io::Error>(Bytes::from(vec![b' '; length]))]);
        Body::from_stream(begun.chain(stream::pending()))
    }

    #[tokio::test(start_paused = true)]
    async fn silent_clients_reserve_no_memory() {
        let bodies = BodyBudget::default();
        let mut silent = Box::pin(join_all((0..20).map(|number| bodies.read_from(network(number), stuck(0)))));
        assert!(poll!(&mut silent).is_pending());
        assert_eq!(bodies.units.available_permits(), UNITS);
        let mut begun = Box::pin(bodies.read_from(network(21), stuck(UNIT + 1)));
        assert!(poll!(&mut begun).is_pending());
        assert_eq!(bodies.units.available_permits(), UNITS - 2);
        let now = Instant::now();
        assert_eq!(begun.await.err().unwrap().0, StatusCode::REQUEST_TIMEOUT);
        assert_eq!((now.elapsed(), bodies.units.available_permits()), (BODY_DEADLINE, UNITS));
    }

    #[tokio::test(start_paused = true)]
    async fn a_network_has_at_most_two_bodies_at_once() {
        let bodies = BodyBudget::default();
        let whole = || Body::from(vec![b' '; LARGEST]);
        let read = |number: u8| bodies.read_from(network(number), whole());
        let (first, second) = (read(1).await.ok().unwrap(), read(1).await.ok().unwrap());
        let mut third = Box::pin(read(1));
        assert!(poll!(&mut third).is_pending());
        assert_eq!(read(2).await.ok().unwrap().bytes.len(), LARGEST);
        drop(first);
        assert_eq!(third.await.ok().unwrap().bytes.len(), LARGEST);
        drop(second);
        assert_eq!(bodies.units.available_permits(), UNITS);
    }
}
