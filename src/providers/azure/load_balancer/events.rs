//! Events of load balancing on Azure, each as a named function. Pure.
//!
//! In: the Service and the cause. Out: a [`RecordedEvent`] for the recorder, which aggregates. Reasons are upstream's where
//! upstream has the event (`az.Event` in `pkg/provider`). The service controller reports the failure of a whole ensure or
//! delete.

use k8s_openapi::api::core::v1::{Node, Service};

use super::explain::explain;
use crate::providers::azure::planner::load_balancer::{
    desired::{
        load_balancers::{DELETING_FRONTEND, RetainedFrontend},
        private_links::{PrivateLinkDeletion, PrivateLinkNotice},
        public_ips::PublicIpRelease,
    },
    rule_records::CONFIG_MAP,
    spec::{IpFamily, ServiceWarning, reason},
};
use crate::{
    providers::azure::model::{ArmError, ResourceId},
    runtime::events::{EventDescription, EventType, RecordedEvent, object_reference},
};

/// Source component of the events, as upstream.
pub const COMPONENT: &str = "azure-cloud-provider";

/// Reason of the event about a public IP that is kept unchanged. Only this program has it.
const KEPT_PUBLIC_IP: &str = "KeptPublicIPAddress";

/// Reason of the event about more rules at network interfaces than Azure documents. Only this program has it.
const TOO_MANY_INTERFACE_RULES: &str = "TooManyInterfaceRules";

/// Reasons of events about changes by another writer. Only this program has them.
const DRIFTED: &str = "LoadBalancerDrifted";
const REPAIR_DELAYED: &str = "LoadBalancerRepairDelayed";

/// Reasons of events about private link services. Only this program has them.
const KEPT_PRIVATE_LINK: &str = "KeptPrivateLinkService";
const PRIVATE_LINK_NAME_TAKEN: &str = "PrivateLinkServiceNameTaken";
const PRIVATE_ENDPOINTS_DISCONNECTED: &str = "PrivateEndpointsDisconnected";

/// Reason of the event about addresses that a new process will not know. Only this program has it.
const ADDRESSES_NOT_RECORDED: &str = "AddressesNotRecorded";

/// Reason of the event about a Node that claims another Node's machine. Only this program has it.
const PROVIDER_ID_CONFLICT: &str = "ProviderIDConflict";
/// Largest number of characters of a value in a message.
const SHOWN_VALUE: usize = 64;
/// Reason of the event about a family without members. The service controller uses it for a Service without Nodes.
const UNAVAILABLE: &str = "UnAvailableLoadBalancer";

const fn warning(reason: &'static str, when: &'static str) -> EventDescription {
    EventDescription { reason, type_: EventType::Warning, when }
}

macro_rules! calls {
    ($($(#[$doc:meta])* $call:ident $reason:literal $when:literal;)*) => {
        /// Request to ARM whose failure has an event of its own.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum ArmCallKind {
            $($(#[$doc])* $call,)*
        }

        impl ArmCallKind {
            pub const ALL: &[ArmCallKind] = &[$(ArmCallKind::$call),*];

            pub fn reason(self) -> &'static str {
                match self {
                    $(ArmCallKind::$call => $reason,)*
                }
            }
        }

        /// Descriptions of all events, for the reference page.
        pub const EVENTS: &[EventDescription] = &[
            $(warning($reason, $when),)*
            warning(UNAVAILABLE, "No Node has an address of one of the Service's address families, so that the load balancer's address of this family reaches nothing."),
            warning(DELETING_FRONTEND, "A front end the Service no longer needs is kept because another resource refers to it, or because it is the last one of a load balancer that is not deleted."),
            warning(KEPT_PUBLIC_IP, "A public IP the Service no longer uses is kept because a resource outside any Service uses it; or its IP tags are kept because it cannot be recreated; or its DNS label is kept because another Service, cluster or user has set it, or another public IP has the new one; or it has no room for a tag or for the Service in the tag `k8s-azure-service`; or its resource group is not readable."),
            warning(KEPT_PRIVATE_LINK, "The Service no longer asks for its private link service, which is kept until its front end goes, so that nobody is cut off."),
            warning(PRIVATE_LINK_NAME_TAKEN, "The name that the Service asks for belongs to another private link service, which is left alone."),
            warning(PRIVATE_ENDPOINTS_DISCONNECTED, "A private link service with connections is deleted, since its front end goes or gets another address; consumers have to connect again."),
            warning(DRIFTED, "A comparison found that somebody else changed something of the Service in Azure since it was last right: what, and whether it is put right."),
            warning(REPAIR_DELAYED, "Somebody else changes the same thing again and again: it is put right in growing intervals from now on."),
            warning(TOO_MANY_INTERFACE_RULES, "With the rules of the Service, the network interfaces of Nodes have more rules than Azure documents."),
            warning(ADDRESSES_NOT_RECORDED, "The record of security rules has no room for all additional and former addresses of the Service."),
            warning(PROVIDER_ID_CONFLICT, "The provider id of a Node is that of another Node's machine: load balancers ignore the Node."),
            warning(reason::INVALID_SOURCE_RANGES, "`spec.loadBalancerSourceRanges` contains an invalid range; only the valid ranges are allowed."),
            warning(reason::INVALID_ALLOWED_IP_RANGES, "An annotation contains an invalid range; only the valid ranges are allowed."),
            warning(reason::IP_RANGE_FAMILY_MISMATCH, "Source ranges are of a family that the Service does not have, or one of its families has no range and is closed; the message names both."),
            warning(reason::CONFLICT_CONFIGURATION, "`spec.loadBalancerSourceRanges` is given together with service tags."),
            warning(reason::UNREADABLE_RESTRICTION, "An annotation that restricts access cannot be parsed; the strictest possible reading applies."),
            warning(reason::IGNORED_CONFIGURATION, "A known annotation or field has no effect on this Service."),
            warning(reason::UNANSWERED_PROBE, "Nobody can answer a health probe of the Service; the message says what to configure."),
            warning(reason::UNKNOWN_ANNOTATION, "An annotation has this provider's prefix but is unknown."),
        ];
    };
}

calls! {
    ListLoadBalancers "ListLoadBalancers" "The load balancers could not be listed.";
    DeleteLoadBalancer "DeleteLoadBalancer" "An unused load balancer could not be deleted.";
    /// Creates or changes a public IP.
    CreateOrUpdatePublicIp "CreateOrUpdatePublicIPAddress" "A public IP could not be created or changed.";
    DeletePublicIp "DeletePublicIPAddress" "An unused public IP could not be deleted.";
    /// Adds a network interface to a pool, or removes it.
    CreateOrUpdateInterface "CreateOrUpdateInterface" "A network interface could not be added to or removed from a back-end pool.";
    /// Changes the members of a pool that only one Service uses.
    UpdateBackendPool "LoadBalancerBackendPoolUpdateFailed" "The Service's own back-end pool could not be brought to the Nodes with its endpoints; it is tried again.";
}

fn event(service: &Service, reason: &'static str, message: String) -> RecordedEvent {
    RecordedEvent { about: object_reference(service), type_: EventType::Warning, reason, message }
}

/// Reports that `node` claims the machine of the Node `owner`.
pub fn provider_id_conflict(node: &Node, owner: &str) -> RecordedEvent {
    let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default();
    let id: String = id.chars().take(SHOWN_VALUE).collect();
    let message = format!(
        "spec.providerID {id:?}… is that of the machine of node {owner}: load balancers ignore this node. Delete the node and register it \
         with its own provider id, or under the name of its machine"
    );
    RecordedEvent { about: object_reference(node), type_: EventType::Warning, reason: PROVIDER_ID_CONFLICT, message }
}

/// Returns the event of a failed request to ARM on behalf of the Service. Record it once for each error, not for each
/// attempt.
pub fn call_failed(service: &Service, call: ArmCallKind, error: &ArmError) -> RecordedEvent {
    event(service, call.reason(), explain(error).message)
}

/// Returns the event of a Service for whose address family no Node has an address.
pub fn no_nodes_of_family(service: &Service, family: IpFamily) -> RecordedEvent {
    let name = match family {
        IpFamily::V4 => "IPv4",
        IpFamily::V6 => "IPv6",
    };
    let message = format!(
        "There are no available nodes for {name}: no Node has an InternalIP of this family, so that the {name} address of the load balancer \
         reaches nothing; give the machines {name} addresses, or remove {name} from spec.ipFamilies"
    );
    event(service, UNAVAILABLE, message)
}

/// Returns the event of a frontend that is kept, because another resource refers to it or because it is the last one.
pub fn kept_frontend(service: &Service, kept: &RetainedFrontend) -> RecordedEvent {
    if kept.uses.is_empty() {
        let message = format!(
            "front end {} is kept, with its address: it is the last one of its load balancer, which is not deleted, since its backend \
             pools are preconfigured or another program has a pool there; Azure does not allow a load balancer to lose its last front end",
            kept.id
        );
        return event(service, DELETING_FRONTEND, message);
    }
    let uses: Vec<_> = kept.uses.iter().map(|user| format!("{} {}", user.kind, user.name)).collect();
    let message = format!("front end {} is kept while these resources refer to it: {}", kept.id, uses.join(", "));
    event(service, DELETING_FRONTEND, message)
}

/// Returns the event of a Service whose rules exceed Azure's documented limit of rules at network interfaces.
pub fn crowded_interfaces(service: &Service, message: &str) -> RecordedEvent {
    event(service, TOO_MANY_INTERFACE_RULES, message.to_owned())
}

/// Returns the event of a Service for whose addresses, or rules that lead to them, the record of security rules has no room.
pub fn addresses_not_recorded(service: &Service) -> RecordedEvent {
    let message = format!(
        "the ConfigMap kube-system/{CONFIG_MAP} has no room for all additional and former addresses of the Service: those that it \
         gives up while no manager runs may stay in security rules; name fewer in azure-additional-public-ips"
    );
    event(service, ADDRESSES_NOT_RECORDED, message)
}

/// Returns the event of a public IP that is not deleted or not changed, with the reasons.
pub fn kept_public_ip(service: &Service, kept: &PublicIpRelease) -> RecordedEvent {
    let state = if kept.is_notice { "" } else { " is kept unchanged" };
    event(service, KEPT_PUBLIC_IP, format!("public IP {}{state}: {}", kept.id, kept.reasons.join("; ")))
}

/// Returns the event of a deleted Service whose public IP may remain, because its resource group cannot be read.
///
/// As far as is known, the Service never had an address.
pub fn public_ip_maybe_left(service: &Service, id: &ResourceId, error: &ArmError) -> RecordedEvent {
    let message =
        format!("public IP {id} is not deleted because its resource group cannot be read: {}", explain(error).message);
    event(service, KEPT_PUBLIC_IP, message)
}

/// Returns the event of a private link service with connections that is about to be deleted.
pub fn connections_cut(service: &Service, gone: &PrivateLinkDeletion) -> RecordedEvent {
    let message = format!("private link service {} is deleted: {}", gone.id, gone.reasons.join("; "));
    event(service, PRIVATE_ENDPOINTS_DISCONNECTED, message)
}

/// Returns the event of a private link service that is kept or left alone.
pub fn private_link_notice(service: &Service, notice: &PrivateLinkNotice) -> RecordedEvent {
    match notice {
        PrivateLinkNotice::LeftBehind(id) => {
            let message = format!(
                "private link service {id} is kept although the Service does not ask for it any more: to delete it would cut \
                 connections; it goes with its front end, or when somebody deletes it"
            );
            event(service, KEPT_PRIVATE_LINK, message)
        }
        PrivateLinkNotice::NameTaken(id) => {
            let message =
                format!("private link service {id} leads to another front end and is left alone: choose another name");
            event(service, PRIVATE_LINK_NAME_TAKEN, message)
        }
    }
}

/// Returns the event of a change by another writer; `what` is the message.
pub fn drifted(service: &Service, what: &str) -> RecordedEvent {
    event(service, DRIFTED, what.to_owned())
}

/// Returns the event of repeated changes by another writer; `what` is the message.
pub fn repair_delayed(service: &Service, what: &str) -> RecordedEvent {
    event(service, REPAIR_DELAYED, what.to_owned())
}

/// Returns the event of a setting of the Service that is probably a mistake. It is recorded when the Service is ensured.
pub fn spec_warning(service: &Service, warning: &ServiceWarning) -> RecordedEvent {
    event(service, warning.reason, format!("{}: {}", warning.field, warning.message))
}

#[cfg(test)]
mod tests;
