//! Partitions between clients and the server.
//!
//! Requests, responses or both arrive after the partition, unless the client has timed out before. A client is identified by
//! the first part of its `User-Agent`.

use std::collections::BTreeMap;

use crate::runtime::watch;

/// Direction of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartitionedWay {
    /// Requests to the server are delayed. Its responses and events are delayed as well, since they are not acknowledged.
    ToServer,
    /// Responses and events to the client are delayed. Requests have their effect.
    FromServer,
}

/// Current partitions. Clones share them.
#[derive(Debug, Clone)]
pub struct Partitions(watch::Sender<BTreeMap<String, PartitionedWay>>);

impl Default for Partitions {
    fn default() -> Self {
        Self(watch::Sender::new(BTreeMap::new()))
    }
}

impl Partitions {
    /// Cuts a client off, or, with `None`, connects it again.
    pub(super) fn set(&self, client: &str, way: Option<PartitionedWay>) {
        self.0.send_modify(|partitions| {
            partitions.remove(client);
            partitions.extend(way.map(|way| (client.to_owned(), way)));
        });
    }

    /// Resolves when a request of `user_agent` reaches the server.
    pub(super) async fn request_arrives(&self, user_agent: &str) {
        self.until(user_agent, |way| way == PartitionedWay::FromServer).await;
    }

    /// Resolves when a response reaches `user_agent`.
    pub(super) async fn response_arrives(&self, user_agent: &str) {
        self.until(user_agent, |_| false).await;
    }

    async fn until(&self, user_agent: &str, passes: impl Fn(PartitionedWay) -> bool) {
        let mut partitions = self.0.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let is_open = |partitions: &BTreeMap<String, PartitionedWay>| {
            partitions.iter().all(|(client, way)| !user_agent.starts_with(client.as_str()) || passes(*way))
        };
        let _ = partitions.wait_for(|partitions| is_open(partitions)).await;
    }
}
