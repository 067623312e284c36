//! Subject of a request's path. Pure: text in, [`Target`] out.

use super::kinds;
use crate::providers::azure::model::ResourceId;

/// Subject of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Subscription(ResourceId),
    /// Resource providers, of which one may be named: `/subscriptions/{s}/providers[/{namespace}]`.
    Provider(ResourceId, Option<String>),
    /// Long-running operation: its number, and whether its result is requested rather than its state.
    Operation {
        /// Subscription of the operation.
        subscription: ResourceId,
        operation: String,
        /// Whether `operationResults` was requested.
        result: bool,
    },
    Document(ResourceId),
    /// A part embedded in a document: its own id, the document's, and the list that it is in.
    Part(ResourceId, ResourceId, &'static str),
    /// The documents of a type below a scope.
    Collection {
        /// Subscription, group or document.
        scope: ResourceId,
        /// Their full type, lower-case.
        kind: String,
    },
    /// The parts in a list of a document.
    Parts(ResourceId, &'static str),
    /// The instance view of a machine.
    InstanceView(ResourceId),
    /// The action `migrateToIpBased` of a load balancer.
    Migration(ResourceId),
    /// Permissions of the caller at a scope.
    Permissions(ResourceId),
    /// Usage of a subscription's network quotas in a region.
    Usages(ResourceId),
}

impl Target {
    /// Returns the type of the subject, lower-case; empty if there is none.
    pub fn kind(&self) -> String {
        match self {
            Self::Document(id) | Self::Part(id, ..) if id.resource_type().is_empty() => GROUPS.to_ascii_lowercase(),
            Self::Document(id) | Self::Part(id, ..) | Self::InstanceView(id) => id.resource_type().to_ascii_lowercase(),
            Self::Collection { kind, .. } => kind.clone(),
            Self::Migration(id) => format!("{}/{MIGRATION}", id.resource_type()).to_ascii_lowercase(),
            Self::Parts(id, list) => format!("{}/{list}", id.resource_type()).to_ascii_lowercase(),
            Self::Permissions(_) => PERMISSIONS.to_ascii_lowercase(),
            Self::Usages(_) => USAGES.to_ascii_lowercase(),
            Self::Subscription(_) | Self::Provider(..) | Self::Operation { .. } => String::new(),
        }
    }

    /// Returns the scope by which permission is checked.
    pub fn scope(&self) -> &ResourceId {
        match self {
            Self::Subscription(id) | Self::Provider(id, _) | Self::Document(id) | Self::Part(id, ..) | Self::Usages(id) => {
                id
            }
            Self::Operation { subscription, .. } => subscription,
            Self::Collection { scope, .. }
            | Self::Parts(scope, _)
            | Self::InstanceView(scope)
            | Self::Migration(scope)
            | Self::Permissions(scope) => scope,
        }
    }

    /// Returns `true` if it is a list.
    pub fn is_list(&self) -> bool {
        matches!(self, Self::Collection { .. } | Self::Parts(..))
    }
}

const GROUPS: &str = "Microsoft.Resources/resourceGroups";
const USAGES: &str = "Microsoft.Network/locations/usages";
const PERMISSIONS: &str = "Microsoft.Authorization/permissions";
const LOAD_BALANCERS: &str = "microsoft.network/loadbalancers";
const MIGRATION: &str = "migrateToIpBased";
const SCALE_SETS: &str = "microsoft.compute/virtualmachinescalesets";
const INSTANCES: &str = "microsoft.compute/virtualmachinescalesets/virtualmachines";

/// Returns the subject of `path`; `None` if ARM has no such path.
pub fn target(path: &str) -> Option<Target> {
    let path = path.strip_suffix('/').unwrap_or(path);
    let segments: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
    let is = |position: usize, word: &str| segments.get(position).is_some_and(|segment| segment.eq_ignore_ascii_case(word));
    if !is(0, "subscriptions") {
        return None;
    }
    let subscription = || ResourceId::parse(&format!("/subscriptions/{}", segments.get(1)?)).ok();
    match segments.len() {
        2 => subscription().map(Target::Subscription),
        3 if is(2, "resourceGroups") => {
            Some(Target::Collection { scope: subscription()?, kind: GROUPS.to_ascii_lowercase() })
        }
        3 if is(2, "providers") => Some(Target::Provider(subscription()?, None)),
        4 if is(2, "providers") => Some(Target::Provider(subscription()?, Some((*segments.get(3)?).to_owned()))),
        7 if is(2, "providers") && is(3, "Microsoft.Network") && is(4, "locations") && is(6, "usages") => {
            Some(Target::Usages(subscription()?))
        }
        8 if is(2, "providers") && is(4, "locations") && (is(6, "operations") || is(6, "operationResults")) => {
            let operation = (*segments.get(7)?).to_owned();
            Some(Target::Operation { subscription: subscription()?, operation, result: is(6, "operationResults") })
        }
        _ => match ResourceId::parse(path) {
            Ok(id) => named(id),
            Err(_) => collection(&segments),
        },
    }
}

fn named(id: ResourceId) -> Option<Target> {
    let kind = id.resource_type();
    if kind.is_empty() || kinds::kind_of(&kind).is_some() {
        return Some(Target::Document(id));
    }
    let (_, list) = kinds::part_of(&kind)?;
    let parent = id.parent()?;
    Some(Target::Part(id, parent, list))
}

fn collection(segments: &[&str]) -> Option<Target> {
    let (last, before) = segments.split_last()?;
    let scope = format!("/{}", before.join("/"));
    if let Ok(scope) = ResourceId::parse(&scope) {
        return below_document(scope, last);
    }
    let (namespace, before) = before.split_last()?;
    let (providers, before) = before.split_last()?;
    let scope = ResourceId::parse(&format!("/{}", before.join("/"))).ok()?;
    let kind = format!("{namespace}/{last}");
    if kind.eq_ignore_ascii_case(PERMISSIONS) {
        return Some(Target::Permissions(scope));
    }
    let is_listed = providers.eq_ignore_ascii_case("providers") && kinds::kind_of(&kind).is_some();
    is_listed.then(|| Target::Collection { scope, kind: kind.to_ascii_lowercase() })
}

fn below_document(scope: ResourceId, last: &str) -> Option<Target> {
    let parent = scope.resource_type().to_ascii_lowercase();
    let kind = format!("{parent}/{}", last.to_ascii_lowercase());
    if last.eq_ignore_ascii_case("instanceView") {
        return Some(Target::InstanceView(scope));
    }
    if parent == LOAD_BALANCERS && last.eq_ignore_ascii_case(MIGRATION) {
        return Some(Target::Migration(scope));
    }
    if let Some((_, list)) = kinds::part_of(&kind) {
        return Some(Target::Parts(scope, list));
    }
    if kinds::kind_of(&kind).is_some() {
        return Some(Target::Collection { scope, kind });
    }
    let addresses = format!("{INSTANCES}/networkinterfaces/ipconfigurations/publicipaddresses");
    let bulk = match last.to_ascii_lowercase().as_str() {
        "networkinterfaces" if parent == SCALE_SETS => format!("{INSTANCES}/networkinterfaces"),
        "publicipaddresses" if parent == SCALE_SETS || parent == INSTANCES => addresses,
        _ => return None,
    };
    Some(Target::Collection { scope, kind: bulk })
}
