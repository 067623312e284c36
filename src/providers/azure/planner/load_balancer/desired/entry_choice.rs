//! Which of the configuration's entries may take a Service, and which of those does. Pure.
//!
//! In: entries, a Service, its labels and those of its Namespace, where it is now, how many rules each load balancer has. Out: an entry, or a
//! refusal that says how many were lost to what. Nothing is remembered: where a Service is, its names in the documents tell. The caller decides
//! of which time the labels are.
//! Upstream: `pkg/provider/azure_loadbalancer.go`, `getEligibleLoadBalancersForService`, `getMostEligibleLBForService`. Other than there, an
//! entry with two selectors whose second one does not match has not matched, and takes no entry away from the others.

use std::collections::BTreeMap;

use super::types::RuleCounts;
use crate::providers::azure::planner::load_balancer::{
    annotations::CONFIGURATIONS,
    entries::LoadBalancerEntry,
    labels::LabelMap,
    spec::{ServiceRefusal, ServiceSpec},
};

/// Field of a refusal that is the configuration's.
const LIST: &str = "multipleStandardLoadBalancerConfigurations";

/// A load balancer with more rules gets no Service of its own accord: Azure allows as many on one network interface.
pub(super) const MAX_RULES_BY_CHOICE: usize = 300;

/// Why an entry does not take a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryObstacle {
    /// The annotation names others.
    NotNamed,
    /// It is closed, and the Service is not there.
    Closed,
    /// Its selector of Services does not match.
    ServiceLabels,
    /// Its selector of Namespaces does not match.
    NamespaceLabels,
    /// Another entry has a selector that matches, and this one has none.
    SelectedByOther,
}

impl EntryObstacle {
    /// Returns `true` if only labels are the reason.
    pub(super) fn is_of_labels(self) -> bool {
        matches!(self, Self::ServiceLabels | Self::NamespaceLabels | Self::SelectedByOther)
    }

    /// Why, in words for a plan.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::NotNamed => "the annotation names other entries",
            Self::Closed => "allowServicePlacement is false",
            Self::ServiceLabels => "serviceLabelSelector does not match",
            Self::NamespaceLabels => "serviceNamespaceSelector does not match",
            Self::SelectedByOther => "another entry's selector matches",
        }
    }
}

/// What decides about one Service.
pub(super) struct EntryCandidate<'a> {
    pub(super) spec: &'a ServiceSpec,
    /// Labels of its Namespace; `None`: not known.
    pub(super) namespace: Option<&'a LabelMap>,
    /// External names of the load balancers, of either kind, that have parts of it.
    pub(super) present_on: &'a [&'a str],
}

impl EntryCandidate<'_> {
    /// What keeps the entry from taking the Service, whatever other entries say.
    fn obstacle(&self, entry: &LoadBalancerEntry) -> Result<Option<EntryObstacle>, ServiceRefusal> {
        let names = self.spec.configurations.as_ref();
        if names.is_some_and(|names| !names.iter().any(|name| entry.is_called(name))) {
            return Ok(Some(EntryObstacle::NotNamed));
        }
        if entry.is_closed && !self.present_on.iter().any(|name| entry.is_called(name)) {
            return Ok(Some(EntryObstacle::Closed));
        }
        if entry.service_selector.as_ref().is_some_and(|selector| !selector.matches(&self.spec.labels)) {
            return Ok(Some(EntryObstacle::ServiceLabels));
        }
        let Some(selector) = &entry.namespace_selector else { return Ok(None) };
        let labels = self.namespace.ok_or_else(|| self.unknown_namespace(entry))?;
        Ok((!selector.matches(labels)).then_some(EntryObstacle::NamespaceLabels))
    }

    fn unknown_namespace(&self, entry: &LoadBalancerEntry) -> ServiceRefusal {
        let (namespace, name) = (self.spec.namespace(), &entry.name);
        let message = format!(
            "the labels of Namespace {namespace} are not known, which serviceNamespaceSelector of entry {name} asks for"
        );
        ServiceRefusal { field: LIST.to_owned(), message }
    }

    /// What keeps each entry, in their order, from taking the Service; `None`: nothing.
    pub(super) fn obstacles(&self, entries: &[LoadBalancerEntry]) -> Result<Vec<Option<EntryObstacle>>, ServiceRefusal> {
        let mut found = entries.iter().map(|entry| self.obstacle(entry)).collect::<Result<Vec<_>, _>>()?;
        let is_selected = entries.iter().zip(&found).any(|(entry, lost)| lost.is_none() && entry.has_selector());
        for (entry, lost) in entries.iter().zip(&mut found).filter(|_| is_selected) {
            if lost.is_none() && !entry.has_selector() {
                *lost = Some(EntryObstacle::SelectedByOther);
            }
        }
        Ok(found)
    }

    /// The entries that may take it, in their order.
    pub(super) fn eligible<'e>(
        &self,
        entries: &'e [LoadBalancerEntry],
    ) -> Result<Vec<&'e LoadBalancerEntry>, ServiceRefusal> {
        let obstacles = self.obstacles(entries)?;
        let free: Vec<_> =
            entries.iter().zip(&obstacles).filter(|(_, lost)| lost.is_none()).map(|(entry, _)| entry).collect();
        if free.is_empty() { Err(self.none_left(entries, &obstacles)) } else { Ok(free) }
    }

    fn none_left(&self, entries: &[LoadBalancerEntry], obstacles: &[Option<EntryObstacle>]) -> ServiceRefusal {
        let lost = entries.iter().zip(obstacles).filter_map(|(entry, lost)| Some((&entry.name, (*lost)?)));
        let lost: Vec<String> = lost.map(|(name, lost)| format!("{name} ({})", lost.words())).collect();
        let field = if self.spec.configurations.is_some() { CONFIGURATIONS.key } else { LIST };
        let message = format!(
            "none of {} entries takes the Service: {}; change the annotation, labels, or the configuration",
            entries.len(),
            lost.join(", ")
        );
        ServiceRefusal { field: field.to_owned(), message }
    }
}

/// How full the load balancers of one kind are.
pub(super) struct RuleLoad<'a> {
    pub(super) counts: &'a RuleCounts,
    pub(super) internal: bool,
    /// Positions of load balancers by external name in lower case, in ARM's order: who has as few rules as another comes in this order.
    pub(super) order: &'a BTreeMap<String, usize>,
}

impl RuleLoad<'_> {
    fn rules(&self, entry: &LoadBalancerEntry) -> Option<usize> {
        self.counts.get(&(entry.name.to_lowercase(), self.internal)).copied()
    }

    fn place(&self, entry: &LoadBalancerEntry) -> usize {
        self.order.get(&entry.name.to_lowercase()).copied().unwrap_or(usize::MAX)
    }

    /// The first where the Service is, else the first without rules, else the first that there is not yet, else that with the fewest rules.
    /// `is_bounded`: whether a load balancer can be too full to be chosen.
    pub(super) fn choose<'e>(
        &self,
        eligible: &[&'e LoadBalancerEntry],
        current: &[&str],
        is_bounded: bool,
    ) -> Result<&'e LoadBalancerEntry, ServiceRefusal> {
        let is_current = |name: &&str| eligible.iter().find(|entry| entry.is_called(name));
        let idle = || eligible.iter().find(|entry| self.rules(entry) == Some(0));
        let missing = || eligible.iter().find(|entry| self.rules(entry).is_none());
        let has_room = |entry: &&&'e LoadBalancerEntry| {
            !is_bounded || self.rules(entry).is_some_and(|rules| rules <= MAX_RULES_BY_CHOICE)
        };
        let fewest = || eligible.iter().filter(has_room).min_by_key(|entry| (self.rules(entry), self.place(entry)));
        let found = current.iter().find_map(is_current).or_else(idle).or_else(missing).or_else(fewest);
        found.copied().ok_or_else(|| self.all_full(eligible))
    }

    fn all_full(&self, eligible: &[&LoadBalancerEntry]) -> ServiceRefusal {
        let counts = eligible.iter().map(|entry| format!("{} has {}", entry.name, self.rules(entry).unwrap_or_default()));
        let counts: Vec<String> = counts.collect();
        let message = format!(
            "every entry that takes the Service has a load balancer with more than {MAX_RULES_BY_CHOICE} rules, which is all that Azure \
             allows at a network interface: {}; add an entry with machines of its own, or name one in the annotation {}",
            counts.join(", "),
            CONFIGURATIONS.key
        );
        ServiceRefusal { field: LIST.to_owned(), message }
    }
}
