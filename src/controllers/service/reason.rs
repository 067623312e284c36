//! Reasons of the service controller's events, as in upstream's `service/controller.go`.

pub(super) const ENSURING: &str = "EnsuringLoadBalancer";
pub(super) const ENSURED: &str = "EnsuredLoadBalancer";
pub(super) const UNAVAILABLE: &str = "UnAvailableLoadBalancer";
pub(super) const UPDATED: &str = "UpdatedLoadBalancer";
pub(super) const UPDATE_FAILED: &str = "UpdateLoadBalancerFailed";
pub(super) const DELETING: &str = "DeletingLoadBalancer";
pub(super) const DELETED: &str = "DeletedLoadBalancer";
pub(super) const DELETE_FAILED: &str = "DeleteLoadBalancerFailed";
/// Reason without a counterpart upstream.
pub(super) const WAITING_FOR_OTHER_MANAGER: &str = "WaitingForOtherManager";
/// Reason without a counterpart upstream.
pub(super) const RESTORED: &str = "LoadBalancerStatusRestored";
/// Reason without a counterpart upstream.
pub(super) const CHANGED: &str = "LoadBalancerStatusChanged";
pub(super) const SYNC_FAILED: &str = "SyncLoadBalancerFailed";
pub(super) const TYPE: &str = "Type";
pub(super) const SOURCE_RANGES: &str = "LoadBalancerSourceRanges";
pub(super) const LOAD_BALANCER_IP: &str = "LoadbalancerIP";
pub(super) const EXTERNAL_IP: &str = "ExternalIP";
pub(super) const UID: &str = "UID";
pub(super) const EXTERNAL_TRAFFIC_POLICY: &str = "ExternalTrafficPolicy";
pub(super) const HEALTH_CHECK_NODE_PORT: &str = "HealthCheckNodePort";
pub(super) const IP_FAMILIES: &str = "IPFamilies";
