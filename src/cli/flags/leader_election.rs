//! Flags of the leader election.

use std::time::Duration;

use super::declare_flags;

declare_flags! {
    LEADER_ELECT: bool = "leader-elect" "true" "Elect a leader among the replicas. Only the leader writes.";
    LEASE_DURATION: Duration = "leader-elect-lease-duration" "15s"
        "Time for which other replicas wait, after the last renewal that they observed, before they acquire the lease.";
    RENEW_DEADLINE: Duration = "leader-elect-renew-deadline" "10s"
        "Time for which the leader retries a renewal before it stops leading. Must be less than the lease duration.";
    RETRY_PERIOD: Duration = "leader-elect-retry-period" "2s" "Pause between attempts to acquire or renew the lease.";
    RESOURCE_LOCK: String = "leader-elect-resource-lock" "leases" "Kind of the object that replicas lock. Only 'leases' is supported.";
    RESOURCE_NAME: String = "leader-elect-resource-name" "cloud-controller-manager" "Name of the Lease.";
    RESOURCE_NAMESPACE: String = "leader-elect-resource-namespace" "kube-system" "Namespace of the Lease.";
    ENABLE_LEADER_MIGRATION: bool = "enable-leader-migration" "false"
        "Run some controllers under a second lease, which several managers share while controllers move between them. Needs --leader-elect.";
    LEADER_MIGRATION_CONFIG: String = "leader-migration-config" ""

        "File with a LeaderMigrationConfiguration, read if --enable-leader-migration is set. Empty selects the service, route and node-lifecycle controllers of any manager, under the lease 'cloud-provider-extraction-migration'.";
}
