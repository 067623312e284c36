//! Reads that the inventory can send, and their results.

use std::{collections::BTreeMap, fmt};

use super::build::ScaleSetSummary;
use crate::providers::azure::model::{Machine, MachineInterface, MachineKind, ResourceId, api, spelling};

/// Machines (or interfaces) that one list shows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ListScope {
    /// Instances of a uniform scale set.
    Uniform(ResourceId),
    /// Machines of a flexible scale set.
    Flex(ResourceId),
    /// Machines of a resource group outside scale sets; of interfaces: all of the group.
    Group(ResourceId),
}

/// Read request: a list with all its pages, or the parts of one machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ArmRead {
    /// Scale sets of a group.
    ScaleSets(ResourceId),
    /// A list of machines.
    Machines(ListScope),
    /// A list of interfaces, and of public IPs when some interface has one.
    Interfaces(ListScope),
    ScaleSet(ResourceId),
    Machine(ResourceId),
    /// The interfaces of one machine, and their public IPs.
    InterfacesOf(ResourceId),
}

/// Result of a read.
#[derive(Debug)]
pub(super) enum ArmReadPayload {
    /// Scale sets, from [`ArmRead::ScaleSets`].
    ScaleSets(Vec<ScaleSetSummary>),
    /// Machines without addresses, and whether they have an instance view, from [`ArmRead::Machines`] and
    /// [`ArmRead::Machine`].
    Machines(Vec<(Machine, bool)>),
    /// Interfaces by ID, from [`ArmRead::Interfaces`] and [`ArmRead::InterfacesOf`].
    Interfaces(BTreeMap<ResourceId, MachineInterface>),
    /// Existence of the scale set, from [`ArmRead::ScaleSet`].
    Exists,
}

impl ArmRead {
    /// Returns `true` for a list, which many queries share.
    pub(super) fn is_list(&self) -> bool {
        matches!(self, Self::ScaleSets(_) | Self::Machines(_) | Self::Interfaces(_))
    }

    /// Returns the subject of the read.
    pub(super) fn subject(&self) -> &ResourceId {
        match self {
            Self::ScaleSets(id) | Self::ScaleSet(id) | Self::Machine(id) | Self::InterfacesOf(id) => id,
            Self::Machines(scope) | Self::Interfaces(scope) => scope.id(),
        }
    }
}

impl ListScope {
    /// Returns the scale set or group.
    pub(super) fn id(&self) -> &ResourceId {
        match self {
            Self::Uniform(id) | Self::Flex(id) | Self::Group(id) => id,
        }
    }

    /// Returns `true` if the list shows this machine.
    pub(super) fn lists(&self, machine: &Machine) -> bool {
        match (self, &machine.kind) {
            (Self::Uniform(set), MachineKind::ScaleSetInstance { scale_set, .. })
            | (Self::Flex(set), MachineKind::FlexInstance { scale_set }) => set == scale_set,
            (Self::Group(group), MachineKind::AvailabilitySet { .. } | MachineKind::Standalone) => is_in(&machine.id, group),
            _ => false,
        }
    }

    /// Returns `true` if the list of interfaces shows this machine's.
    pub(super) fn lists_interfaces(&self, machine: &Machine) -> bool {
        match (self, &machine.kind) {
            (Self::Uniform(_), _) => self.lists(machine),
            (_, MachineKind::ScaleSetInstance { .. }) => false,
            (Self::Group(group), _) => is_in(&machine.id, group),
            (Self::Flex(_), _) => false,
        }
    }

    /// Returns the list that contains a machine.
    pub(super) fn of(machine: &Machine) -> Self {
        match &machine.kind {
            MachineKind::ScaleSetInstance { scale_set, .. } => Self::Uniform(scale_set.clone()),
            MachineKind::FlexInstance { scale_set } => Self::Flex(scale_set.clone()),
            MachineKind::AvailabilitySet { .. } | MachineKind::Standalone => Self::Group(group_of(&machine.id)),
        }
    }

    /// Returns the list that contains a machine's interfaces.
    pub(super) fn of_interfaces(machine: &Machine) -> Self {
        match &machine.kind {
            MachineKind::ScaleSetInstance { scale_set, .. } => Self::Uniform(scale_set.clone()),
            _ => Self::Group(group_of(&machine.id)),
        }
    }
}

/// Returns the resource group of a resource.
pub(super) fn group_of(id: &ResourceId) -> ResourceId {
    ResourceId::group_of(id.subscription(), id.resource_group().unwrap_or_default())
}

/// Returns `true` if a resource is in this group.
pub(super) fn is_in(id: &ResourceId, group: &ResourceId) -> bool {
    let same =
        |left: Option<&str>, right: Option<&str>| spelling::same_name(left.unwrap_or_default(), right.unwrap_or_default());
    same(id.resource_group(), group.resource_group()) && same(Some(id.subscription()), Some(group.subscription()))
}

/// Returns the uniform scale set of an instance; `None` for other ids.
pub(super) fn uniform_set_of(id: &ResourceId) -> Option<ResourceId> {
    if id.is_type(api::SCALE_SET_VMS.resource_type) { id.parent() } else { None }
}

impl fmt::Display for ArmRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subject = match self {
            Self::ScaleSets(_) => "scale sets of",
            Self::Machines(_) => "machines of",
            Self::Interfaces(_) => "network interfaces of",
            Self::ScaleSet(_) => "scale set",
            Self::Machine(_) => "machine",
            Self::InterfacesOf(_) => "network interfaces of machine",
        };
        write!(f, "{subject} {}", self.subject().name())
    }
}
