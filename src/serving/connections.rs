//! Keeps the table of open connections, and closes the ones that give up their places.
//!
//! In: accepted sockets' networks. Out: a [`Place`] that a connection holds while it is open, or `None`.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    connection_table::{Admission, ConnectionId, ConnectionTable},
    peer_network::PeerNetwork,
};
use crate::metrics::Metrics;

/// All connections of the secure port.
#[derive(Clone)]
pub(super) struct Connections {
    inner: Arc<Mutex<Inner>>,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct Inner {
    table: ConnectionTable,
    close: HashMap<ConnectionId, CancellationToken>,
}

impl Connections {
    pub(super) fn new(metrics: &Arc<Metrics>) -> Self {
        Self { inner: Arc::default(), metrics: Arc::clone(metrics) }
    }

    /// A place for a connection from `peer`, if the rule has one.
    pub(super) fn admit(&self, peer: PeerNetwork) -> Option<Place> {
        let now = Instant::now();
        self.with(|inner| {
            match inner.table.admission(peer, now) {
                Admission::Free => {}
                Admission::InPlaceOf(other) => {
                    self.closed("replaced");
                    inner.release(other);
                }
                Admission::PeerHasItsShare => {
                    self.closed("peer");
                    return None;
                }
                Admission::AllTaken => {
                    self.closed("all");
                    return None;
                }
            }
            let (id, close) = (inner.table.insert(peer, now), CancellationToken::new());
            inner.close.insert(id, close.clone());
            Some(Place { id, peer, close, connections: self.clone() })
        })
    }

    fn closed(&self, reason: &str) {
        self.metrics.serving_connections_refused_total.with_label_values(&[reason]).inc();
    }

    fn with<R>(&self, act: impl FnOnce(&mut Inner) -> R) -> R {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = act(&mut inner);
        #[allow(clippy::cast_precision_loss, reason = "few")]
        self.metrics.serving_connections.with_label_values(&[] as &[&str]).set(inner.table.len() as f64);
        answer
    }
}

impl Inner {
    fn release(&mut self, id: ConnectionId) {
        self.table.remove(id);
        if let Some(close) = self.close.remove(&id) {
            close.cancel();
        }
    }
}

/// Held by an open connection, and given back when dropped.
pub(super) struct Place {
    id: ConnectionId,
    peer: PeerNetwork,
    close: CancellationToken,
    connections: Connections,
}

impl Place {
    pub(super) fn peer(&self) -> PeerNetwork {
        self.peer
    }

    /// A request of the connection was allowed a page that is not for everybody.
    pub(super) fn set_known(&self) {
        let now = Instant::now();
        self.connections.with(|inner| inner.table.set_known(self.id, now));
    }

    /// Resolves when another connection has got the place.
    pub(super) async fn given_up(&self) {
        self.close.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.with(|inner| inner.release(self.id));
    }
}
