//! The contract between the controllers and a cloud, name for name with `kubernetes/cloud-provider`'s `cloud.go`.
//!
//! In: plain Kubernetes objects (`&Service`, `&Node`, `&[Arc<Node>]`). Out: what the cloud knows, or a [`CloudError`] that says
//! what the caller should do next. A provider implements [`CloudProvider`] and whichever optional parts its cloud has; a part
//! that returns `None` switches off what needs it. Beyond `cloud.go`, each with a default so that a provider may ignore it:
//! existence with three values ([`InstancesV2::existence`]) and a second source for it ([`InstancesV2::second_look`]), batches ([`InstancesV2::instance_metadata_batch`],
//! [`Routes::apply_routes`]), sizes of pod CIDRs ([`PodCidrMasks`]) and printable plans ([`LoadBalancer::plan_load_balancer`], [`Routes::plan_routes`]).
//!
//! Nothing here names a provider or a controller.

#![warn(missing_docs)]

pub(crate) mod config;
pub mod conformance;
pub mod diagnostics;
pub mod drift;
pub mod endpoint_digests;
mod error;
pub mod helpers;
mod instances;
mod load_balancer;
pub mod load_balancer_class;
pub mod metered;
mod pod_cidr_masks;
mod pv_labeler;
pub mod registry;
mod routes;
pub mod start;
pub mod write_plan;
mod zones;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Node, Service};

pub use crate::runtime::{
    admission::{AdmissionAnswer, AdmissionObject, AdmissionRequest, AdmissionWebhook},
    informer::AnnotationUse,
};
pub use error::{CloudError, CloudResult};
pub use instances::{AddressType, Existence, InstanceMetadata, Instances, InstancesV2, NodeAddress, SecondLook};
pub use load_balancer::{
    LabelsRead, LoadBalancer, LoadBalancerForecast, LoadBalancerIngress, LoadBalancerStatus, PortStatus, ServiceDemand,
};
pub use pod_cidr_masks::{PodCidrMaskSizes, PodCidrMasks};
pub use pv_labeler::{PV_LABELER, PV_LABELER_PATH, PvLabelWebhook, PvLabeler};
pub use registry::{LocalConfig, ProviderContext, Registry};
pub use routes::{Route, RouteChanges, RouteOutcomes, Routes};
pub use write_plan::{PlannedWrite, WritePlan};
pub use zones::{Zone, Zones};

/// A cloud. Upstream: `cloud.go`, `Interface`.
///
/// All methods are cheap accessors; work happens in the parts they hand out.
#[async_trait]
pub trait CloudProvider: Send + Sync {
    /// The name in `--cloud-provider` and the scheme of provider ids (`<name>://…`).
    fn provider_name(&self) -> &str;

    /// Whether resources of this cluster can be told from those of others. Without it the manager refuses to start unless
    /// `--allow-untagged-cloud` is given.
    fn has_cluster_id(&self) -> bool {
        true
    }

    /// Called once before any other part is used, on every replica, leading or not: warm caches, start housekeeping tasks on
    /// [`ProviderContext::shutdown`]. An error here is retried with back-off; the process stays up and is not ready.
    async fn initialize(&self, context: ProviderContext) -> CloudResult<()> {
        let _ = context;
        Ok(())
    }

    /// Whether the provider can do its work now; if not, why, for an operator. Shown by `/readyz` once the provider is
    /// initialised. Asked often: it must not wait.
    fn health(&self) -> Result<(), String> {
        Ok(())
    }

    /// What the provider is doing and why it is not doing more, for the status page. No secrets.
    fn status(&self) -> serde_json::Value {
        serde_json::Value::Null
    }

    /// Brings gauges up to date before metrics are read. It must not wait.
    fn observe(&self) {}

    /// Whether the provider looks at this label of a Node, or gives it to Nodes ([`InstanceMetadata::additional_labels`]). The Nodes that it is
    /// shown have no other labels but those that the controllers read. Asked for each label of each Node, so it must be quick. When a
    /// label becomes one that is read, [`InformerStore::relist`](crate::runtime::store::InformerStore::relist) brings it.
    fn reads_node_label(&self, key: &str) -> bool {
        let _ = key;
        true
    }

    /// Whether the provider id of `node` belongs to another cloud. The controllers do not change such a Node. The method is called for
    /// each Node and each change of it, so it must be quick.
    fn is_foreign(&self, node: &Node) -> bool {
        let _ = node;
        false
    }

    /// Returns `true` if `node` is to have a provider id of this cloud. A Node that needs one and has neither one nor the uninitialized taint is
    /// reported, because no controller initializes it. Called like [`CloudProvider::is_foreign`].
    fn needs_provider_id(&self, node: &Node) -> bool {
        let _ = node;
        true
    }

    /// How old what [`LoadBalancer::forecast`] and other plans are made from may be: a difference that another manager has just removed shows
    /// for so long.
    fn cache_age(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns what becomes of an annotation of Services. `service` is `None` before the Service is decoded: an annotation that some Service may
    /// have is then [`AnnotationUse::Read`]. Called for each annotation of each Service, so it must be quick.
    fn service_annotation(&self, key: &str, service: Option<&Service>) -> AnnotationUse {
        let _ = (key, service);
        AnnotationUse::Read { longest: usize::MAX }
    }

    /// Returns why this provider must not lead a cluster with these Nodes, for an operator; `None` if it may. Called once the Nodes are
    /// listed and before any controller starts.
    fn refuses_cluster(&self, nodes: &[Arc<Node>]) -> Option<String> {
        let _ = nodes;
        None
    }

    /// Load balancers for Services of type `LoadBalancer`.
    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        None
    }
    /// Instances, in the older form by name and provider id. Used only when [`CloudProvider::instances_v2`] is `None`.
    fn instances(&self) -> Option<Arc<dyn Instances>> {
        None
    }
    /// Instances, by Node object. Preferred.
    fn instances_v2(&self) -> Option<Arc<dyn InstancesV2>> {
        None
    }
    /// Zones and regions, for providers with [`CloudProvider::instances`] only.
    fn zones(&self) -> Option<Arc<dyn Zones>> {
        None
    }
    /// Other clusters of the same cloud account. No controller uses it; kept for parity.
    fn clusters(&self) -> Option<Arc<dyn Clusters>> {
        None
    }
    /// Admission webhooks that the manager hosts when `--webhooks` names them. Asked once, before [`CloudProvider::initialize`].
    fn webhooks(&self) -> Vec<Arc<dyn AdmissionWebhook>> {
        Vec::new()
    }
    /// Routes for pod CIDRs.
    fn routes(&self) -> Option<Arc<dyn Routes>> {
        None
    }
    /// Sizes of pod CIDRs by Node, for `--cidr-allocator-type=CloudAllocator`.
    fn pod_cidr_masks(&self) -> Option<Arc<dyn PodCidrMasks>> {
        None
    }
}

/// Clusters of a cloud. Upstream: `cloud.go`, `Clusters`.
#[async_trait]
pub trait Clusters: Send + Sync {
    /// Names of the clusters known to the cloud.
    async fn list_clusters(&self) -> CloudResult<Vec<String>>;
    /// Address of the control plane of cluster `name`: host, DNS name or URL.
    async fn master(&self, name: &str) -> CloudResult<String>;
}
