//! Tracker of open connections, which closes evicted connections.
//!
//! In: the networks of accepted sockets. Out: a [`ConnectionSlot`] that a connection holds while it is open, or `None`.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    connection_table::{ConnectionAdmission, ConnectionId, ConnectionTable},
    peer_network::PeerNetwork,
};
use crate::metrics::Metrics;

/// Connections of the secure port.
#[derive(Clone)]
pub(super) struct ConnectionTracker {
    state: Arc<Mutex<ConnectionTrackerState>>,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct ConnectionTrackerState {
    table: ConnectionTable,
    close: HashMap<ConnectionId, CancellationToken>,
}

impl ConnectionTracker {
    pub(super) fn new(metrics: &Arc<Metrics>) -> Self {
        Self { state: Arc::default(), metrics: Arc::clone(metrics) }
    }

    /// Returns a slot for a connection from `peer`; `None` if it is refused.
    pub(super) fn admit(&self, peer: PeerNetwork) -> Option<ConnectionSlot> {
        let now = Instant::now();
        self.with(|inner| {
            match inner.table.admission(peer, now) {
                ConnectionAdmission::Admit => {}
                ConnectionAdmission::Replace(other) => {
                    self.count_refused("replaced");
                    inner.release(other);
                }
                ConnectionAdmission::NetworkFull => {
                    self.count_refused("peer");
                    return None;
                }
                ConnectionAdmission::Full => {
                    self.count_refused("all");
                    return None;
                }
            }
            let (id, close) = (inner.table.insert(peer, now), CancellationToken::new());
            inner.close.insert(id, close.clone());
            Some(ConnectionSlot { id, peer, close, connections: self.clone() })
        })
    }

    fn count_refused(&self, reason: &str) {
        self.metrics.serving_connections_refused_total.with_label_values(&[reason]).inc();
    }

    fn with<R>(&self, act: impl FnOnce(&mut ConnectionTrackerState) -> R) -> R {
        let mut inner = self.state.lock();
        let before = inner.table.len();
        let result = act(&mut inner);
        // The metric covers both ports, so it is changed and not set.
        #[allow(clippy::cast_precision_loss, reason = "few")]
        let change = inner.table.len() as f64 - before as f64;
        self.metrics.serving_connections.with_label_values(&[] as &[&str]).add(change);
        result
    }
}

impl ConnectionTrackerState {
    fn release(&mut self, id: ConnectionId) {
        self.table.remove(id);
        if let Some(close) = self.close.remove(&id) {
            close.cancel();
        }
    }
}

/// Slot of an open connection, which is released on drop.
pub(super) struct ConnectionSlot {
    id: ConnectionId,
    pub(super) peer: PeerNetwork,
    close: CancellationToken,
    connections: ConnectionTracker,
}

impl ConnectionSlot {
    /// Records that a request of the connection was permitted to read a page that is not public, so it may keep its slot.
    pub(super) fn set_authorized(&self) {
        let now = Instant::now();
        self.connections.with(|inner| inner.table.set_authorized(self.id, now));
    }

    /// Resolves when another connection has replaced this one.
    pub(super) async fn evicted(&self) {
        self.close.cancelled().await;
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.connections.with(|inner| inner.release(self.id));
    }
}
