//! The contract between the controllers and a cloud, name for name with `kubernetes/cloud-provider`'s `cloud.go`, without the parts
//! that no controller calls.
//!
//! In: plain Kubernetes objects (`&Service`, `&Node`, `&[Arc<Node>]`). Out: what the cloud knows, or a [`CloudError`] that says
//! what the caller should do next. A provider implements [`CloudProvider`] and whichever optional parts its cloud has; a part
//! that returns `None` switches off what needs it. Beyond `cloud.go`, each with a default so that a provider may ignore it:
//! existence with three values ([`InstancesV2::existence`]) and a second source for it ([`InstancesV2::second_look`]), batches ([`InstancesV2::instance_metadata_batch`],
//! [`Routes::apply_routes`]), sizes of pod CIDRs ([`PodCidrMasks`]) and plans ([`LoadBalancer::plan_services`], [`Routes::plan_changes`]).
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
pub mod node_fields;
mod older_instances;
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

pub use crate::{
    runtime::{
        admission::{AdmissionAnswer, AdmissionObject, AdmissionRequest, AdmissionWebhook},
        informer::AnnotationUse,
    },
    status::ProviderDetails,
};
pub use error::{CloudError, CloudResult};
pub use instances::{AddressType, Existence, InstanceMetadata, Instances, InstancesV2, NodeAddress, SecondLook};
pub use load_balancer::{
    LabelsRead, LoadBalancer, LoadBalancerIngress, LoadBalancerStatus, PortStatus, ServiceDemand, ServiceListLimits,
    ServicesPlan,
};
pub use older_instances::instances_of;
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
    /// Returns the name in `--cloud-provider`, which is the scheme of provider IDs (`<name>://…`).
    fn provider_name(&self) -> &str;

    /// Returns `true` if resources of this cluster can be distinguished from those of others. Otherwise the manager refuses
    /// to start unless `--allow-untagged-cloud` is set.
    fn has_cluster_id(&self) -> bool {
        true
    }

    /// Initializes the provider: warms caches and starts housekeeping tasks, which end with [`ProviderContext::shutdown`].
    ///
    /// Called once before any other part is used, on every replica, leading or not. An error is retried with backoff; the
    /// process keeps running and is not ready.
    async fn initialize(&self, _context: ProviderContext) -> CloudResult<()> {
        Ok(())
    }

    /// Checks whether the provider can do its work now. The error is for an operator.
    ///
    /// `/readyz` shows it once the provider is initialized. Called often: it must not block.
    fn health(&self) -> Result<(), String> {
        Ok(())
    }

    /// Returns what the provider is doing, and the reasons why it is not doing more, for the status page. It contains no
    /// secrets.
    fn status(&self) -> Option<ProviderDetails> {
        None
    }

    /// Brings gauges up to date before metrics are read. It must not wait.
    fn observe(&self) {}

    /// Returns `true` if the provider reads this label of a Node, or adds it to Nodes
    /// ([`InstanceMetadata::additional_labels`]).
    ///
    /// The Nodes that it gets have no other labels but those that the controllers read. Called for each label of each Node,
    /// so it must be fast. When a label becomes one that is read,
    /// [`InformerStore::want_relist`](crate::runtime::store::InformerStore::want_relist) fetches it.
    fn reads_node_label(&self, _key: &str) -> bool {
        true
    }

    /// Returns `true` if the provider ID of a Node belongs to another cloud. The controllers do not change such a Node.
    ///
    /// Called for each Node and each change of it, so it must be fast.
    fn is_foreign(&self, _node: &Node) -> bool {
        false
    }

    /// Returns `true` if a Node must have a provider ID of this cloud.
    ///
    /// A Node that needs one and has neither one nor the uninitialized taint is reported, because no controller initializes
    /// it. Called like [`CloudProvider::is_foreign`].
    fn needs_provider_id(&self, _node: &Node) -> bool {
        true
    }

    /// Returns the largest age of the data of [`LoadBalancer::plan_services`] and other plans: a difference that another
    /// manager has just removed shows for so long.
    fn cache_age(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns `true` if the provider reads this label of a Service ([`LoadBalancer::labels_read`]). As
    /// [`CloudProvider::reads_node_label`].
    fn reads_service_label(&self, _key: &str) -> bool {
        true
    }

    /// Returns how long lists of a Service may be. Called once.
    fn service_list_limits(&self) -> ServiceListLimits {
        ServiceListLimits::NONE
    }

    /// Returns how an annotation of Services is used.
    ///
    /// The Service is `None` before it is decoded: an annotation that some Service may have is then
    /// [`AnnotationUse::Read`]. Called for each annotation of each Service, so it must be fast.
    fn service_annotation(&self, _key: &str, _service: Option<&Service>) -> AnnotationUse {
        AnnotationUse::Read { longest: usize::MAX }
    }

    /// Returns why this provider must not lead a cluster with these Nodes, for an operator; `None` if it may. Called once the Nodes are
    /// listed and before any controller starts, then for each Node that joins or changes.
    fn refuses_cluster(&self, _nodes: &[Arc<Node>]) -> Option<String> {
        None
    }

    /// Returns the load balancers, for Services of type `LoadBalancer`.
    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        None
    }
    /// Returns the instances, in the older form by name and provider ID. Used only when [`CloudProvider::instances_v2`] is
    /// `None`.
    fn instances(&self) -> Option<Arc<dyn Instances>> {
        None
    }
    /// Returns the instances, by Node object. Preferred.
    fn instances_v2(&self) -> Option<Arc<dyn InstancesV2>> {
        None
    }
    /// Zones and regions, for providers with [`CloudProvider::instances`] only.
    fn zones(&self) -> Option<Arc<dyn Zones>> {
        None
    }
    /// Returns the admission webhooks that the manager hosts when `--webhooks` names them. Called once, before
    /// [`CloudProvider::initialize`].
    fn webhooks(&self) -> Vec<Arc<dyn AdmissionWebhook>> {
        Vec::new()
    }
    /// Returns the routes for pod CIDRs.
    fn routes(&self) -> Option<Arc<dyn Routes>> {
        None
    }
    /// Sizes of pod CIDRs by Node, for `--cidr-allocator-type=CloudAllocator`.
    fn pod_cidr_masks(&self) -> Option<Arc<dyn PodCidrMasks>> {
        None
    }
}
