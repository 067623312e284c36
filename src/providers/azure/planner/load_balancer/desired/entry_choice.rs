//! Choice of the configuration entry whose load balancer takes a Service. Pure.
//!
//! In: entries, a Service, its labels and those of its Namespace, its current load balancers, the number of rules on each load balancer.
//! Out: an entry, or a refusal that lists each entry with its obstacle. The choice is stateless: names in the documents show where a
//! Service is. The caller decides whether the labels are current or earlier ones.
//! Upstream: `pkg/provider/azure_loadbalancer.go`, `getEligibleLoadBalancersForService`, `getMostEligibleLBForService`. Unlike upstream,
//! an entry with two selectors, of which the second does not match, counts as not matching and does not exclude other entries.

use std::collections::BTreeMap;

use super::types::RuleCounts;
use crate::providers::azure::planner::load_balancer::{
    annotations::CONFIGURATIONS,
    entries::LoadBalancerEntry,
    labels::LabelMap,
    spec::{ServiceRefusal, ServiceSpec},
};

/// Field of refusals that the configuration causes.
const LIST: &str = "multipleStandardLoadBalancerConfigurations";

/// Maximum number of rules on a load balancer that the program chooses itself: Azure allows as many on one network interface.
pub(super) const MAX_RULES_BY_CHOICE: usize = 300;

/// Reason why an entry does not take a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryObstacle {
    /// Annotation that names only other entries.
    NotNamed,
    /// Entry that accepts no new Services, and the Service has no parts there.
    Closed,
    /// Selector of Services that does not match.
    ServiceLabels,
    /// Selector of Namespaces that does not match.
    NamespaceLabels,
    /// Match of the selector of another entry, while this entry has no selector.
    SelectedByOther,
}

impl EntryObstacle {
    /// Returns `true` if labels are the reason.
    pub(super) fn is_of_labels(self) -> bool {
        matches!(self, Self::ServiceLabels | Self::NamespaceLabels | Self::SelectedByOther)
    }

    /// Returns the reason as a clause for messages.
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

/// Properties of one Service that decide on its entry.
pub(super) struct EntryCandidate<'a> {
    pub(super) spec: &'a ServiceSpec,
    /// Labels of its Namespace; `None` if they are unavailable.
    pub(super) namespace: Option<&'a LabelMap>,
    /// External names of the load balancers, internal or external, that have parts of the Service.
    pub(super) present_on: &'a [&'a str],
}

impl EntryCandidate<'_> {
    /// Returns the reason why the entry does not take the Service, independent of other entries.
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

    /// Returns the obstacle of each entry, in their order; `None` if the entry may take the Service.
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

    /// Returns the entries that may take the Service, in their order, or a refusal if there are none.
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

/// Numbers of rules on the load balancers of one kind.
pub(super) struct RuleLoad<'a> {
    pub(super) counts: &'a RuleCounts,
    pub(super) internal: bool,
    /// Positions in ARM's list, by external name in lower case. They decide between load balancers with equally many rules.
    pub(super) order: &'a BTreeMap<String, usize>,
}

impl RuleLoad<'_> {
    fn rules(&self, entry: &LoadBalancerEntry) -> Option<usize> {
        self.counts.get(&(entry.name.to_lowercase(), self.internal)).copied()
    }

    fn place(&self, entry: &LoadBalancerEntry) -> usize {
        self.order.get(&entry.name.to_lowercase()).copied().unwrap_or(usize::MAX)
    }

    /// Returns the first entry where the Service is, else the first without rules, else the first without a load balancer, else the one
    /// with the fewest rules.
    ///
    /// With `is_bounded`, the last choice excludes load balancers with more than [`MAX_RULES_BY_CHOICE`] rules.
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
