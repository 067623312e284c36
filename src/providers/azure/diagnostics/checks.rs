//! The table of checks. Plain data: findings name them by their ids.

use crate::cloud_provider::diagnostics::DiagnosticCheck;

pub(super) const CONFIG: &str = "azure-config";
pub(super) const NETWORK: &str = "azure-network";
pub(super) const TLS: &str = "azure-tls";
pub(super) const CREDENTIAL: &str = "azure-credential";
pub(super) const CLOCK: &str = "azure-clock";
pub(super) const READS: &str = "azure-read-rights";
pub(super) const WRITES: &str = "azure-write-rights";
pub(super) const SECURITY_GROUP: &str = "azure-security-group";
pub(super) const SUBNET: &str = "azure-subnet";
pub(super) const ROUTE_TABLE: &str = "azure-route-table";
pub(super) const QUOTA: &str = "azure-quota";
pub(super) const ROOM: &str = "azure-load-balancer-room";
pub(super) const NODE_NAMES: &str = "azure-node-names";
pub(super) const SERVICES: &str = "azure-services";
pub(super) const TENANTS: &str = "azure-tenants";
pub(super) const CLUSTER_NAME: &str = "azure-cluster-name";
pub(super) const ORPHANS: &str = "azure-orphans";

/// Every check, in the order of the output.
#[rustfmt::skip]
pub(super) const CHECKS: &[DiagnosticCheck] = &[
    DiagnosticCheck { id: CONFIG, examines: "`azure.json`: unknown, missing and unsafe fields" },
    DiagnosticCheck { id: NETWORK, examines: "Whether Entra and Azure Resource Manager can be reached" },
    DiagnosticCheck { id: TLS, examines: "Whether their certificates are trusted, or something on the way opens TLS" },
    DiagnosticCheck { id: CREDENTIAL, examines: "Whether Entra gives a token for the identity in this tenant, and ARM accepts it" },
    DiagnosticCheck { id: CLOCK, examines: "Whether this machine's clock and Azure's differ by more than 60 s" },
    DiagnosticCheck { id: READS, examines: "Whether the identity may read what the configuration needs" },
    DiagnosticCheck { id: WRITES, examines: "Whether the identity may write what the configuration needs" },
    DiagnosticCheck { id: SECURITY_GROUP, examines: "Whether the security group exists" },
    DiagnosticCheck { id: SUBNET, examines: "Whether the virtual network and the subnet exist" },
    DiagnosticCheck { id: ROUTE_TABLE, examines: "Whether the route table exists, where the manager writes routes" },
    DiagnosticCheck { id: QUOTA, examines: "Public IPs, load balancers and security groups of the subscription against its quotas" },
    DiagnosticCheck { id: ROOM, examines: "How full the cluster's load balancers are" },
    DiagnosticCheck { id: NODE_NAMES, examines: "Nodes without the name of their machine, which pools of type `nodeIP` leave out" },
    DiagnosticCheck { id: SERVICES, examines: "Services whose annotations or fields cannot be" },
    DiagnosticCheck { id: TENANTS, examines: "Services that `multiTenant` refuses, or would refuse, and those that publish private additional addresses" },
    DiagnosticCheck { id: CLUSTER_NAME, examines: "Whether `--cluster-name` is the name by which the Services' public IPs were tagged" },
    DiagnosticCheck { id: ORPHANS, examines: "Resources that belong to no Service, as `orphans` lists them" },
];
