//! Rules of a network security group while the edits of Services are applied.
//!
//! In: the document, and the [`SecurityRuleEdits`] of one Service after the other. Out: the resulting document, with a reason for each
//! change. Unchanged rules are sent back as ARM sent them.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
};

use super::rule::{self, SecurityRuleKind, WantedSecurityRule};
use crate::providers::azure::model::network::{NetworkSecurityGroup, SecurityRule};

/// Network security group with the edits so far.
#[derive(Default)]
pub(super) struct SecurityGroupDraft {
    rules: Vec<Option<SecurityRuleDraft>>,
    originals: usize,
    names: HashMap<String, usize>,
    addresses: HashMap<IpAddr, BTreeSet<usize>>,
    priorities: BTreeSet<i64>,
    /// Rules that lost a destination since the last [`SecurityGroupDraft::drop_emptied`].
    reduced: BTreeSet<usize>,
}

/// Security rule with the edits so far.
pub(super) struct SecurityRuleDraft {
    /// Name in lower case.
    pub(super) name: String,
    /// Kind of a managed rule. `None` if no destination may be removed from the rule.
    pub(super) kind: Option<SecurityRuleKind>,
    pub(super) sources: usize,
    pub(super) addresses: BTreeSet<IpAddr>,
    pub(super) other_destinations: BTreeSet<String>,
    document: SecurityRule,
    is_repaired: bool,
}

/// Edits of a group for one Service.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SecurityRuleEdits {
    /// Destinations to remove, each with the index of its rule.
    pub(super) removed: BTreeSet<(usize, IpAddr)>,
    /// Destinations to add to existing rules, each with the index and the desired form of its rule.
    pub(super) extended: Vec<(usize, WantedSecurityRule, BTreeSet<IpAddr>)>,
    /// Rules to create, each with its destinations and its priority.
    pub(super) created: Vec<(WantedSecurityRule, BTreeSet<IpAddr>, i64)>,
}

impl SecurityRuleDraft {
    fn new(document: SecurityRule) -> Self {
        let properties = document.properties.as_ref();
        let (addresses, others) = properties.map(rule::destinations).unwrap_or_default();
        Self {
            name: document.name.as_deref().unwrap_or_default().to_ascii_lowercase(),
            kind: properties.filter(|_| rule::is_managed(&document)).and_then(rule::kind),
            sources: properties.map(rule::count_sources).unwrap_or_default(),
            addresses,
            other_destinations: others,
            is_repaired: false,
            document,
        }
    }

    fn priority(&self) -> Option<i64> {
        self.document.properties.as_ref()?.priority
    }

    /// Returns the number of destinations. A rule without destinations matches nothing.
    pub(super) fn size(&self) -> usize {
        let properties = self.document.properties.as_ref();
        let groups = properties.and_then(|rule| rule.destination_application_security_groups.as_ref()).map_or(0, Vec::len);
        self.addresses.len() + self.other_destinations.len() + groups
    }

    fn finished(mut self) -> SecurityRule {
        rule::set_destinations(&mut self.document, &self.addresses, &self.other_destinations);
        self.document
    }
}

impl SecurityGroupDraft {
    pub(super) fn new(document: &NetworkSecurityGroup) -> Self {
        let mut group = Self::default();
        for rule in rules_of(document) {
            group.push(rule.clone());
        }
        group.originals = group.rules.len();
        group
    }

    fn push(&mut self, document: SecurityRule) {
        let (rule, index) = (SecurityRuleDraft::new(document), self.rules.len());
        self.names.insert(rule.name.clone(), index);
        self.priorities.extend(rule.priority());
        for address in rule.addresses.iter().filter(|_| rule.kind.is_some()) {
            self.addresses.entry(*address).or_default().insert(index);
        }
        self.rules.push(Some(rule));
    }

    pub(super) fn rules(&self) -> impl Iterator<Item = &SecurityRuleDraft> {
        self.rules.iter().flatten()
    }

    /// Returns the rule at `index`, unless it is removed.
    pub(super) fn rule(&self, index: usize) -> Option<&SecurityRuleDraft> {
        self.rules.get(index)?.as_ref()
    }

    /// Returns the index of the rule called `name`, in any letter case.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.names.get(&name.to_ascii_lowercase()).copied()
    }

    /// Returns the managed rules with `address` as a destination, by rising priority number.
    pub(super) fn rules_at(&self, address: IpAddr) -> Vec<(usize, &SecurityRuleDraft, &SecurityRuleKind)> {
        let indexes = self.addresses.get(&address).into_iter().flatten();
        let found = indexes.filter_map(|index| self.rule(*index).map(|rule| (*index, rule)));
        let mut found: Vec<_> = found.filter_map(|(index, rule)| Some((index, rule, rule.kind.as_ref()?))).collect();
        found.sort_by_key(|(index, rule, _)| (rule.priority(), *index));
        found
    }

    /// Returns `true` if a rule has this priority, inbound or outbound.
    pub(super) fn is_taken(&self, priority: i64) -> bool {
        self.priorities.contains(&priority)
    }

    /// Applies the edits. Returns `true` if a rule differs afterwards: edits may also name destinations that a rule already has.
    pub(super) fn apply(&mut self, edits: SecurityRuleEdits) -> bool {
        let mut is_changed = !edits.created.is_empty();
        for (index, address) in edits.removed {
            if let Some(Some(rule)) = self.rules.get_mut(index) {
                is_changed |= rule.addresses.remove(&address);
                self.reduced.insert(index);
            }
            self.addresses.entry(address).or_default().remove(&index);
        }
        for (index, wanted, addresses) in edits.extended {
            is_changed |= self.extend(index, &wanted, &addresses);
        }
        for (wanted, addresses, priority) in edits.created {
            let mut document = wanted.document(priority);
            rule::set_destinations(&mut document, &addresses, &BTreeSet::new());
            self.push(document);
        }
        is_changed
    }

    /// Adds destinations to a rule and repairs its fields. Returns `true` if the rule differs afterwards.
    fn extend(&mut self, index: usize, wanted: &WantedSecurityRule, addresses: &BTreeSet<IpAddr>) -> bool {
        let Some(Some(rule)) = self.rules.get_mut(index) else { return false };
        let is_repaired = wanted.repair(&mut rule.document);
        let is_changed = is_repaired || !addresses.is_subset(&rule.addresses);
        rule.addresses.extend(addresses);
        let mut indexed = addresses;
        if is_repaired {
            rule.is_repaired = true;
            rule.sources = wanted.sources();
            rule.kind = Some(wanted.kind.clone()).filter(|_| rule::is_managed(&rule.document));
            // The repair may make the rule a managed one, whose other destinations are not indexed yet.
            indexed = &rule.addresses;
        }
        for address in indexed.iter().filter(|_| rule.kind.is_some()) {
            self.addresses.entry(*address).or_default().insert(index);
        }
        is_changed
    }

    /// Removes the rules that lost their last destination, which frees their priorities.
    pub(super) fn drop_emptied(&mut self) {
        for index in std::mem::take(&mut self.reduced) {
            let Some(slot) = self.rules.get_mut(index) else { continue };
            if let Some(rule) = slot.take_if(|rule| rule.size() == 0) {
                self.names.remove(&rule.name);
                if let Some(priority) = rule.priority() {
                    self.priorities.remove(&priority);
                }
            }
        }
    }

    /// Returns the document that results from `before`, with the reasons for its changes. Without a reason, the document is unchanged.
    pub(super) fn finish(self, before: &NetworkSecurityGroup) -> (NetworkSecurityGroup, Vec<String>) {
        let (mut rules, mut reasons) = (Vec::new(), Vec::new());
        let mut slots = self.rules.into_iter();
        for (original, slot) in rules_of(before).iter().zip(slots.by_ref().take(self.originals)) {
            match slot {
                None => reasons.push(format!("remove rule {}: it has no destination left", label(original))),
                Some(rule) => match change(original, &rule) {
                    None => rules.push(original.clone()),
                    Some(reason) => {
                        reasons.push(reason);
                        rules.push(rule.finished());
                    }
                },
            }
        }
        for rule in slots.flatten() {
            reasons.push(format!("add rule {} for {}", label(&rule.document), list(&rule.addresses)));
            rules.push(rule.finished());
        }
        let mut document = before.clone();
        if !reasons.is_empty() {
            document.properties_mut().security_rules = Some(rules);
        }
        (document, reasons)
    }
}

/// Returns the difference between `rule` and `original` as text. `None` if they are equal.
fn change(original: &SecurityRule, rule: &SecurityRuleDraft) -> Option<String> {
    let (before, _) = original.properties.as_ref().map(rule::destinations).unwrap_or_default();
    let difference = |verb: &str, a: &BTreeSet<IpAddr>, b: &BTreeSet<IpAddr>| {
        let only: BTreeSet<_> = a.difference(b).copied().collect();
        (!only.is_empty()).then(|| format!("{verb} {}", list(&only)))
    };
    let repaired = rule.is_repaired.then(|| "restore a property that was modified outside this program".to_owned());
    let parts = [difference("add", &rule.addresses, &before), difference("remove", &before, &rule.addresses), repaired];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("rule {}: {}", label(original), parts.join(", ")))
}

fn rules_of(document: &NetworkSecurityGroup) -> &[SecurityRule] {
    document.properties.as_ref().and_then(|properties| properties.security_rules.as_deref()).unwrap_or_default()
}

fn label(rule: &SecurityRule) -> String {
    let priority = rule.properties.as_ref().and_then(|properties| properties.priority).unwrap_or_default();
    format!("{} (priority {priority})", rule.name.as_deref().unwrap_or_default())
}

fn list(addresses: &BTreeSet<IpAddr>) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
