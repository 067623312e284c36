//! Flags of the leader election.

use std::time::Duration;

use super::declare_flags;

declare_flags! {
    LEADER_ELECT: bool = "leader-elect" "true" "Whether replicas elect a leader; only the leader writes.";
    LEASE_DURATION: Duration = "leader-elect-lease-duration" "15s"
        "How long other replicas wait, after the last renewal they saw, before they take the lease.";
    RENEW_DEADLINE: Duration = "leader-elect-renew-deadline" "10s"
        "How long the leader tries to renew before it stops leading. Less than the lease duration.";
    RETRY_PERIOD: Duration = "leader-elect-retry-period" "2s" "Pause between tries to acquire or renew the lease.";
    RESOURCE_LOCK: String = "leader-elect-resource-lock" "leases" "Kind of the object that replicas lock; only 'leases'.";
    RESOURCE_NAME: String = "leader-elect-resource-name" "cloud-controller-manager" "Name of the Lease.";
    RESOURCE_NAMESPACE: String = "leader-elect-resource-namespace" "kube-system" "Namespace of the Lease.";
    ENABLE_LEADER_MIGRATION: bool = "enable-leader-migration" "false"
        "Whether some controllers run under a second lease, which several managers share while controllers move between them. Only with --leader-elect.";
    LEADER_MIGRATION_CONFIG: String = "leader-migration-config" ""

        "File with a LeaderMigrationConfiguration, read when --enable-leader-migration is set. Empty: the service, route and node-lifecycle controllers of any manager, under the lease 'cloud-provider-extraction-migration'.";
}
