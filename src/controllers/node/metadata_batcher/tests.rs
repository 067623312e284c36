use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;

use super::*;
use crate::node::{fixtures::node, name};

/// Answers with the node's name as provider id; `bad` nodes spoil every batch they are in, each in its own way.
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
        assert_ne!(name(node), "panics", "as asked");
        Ok(Some(InstanceMetadata { provider_id: name(node).to_owned(), ..InstanceMetadata::default() }))
    }
    async fn instance_metadata_batch(&self, nodes: &[Arc<Node>]) -> Vec<CloudResult<Option<InstanceMetadata>>> {
        self.batches.lock().push(nodes.len());
        assert!(nodes.iter().all(|node| name(node) != "panics"), "as asked");
        if nodes.iter().any(|node| name(node) == "hangs") {
            tokio::time::sleep(Duration::from_secs(60)).await;
            return vec![Err(CloudError::Deadline { call: "batch", limit: Duration::from_secs(60) }); nodes.len()];
        }
        let silent = nodes.iter().any(|node| name(node) == "silent");
        let answer = |node: &Arc<Node>| InstanceMetadata { provider_id: name(node).to_owned(), ..Default::default() };
        nodes.iter().filter(|_| !silent).map(|node| Ok(Some(answer(node)))).collect()
    }
}

fn gatherer() -> (Arc<Cloud>, Arc<MetadataBatcher>) {
    let cloud = Arc::new(Cloud::default());
    let batcher = MetadataBatcher::new(Arc::clone(&cloud) as Arc<dyn InstancesV2>);
    (cloud, batcher)
}

async fn ask(gatherer: &Arc<MetadataBatcher>, name: &str) -> MetadataResult {
    gatherer.fetch(&Arc::new(node(name))).await
}

fn id(answer: MetadataResult) -> String {
    answer.unwrap().unwrap().provider_id
}

#[tokio::test(start_paused = true)]
async fn those_who_ask_together_are_asked_for_together() {
    let (cloud, gatherer) = gatherer();
    let names: Vec<_> = (0..50).map(|n| format!("n{n}")).collect();
    let answers = futures::future::join_all(names.iter().map(|name| ask(&gatherer, name))).await;
    assert_eq!(answers.into_iter().map(id).collect::<Vec<_>>(), names);
    assert_eq!(id(ask(&gatherer, "later").await), "later");
    assert_eq!(*cloud.batches.lock(), [50, 1]);
    assert_eq!(cloud.singles.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_ends_without_answers_is_asked_one_by_one() {
    for bad in ["silent", "hangs"] {
        let (cloud, gatherer) = gatherer();
        let (good, bad) = tokio::join!(ask(&gatherer, "good"), ask(&gatherer, bad));
        assert_eq!(id(good), "good");
        assert!(bad.is_ok());
        assert_eq!(cloud.singles.load(Ordering::SeqCst), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_hits_only_its_node() {
    let (_, gatherer) = gatherer();
    let bad = Arc::clone(&gatherer);
    let bad = tokio::spawn(async move { ask(&bad, "panics").await });
    assert_eq!(id(ask(&gatherer, "good").await), "good");
    assert!(bad.await.unwrap_err().is_panic());
    assert_eq!(id(ask(&gatherer, "after").await), "after");
}

#[tokio::test(start_paused = true)]
async fn a_slow_batch_does_not_hold_up_the_next() {
    let (_, gatherer) = gatherer();
    let slow = Arc::clone(&gatherer);
    let slow = tokio::spawn(async move { ask(&slow, "hangs").await });
    tokio::time::sleep(BATCH_DELAY * 2).await;
    let start = tokio::time::Instant::now();
    assert_eq!(id(ask(&gatherer, "quick").await), "quick");
    assert!(start.elapsed() <= MAX_BATCH_WAIT);
    assert!(matches!(slow.await.unwrap(), Err(CloudError::Deadline { .. })), "alone in its batch: not asked again");
}
