//! A new route table from the observed one and the requested changes: pure.
//!
//! In: the table as ARM sent it, changes, settings. Out: the table to write if a write is needed, for each change the reason
//! if the table cannot have it, and the differences for people. Everything that no change concerns remains unchanged.
//!
//! Upstream: `pkg/provider/azure_routes.go`, `updateRoutes`, `addRouteOperation`, `removeRouteOperation`,
//! `cleanupOutdatedRoutes`. Unlike upstream, a deletion removes the one listed route rather than all routes whose names
//! begin like it.

use std::{fmt, net::IpAddr};

use ipnet::IpNet;

use super::{
    names,
    settings::{MOST_MANAGED_ROUTES, RouteSettings},
};
use crate::providers::azure::{
    model::{
        document::Extra,
        network::{ArmRoute, RouteTable, RouteTableProperties},
        spelling,
    },
    planner::tags,
};

/// Largest number of routes in a table. Azure: "Azure subscription and service limits", networking limits, "User-defined
/// routes per route table".
pub const MOST_ROUTES: usize = 400;
/// Type of a next hop that is the address in `nextHopIpAddress`.
const VIRTUAL_APPLIANCE: &str = "VirtualAppliance";

/// Desired route of the table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DesiredRoute {
    pub name: String,
    /// CIDR of the Node's Pods.
    pub prefix: String,
    /// Private address of the Node's machine.
    pub next_hop: IpAddr,
}

/// Requested change of one route.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RouteChange {
    /// Addition or replacement of a route.
    Set(DesiredRoute),
    /// Removal of the route with this name.
    Remove(String),
}

#[derive(Debug, Clone, PartialEq)]
pub struct RouteTablePlan {
    /// Table to write; `None` if the observed one needs no write.
    pub document: Option<RouteTable>,
    /// Reasons why the table does not have a change; one element per change.
    pub refused: Vec<Option<String>>,
    /// Differences from the observed table, and routes that wait.
    pub steps: Vec<RouteTableStep>,
}

/// Difference between the observed table and the one to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteTableStep {
    /// Creation of the missing table, with the routes that follow.
    CreateTable,
    /// Tags that are not as configured.
    SetTags,
    /// Deletion of the route with this name.
    Delete(String),
    /// Creation of a missing route.
    Create(DesiredRoute),
    /// Change of a route, with its current next hop, if it has one.
    Change(DesiredRoute, Option<String>),
    /// Rename of a route to its full name.
    Rename {
        /// Current name, without a pod CIDR.
        from: String,
        /// Full name, with the pod CIDR.
        to: String,
    },
    /// Route that cannot be created now.
    Wait {
        name: String,
        /// Reason why it cannot be created.
        why: String,
    },
}

impl fmt::Display for RouteTableStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateTable => {
                f.write_str("create the route table: there is none, and the routes wait for it in the same write")
            }
            Self::SetTags => f.write_str("set the tags of the route table: they are not as configured"),
            Self::Delete(name) => write!(f, "delete route {name} of Node {:?}", names::node_of(name)),
            Self::Create(route) => write!(f, "create {route}: it is not in the table"),
            Self::Change(route, Some(now)) => write!(f, "change {route}: it leads to {now}"),
            Self::Change(route, None) => write!(f, "change {route}: it leads to no address"),
            Self::Rename { from, to } => write!(f, "rename route {from} to {to}: it has no pod CIDR in its name"),
            Self::Wait { name, why } => write!(f, "route {name} of Node {:?} waits: {why}", names::node_of(name)),
        }
    }
}

impl fmt::Display for DesiredRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, prefix, next_hop } = self;
        write!(f, "route {name} of Node {:?}, {prefix} to {next_hop}", names::node_of(name))
    }
}

/// Applies `changes` to `table`, deletions first. `None` is a table that does not exist.
///
/// `cidrs_of` returns the pod CIDRs of a Node. Single-stack programs named a route like its Node alone. If such a route
/// leads to one of the CIDRs, it gets its full name when the table is written for another reason.
pub fn plan(
    table: Option<&RouteTable>,
    changes: &[RouteChange],
    settings: &RouteSettings,
    cidrs_of: &dyn Fn(&str) -> Vec<String>,
) -> RouteTablePlan {
    let before = routes_of(table);
    let mut draft = RouteTableDraft::new(before, settings.most_routes);
    for change in changes {
        if let RouteChange::Remove(name) = change {
            draft.remove(name);
        }
    }
    let set = |change: &RouteChange| match change {
        RouteChange::Set(wanted) => draft.set(wanted).err(),
        RouteChange::Remove(_) => None,
    };
    let refused: Vec<_> = changes.iter().map(set).collect();
    let mut tags = table.and_then(|table| table.tags.clone());
    let tags_differ = !settings.tags.is_empty() && tags::merge(&mut tags, &settings.tags, &settings.system_tags);
    let routes = draft.routes();
    let is_wanted = if table.is_some() { tags_differ || routes != before } else { !routes.is_empty() };
    let mut steps = Vec::new();
    let document = is_wanted.then(|| {
        steps.extend(table.is_none().then_some(RouteTableStep::CreateTable));
        steps.extend((table.is_some() && tags_differ).then_some(RouteTableStep::SetTags));
        steps.extend(differences(before, &routes));
        let named: Vec<ArmRoute> = routes.iter().map(|route| with_full_name(route.clone(), cidrs_of)).collect();
        steps.extend(renamings(&routes, &named));
        RouteTable { tags, ..with_routes(table, named, settings) }
    });
    steps.extend(changes.iter().zip(&refused).filter_map(|(change, why)| waiting(change, why.as_deref()?)));
    RouteTablePlan { document, refused, steps }
}

/// Returns deletions, then creations and changes.
fn differences(before: &[ArmRoute], after: &[ArmRoute]) -> Vec<RouteTableStep> {
    let named = |routes: &'_ [ArmRoute], name: &str| routes.iter().position(|route| route.name_is(name));
    let gone = before.iter().map(name_of).filter(|name| named(after, name).is_none());
    let mut steps: Vec<_> = gone.map(|name| RouteTableStep::Delete(name.to_owned())).collect();
    for route in after {
        let known = named(before, name_of(route)).and_then(|at| before.get(at));
        let Some(wanted) = desired(route).filter(|_| known != Some(route)) else { continue };
        steps.push(match known {
            None => RouteTableStep::Create(wanted),
            Some(known) => RouteTableStep::Change(wanted, next_hop_of(known)),
        });
    }
    steps
}

fn renamings(routes: &[ArmRoute], named: &[ArmRoute]) -> Vec<RouteTableStep> {
    let renamed = routes.iter().map(name_of).zip(named.iter().map(name_of)).filter(|(from, to)| from != to);
    renamed.map(|(from, to)| RouteTableStep::Rename { from: from.to_owned(), to: to.to_owned() }).collect()
}

fn waiting(change: &RouteChange, why: &str) -> Option<RouteTableStep> {
    let RouteChange::Set(wanted) = change else { return None };
    Some(RouteTableStep::Wait { name: wanted.name.clone(), why: why.to_owned() })
}

/// Returns the desired form of a route that this program wrote, or `None` if a part is missing.
fn desired(route: &ArmRoute) -> Option<DesiredRoute> {
    let properties = route.properties.as_ref()?;
    Some(DesiredRoute {
        name: name_of(route).to_owned(),
        prefix: properties.address_prefix.clone()?,
        next_hop: properties.next_hop_ip_address.as_deref()?.parse().ok()?,
    })
}

fn next_hop_of(route: &ArmRoute) -> Option<String> {
    route.properties.as_ref()?.next_hop_ip_address.clone()
}

fn name_of(route: &ArmRoute) -> &str {
    route.name.as_deref().unwrap_or_default()
}

/// Returns `true` if `table` shows `change`.
pub fn is_applied(table: Option<&RouteTable>, change: &RouteChange) -> bool {
    let named = |name: &str| routes_of(table).iter().find(|route| route.name_is(name));
    match change {
        RouteChange::Set(wanted) => named(&wanted.name).is_some_and(|route| matches(route, wanted)),
        RouteChange::Remove(name) => named(name).is_none(),
    }
}

/// Returns `true` if `table` shows `change`, which is one of `changes` of the same write.
///
/// A route that the write removes and sets again is shown as it was set.
pub fn is_applied_with(table: Option<&RouteTable>, change: &RouteChange, changes: &[RouteChange]) -> bool {
    let sets = |other: &&RouteChange, name: &str| matches!(other, RouteChange::Set(wanted) if spelling::same_name(&wanted.name, name));
    let is_replaced = |name: &str| changes.iter().filter(|other| sets(other, name)).any(|other| is_applied(table, other));
    is_applied(table, change) || matches!(change, RouteChange::Remove(name) if is_replaced(name))
}

/// Returns the routes of a table, or none if it does not exist.
pub fn routes_of(table: Option<&RouteTable>) -> &[ArmRoute] {
    table.and_then(|table| table.properties.as_ref()?.routes.as_deref()).unwrap_or_default()
}

fn with_routes(table: Option<&RouteTable>, routes: Vec<ArmRoute>, settings: &RouteSettings) -> RouteTable {
    let mut table = table.cloned().unwrap_or_else(|| RouteTable {
        name: settings.table.as_ref().map(|id| id.name().to_owned()),
        location: Some(settings.location.clone()),
        properties: Some(RouteTableProperties::default()),
        ..RouteTable::default()
    });
    table.properties.get_or_insert_default().routes = Some(routes);
    table
}

/// Routes while they are changed. A removed route keeps its index, in case a later change sets it again.
struct RouteTableDraft {
    slots: Vec<(ArmRoute, bool)>,
    limit: usize,
}

impl RouteTableDraft {
    fn new(routes: &[ArmRoute], most: usize) -> Self {
        let limit = if routes.len() > MOST_ROUTES { MOST_MANAGED_ROUTES } else { most };
        Self { slots: routes.iter().map(|route| (route.clone(), true)).collect(), limit }
    }

    fn routes(&self) -> Vec<ArmRoute> {
        self.slots.iter().filter(|(_, stays)| *stays).map(|(route, _)| route.clone()).collect()
    }

    fn remove(&mut self, name: &str) {
        self.slots.iter_mut().filter(|(route, _)| route.name_is(name)).for_each(|(_, stays)| *stays = false);
    }

    fn set(&mut self, wanted: &DesiredRoute) -> Result<(), String> {
        let known = self.slots.iter().position(|(route, _)| route.name_is(&wanted.name));
        self.check_room(wanted)?;
        match known.and_then(|at| self.slots.get_mut(at)) {
            Some((route, stays)) => {
                if !matches(route, wanted) {
                    write_next_hop(route, wanted);
                }
                *stays = true;
            }
            None => self.slots.push((new_route(wanted), true)),
        }
        Ok(())
    }

    /// Checks that ARM would accept the route; the error is the reason for people.
    fn check_room(&self, wanted: &DesiredRoute) -> Result<(), String> {
        if wanted.name.len() > names::MAX_NAME {
            let (most, of_node) = (names::MAX_NAME, names::MAX_NODE);
            return Err(format!(
                "its name has more than {most} characters, which is Azure's limit; give the Node a name of at most {of_node}"
            ));
        }
        let prefix = normalized(&wanted.prefix);
        let mut others = 0;
        for (route, _) in self.slots.iter().filter(|(route, stays)| *stays && !route.name_is(&wanted.name)) {
            others += 1;
            if prefix_of(route) == prefix {
                let (name, prefix) = (name_of(route), &wanted.prefix);
                return Err(format!("route {name:?} has {prefix} already, and a route table has each prefix once"));
            }
        }
        if others >= self.limit {
            return Err(format!(
                "the route table would have more than {} routes, which is Azure's limit; run fewer nodes, or a network that needs no routes",
                self.limit
            ));
        }
        Ok(())
    }
}

/// Returns a CIDR without host bits in canonical spelling, or a service tag in lower case.
fn normalized(prefix: &str) -> String {
    let prefix = prefix.trim();
    prefix.parse().map_or_else(|_| prefix.to_lowercase(), |net: IpNet| net.trunc().to_string())
}

fn prefix_of(route: &ArmRoute) -> String {
    let prefix = route.properties.as_ref().and_then(|properties| properties.address_prefix.as_deref());
    normalized(prefix.unwrap_or_default())
}

fn matches(route: &ArmRoute, wanted: &DesiredRoute) -> bool {
    let properties = route.properties.as_ref();
    let hop = properties.and_then(|properties| properties.next_hop_ip_address.as_deref()?.parse::<IpAddr>().ok());
    let kind = properties.and_then(|properties| properties.next_hop_type.as_deref());
    hop == Some(wanted.next_hop)
        && prefix_of(route) == normalized(&wanted.prefix)
        && spelling::is_word(kind, VIRTUAL_APPLIANCE)
}

/// Writes prefix and next hop into `route`. Fields outside of the model are retained.
fn write_next_hop(route: &mut ArmRoute, wanted: &DesiredRoute) {
    let properties = route.properties.get_or_insert_default();
    properties.address_prefix = Some(wanted.prefix.clone());
    properties.next_hop_type = Some(VIRTUAL_APPLIANCE.to_owned());
    properties.next_hop_ip_address = Some(wanted.next_hop.to_string());
}

fn new_route(wanted: &DesiredRoute) -> ArmRoute {
    let mut route = ArmRoute { name: Some(wanted.name.clone()), ..ArmRoute::default() };
    write_next_hop(&mut route, wanted);
    route
}

/// Returns the route with its full name if it is named like the Node whose Pods it leads to and the full name fits, else
/// unchanged.
fn with_full_name(route: ArmRoute, cidrs_of: &dyn Fn(&str) -> Vec<String>) -> ArmRoute {
    let node = name_of(&route).to_lowercase();
    let leads_to = |cidr: &String| prefix_of(&route) == normalized(cidr);
    let cidrs = if names::is_bare(&node) { cidrs_of(&node) } else { Vec::new() };
    match cidrs.iter().find(|cidr| leads_to(cidr)) {
        Some(cidr) if node.len() <= names::MAX_NODE => {
            ArmRoute { name: Some(names::route_name(&node, cidr)), id: None, extra: Extra::new(), ..route }
        }
        _ => route,
    }
}

#[cfg(test)]
mod tests;
