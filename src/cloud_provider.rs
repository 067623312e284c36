//! Contract between the controllers and a cloud. It has the names of `cloud.go` in `kubernetes/cloud-provider`, without the
//! parts that no controller calls.
//!
//! In: plain Kubernetes objects (`&Service`, `&Node`, `&[Arc<Node>]`). Out: the state of the cloud, or a [`CloudError`]
//! whose variant determines the next step of the caller. A provider implements [`CloudProvider`] and the optional parts that
//! its cloud has. If a part is `None`, the controllers that need it do not run.
//!
//! The following methods are additions to `cloud.go`. Each has a default, so a provider does not have to implement them:
//!
//! - existence with three values ([`InstancesV2::existence`]) and a second source for it ([`InstancesV2::second_look`]);
//! - batches ([`InstancesV2::instance_metadata_batch`], [`Routes::apply_routes`]);
//! - sizes of pod CIDRs ([`PodCidrMasks`]);
//! - plans ([`LoadBalancer::plan_services`], [`Routes::plan_changes`]).
//!
//! Nothing here names a provider or a controller.
//!
//! # Example
//!
//! A provider with instances only. The guide `docs/guides/writing-a-provider.md` has a complete provider.
//!
//! ```
//! use std::sync::Arc;
//!
//! use async_trait::async_trait;
//! use cloud_controller_manager::cloud_provider::{
//!     CloudError, CloudProvider, CloudResult, InstanceMetadata, InstancesV2, node_fields,
//! };
//! use k8s_openapi::api::core::v1::Node;
//!
//! /// Cloud in which each Node whose name starts with `vm-` has an instance.
//! #[derive(Clone)]
//! struct ExampleCloud;
//!
//! impl CloudProvider for ExampleCloud {
//!     fn provider_name(&self) -> &str {
//!         "example"
//!     }
//!
//!     fn instances_v2(&self) -> Option<Arc<dyn InstancesV2>> {
//!         Some(Arc::new(self.clone()))
//!     }
//! }
//!
//! #[async_trait]
//! impl InstancesV2 for ExampleCloud {
//!     async fn instance_exists(&self, node: &Node) -> CloudResult<bool> {
//!         Ok(node_fields::name(node).starts_with("vm-"))
//!     }
//!
//!     async fn instance_shutdown(&self, _node: &Node) -> CloudResult<bool> {
//!         Ok(false)
//!     }
//!
//!     async fn instance_metadata(&self, node: &Node) -> CloudResult<Option<InstanceMetadata>> {
//!         if !self.instance_exists(node).await? {
//!             return Err(CloudError::InstanceNotFound);
//!         }
//!         let provider_id = format!("example://{}", node_fields::name(node));
//!         Ok(Some(InstanceMetadata { provider_id, ..InstanceMetadata::default() }))
//!     }
//! }
//!
//! let cloud: Arc<dyn CloudProvider> = Arc::new(ExampleCloud);
//! assert!(cloud.instances_v2().is_some() && cloud.load_balancer().is_none());
//! ```

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

/// Cloud of the cluster. Upstream: `cloud.go`, `Interface`.
///
/// All methods but [`CloudProvider::initialize`] must return at once. Requests to the cloud belong in the returned parts.
#[async_trait]
pub trait CloudProvider: Send + Sync {
    /// Returns the name in `--cloud-provider`, which is also the scheme of provider IDs (`<name>://…`).
    ///
    /// It consists of lowercase ASCII letters, digits and dashes. Upstream: `ProviderName`.
    fn provider_name(&self) -> &str;

    /// Returns `true` if resources of this cluster can be distinguished from those of other clusters. Upstream:
    /// `HasClusterID`.
    ///
    /// If it returns `false`, the manager refuses to start unless `--allow-untagged-cloud` is set.
    fn has_cluster_id(&self) -> bool {
        true
    }

    /// Initializes the provider: fills caches and starts background tasks, which end with [`ProviderContext::shutdown`].
    ///
    /// Called before any part is used, on every replica, whether it leads or not. This means that it must not write to the
    /// cloud unless [`ProviderContext::leadership`] permits it. Upstream: `Initialize`.
    ///
    /// # Errors
    ///
    /// Any error or panic is logged, and the call is repeated with backoff (1 s to 1 minute). Until it succeeds, the process
    /// keeps running and is not ready.
    async fn initialize(&self, _context: ProviderContext) -> CloudResult<()> {
        Ok(())
    }

    /// Checks whether the provider can work now. `/readyz` shows the result once the provider is initialized.
    ///
    /// Called often, so it must not block.
    ///
    /// # Errors
    ///
    /// The reason why the provider cannot work, as a text for operators. The process is then not ready, but keeps running.
    fn health(&self) -> Result<(), String> {
        Ok(())
    }

    /// Returns the current work of the provider, and the reasons for delays, for the status page; `None`: nothing to show.
    ///
    /// It must not contain secrets.
    fn status(&self) -> Option<ProviderDetails> {
        None
    }

    /// Updates gauges. Called before each read of the metrics, so it must not block.
    fn observe(&self) {}

    /// Returns `true` if the provider reads this label of a Node, or adds it to Nodes
    /// ([`InstanceMetadata::additional_labels`]).
    ///
    /// If it returns `false`, the label is not cached. This means that the Nodes in [`ProviderContext::nodes`] and in calls
    /// lack it unless a controller reads it. Called for each label of each Node, so it must be fast.
    ///
    /// If a new configuration makes the provider read another label,
    /// [`InformerStore::request_relist`](crate::runtime::store::InformerStore::request_relist) fetches it.
    fn reads_node_label(&self, _key: &str) -> bool {
        true
    }

    /// Returns `true` if the provider ID of a Node belongs to another cloud. The controllers neither change nor delete such
    /// a Node.
    ///
    /// Called for each Node and each change of it, so it must be fast.
    fn is_foreign(&self, _node: &Node) -> bool {
        false
    }

    /// Returns `true` if a Node must have a provider ID of this cloud.
    ///
    /// A Node that needs a provider ID and has neither the ID nor the uninitialized taint is reported, because no controller
    /// initializes it. Called for each Node and each change of it, so it must be fast.
    fn needs_provider_id(&self, _node: &Node) -> bool {
        true
    }

    /// Returns the largest age of the data in plans, such as those of [`LoadBalancer::plan_services`]. By default zero.
    ///
    /// This means that a plan can show a difference for so long after another manager has removed it. A shadow manager
    /// counts a difference only if it is older.
    fn cache_age(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns `true` if the provider reads this label of a Service, for example because [`LoadBalancer::labels_read`] names
    /// it.
    ///
    /// If it returns `false`, the label is not cached. Called for each label of each Service, so it must be fast.
    fn reads_service_label(&self, _key: &str) -> bool {
        true
    }

    /// Returns the maximum lengths of the lists of a Service. By default there is no limit. Called once.
    fn service_list_limits(&self) -> ServiceListLimits {
        ServiceListLimits::NONE
    }

    /// Returns the use of an annotation of Services, which determines whether its value is cached.
    ///
    /// Before the Service is decoded, it is `None`. Then the result must be [`AnnotationUse::Read`] if the provider reads
    /// the annotation of any Service. Called for each annotation of each Service, so it must be fast.
    fn service_annotation(&self, _key: &str, _service: Option<&Service>) -> AnnotationUse {
        AnnotationUse::Read { longest: usize::MAX }
    }

    /// Returns the reason why this provider must not lead a cluster with these Nodes, for operators; `None` if it may lead.
    ///
    /// Called with all Nodes before any controller starts, then with each Node that joins or changes. With a reason, the
    /// manager does not lead. This protects clusters of another cloud from a wrong `--cloud-provider`.
    fn refuses_cluster(&self, _nodes: &[Arc<Node>]) -> Option<String> {
        None
    }

    /// Returns the load balancers, for Services of type `LoadBalancer`. Without them, the service controller does not run.
    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        None
    }
    /// Returns the instances in the older form, by name and provider ID.
    ///
    /// Used only if [`CloudProvider::instances_v2`] returns `None`. Without both, the controllers of Nodes do not run.
    fn instances(&self) -> Option<Arc<dyn Instances>> {
        None
    }
    /// Returns the instances, by Node object. New providers implement this form.
    fn instances_v2(&self) -> Option<Arc<dyn InstancesV2>> {
        None
    }
    /// Returns the zones and regions. Used only with [`CloudProvider::instances`].
    fn zones(&self) -> Option<Arc<dyn Zones>> {
        None
    }
    /// Returns the admission webhooks that the manager serves if `--webhooks` names them.
    ///
    /// Called once, before [`CloudProvider::initialize`].
    fn webhooks(&self) -> Vec<Arc<dyn AdmissionWebhook>> {
        Vec::new()
    }
    /// Returns the routes for pod CIDRs. Without them, the route controller does not run.
    fn routes(&self) -> Option<Arc<dyn Routes>> {
        None
    }
    /// Returns the sizes of pod CIDRs by Node. Without them, `--cidr-allocator-type=CloudAllocator` is refused at the start.
    fn pod_cidr_masks(&self) -> Option<Arc<dyn PodCidrMasks>> {
        None
    }
}
