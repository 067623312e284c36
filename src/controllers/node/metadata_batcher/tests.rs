use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;

use super::*;
use crate::node::{fixtures::node, name};

/// Provider whose provider ids are the names of the Nodes. Nodes named `panics`, `hangs` or `silent` break every batch they are in.
#[derive(Default)]
struct Cloud {
    batches: Mutex<Vec<usize>>,
    singles: AtomicUsize,
}

#[async_trait]
impl InstancesV2 for Cloud {
    async fn instance_exists(&self, _: &Node) -> CloudResult<bool> {
        Ok(true)
    }
    async fn instance_shutdown(&self, _: &Node) -> CloudResult<bool> {
        Ok(false)
    }
    async fn instance_metadata(&self, node: &Node) -> CloudResult<Option<InstanceMetadata>> {
        self.singles.fetch_add(1, Ordering::SeqCst);
        assert_ne!(name(node), "panics", "planned panic");
        Ok(Some(InstanceMetadata { provider_id: name(node).to_owned(), ..InstanceMetadata::default() }))
    }
    async fn instance_metadata_batch(&self, nodes: &[Arc<Node>]) -> Vec<CloudResult<Option<InstanceMetadata>>> {
        self.batches.lock().push(nodes.len());
        assert!(nodes.iter().all(|node| name(node) != "panics"), "planned panic");
        if nodes.iter().any(|node| name(node) == "hangs") {
            tokio::time::sleep(Duration::from_secs(60)).await;
            return vec![Err(CloudError::Deadline { call: "batch", limit: Duration::from_secs(60) }); nodes.len()];
        }
        let silent = nodes.iter().any(|node| name(node) == "silent");
        let metadata = |node: &Arc<Node>| InstanceMetadata { provider_id: name(node).to_owned(), ..Default::default() };
        nodes.iter().filter(|_| !silent).map(|node| Ok(Some(metadata(node)))).collect()
    }
}

fn cloud_and_batcher() -> (Arc<Cloud>, Arc<MetadataBatcher>) {
    let cloud = Arc::new(Cloud::default());
    let batcher = MetadataBatcher::new(Arc::clone(&cloud) as Arc<dyn InstancesV2>);
    (cloud, batcher)
}

async fn fetch(batcher: &Arc<MetadataBatcher>, name: &str) -> MetadataResult {
    batcher.fetch(&Arc::new(node(name))).await
}

fn id(result: MetadataResult) -> String {
    result.unwrap().unwrap().provider_id
}

#[tokio::test(start_paused = true)]
async fn concurrent_requests_share_one_batch() {
    let (cloud, batcher) = cloud_and_batcher();
    let names: Vec<_> = (0..50).map(|n| format!("n{n}")).collect();
    let results = futures::future::join_all(names.iter().map(|name| fetch(&batcher, name))).await;
    assert_eq!(results.into_iter().map(id).collect::<Vec<_>>(), names);
    assert_eq!(id(fetch(&batcher, "later").await), "later");
    assert_eq!(*cloud.batches.lock(), [50, 1]);
    assert_eq!(cloud.singles.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn failed_batch_is_repeated_one_node_at_a_time() {
    for bad in ["silent", "hangs"] {
        let (cloud, batcher) = cloud_and_batcher();
        let (good, bad) = tokio::join!(fetch(&batcher, "good"), fetch(&batcher, bad));
        assert_eq!(id(good), "good");
        assert!(bad.is_ok());
        assert_eq!(cloud.singles.load(Ordering::SeqCst), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_affects_only_its_node() {
    let (_, batcher) = cloud_and_batcher();
    let bad = Arc::clone(&batcher);
    let bad = tokio::spawn(async move { fetch(&bad, "panics").await });
    assert_eq!(id(fetch(&batcher, "good").await), "good");
    assert!(bad.await.unwrap_err().is_panic());
    assert_eq!(id(fetch(&batcher, "after").await), "after");
}

#[tokio::test(start_paused = true)]
async fn a_slow_batch_does_not_delay_the_next() {
    let (_, batcher) = cloud_and_batcher();
    let slow = Arc::clone(&batcher);
    let slow = tokio::spawn(async move { fetch(&slow, "hangs").await });
    tokio::time::sleep(BATCH_DELAY * 2).await;
    let start = tokio::time::Instant::now();
    assert_eq!(id(fetch(&batcher, "quick").await), "quick");
    assert!(start.elapsed() <= MAX_BATCH_WAIT);
    assert!(matches!(slow.await.unwrap(), Err(CloudError::Deadline { .. })), "alone in its batch: not requested again");
}
