//! Clusters of a metered provider.

use async_trait::async_trait;

use super::MeteredProvider;
use crate::cloud_provider::{CloudResult, Clusters};

#[async_trait]
impl Clusters for MeteredProvider<dyn Clusters> {
    async fn list_clusters(&self) -> CloudResult<Vec<String>> {
        self.meter.read("list_clusters", self.inner.list_clusters()).await
    }

    async fn master(&self, name: &str) -> CloudResult<String> {
        self.meter.read("master", self.inner.master(name)).await
    }
}
