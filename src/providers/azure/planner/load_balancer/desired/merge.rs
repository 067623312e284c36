//! Merge of the rules or probes that Services need into those of a load balancer, where parts of other owners remain unchanged. Pure.

use std::collections::BTreeMap;

use crate::providers::azure::model::network::{LoadBalancingRule, Probe};

/// Part of a load balancer with a name.
pub(super) trait LoadBalancerPart: Clone {
    /// Name of the kind in reasons.
    const KIND: &'static str;
    fn name(&self) -> &str;
    /// Copies the ARM id of `from`.
    fn take_id(&mut self, from: &Self);
}

macro_rules! parts {
    ($($name:ident = $kind:literal),*) => {$(
        impl LoadBalancerPart for $name {
            const KIND: &'static str = $kind;
            fn name(&self) -> &str {
                self.name.as_deref().unwrap_or_default()
            }
            fn take_id(&mut self, from: &Self) {
                self.id.clone_from(&from.id);
            }
        }
    )*};
}
parts!(LoadBalancingRule = "rule", Probe = "probe");

/// Desired parts of one kind, and the predicates that decide about existing ones.
pub(super) struct PartMerge<'a, T> {
    /// Parts that Services need, in order.
    pub(super) wanted: &'a [&'a T],
    /// Predicate that is `true` for the name of a part that the Services decide about.
    pub(super) is_owned: &'a dyn Fn(&str) -> bool,
    /// Predicate that is `true` for a part that must remain although no Service needs it.
    pub(super) is_needed: &'a dyn Fn(&T) -> bool,
    /// Predicate that is `true` for two equal parts with the same name.
    pub(super) is_same: fn(&T, &T) -> bool,
}

impl<T: LoadBalancerPart> PartMerge<'_, T> {
    /// Returns `true` if [`Self::apply`] would change the parts. Mutable access to the parts can copy the whole document.
    pub(super) fn is_change(&self, existing: &[T]) -> bool {
        let mut missing: BTreeMap<String, &T> = BTreeMap::new();
        for part in self.wanted {
            missing.entry(part.name().to_ascii_lowercase()).or_insert(part);
        }
        let differs = |part: &T| match missing.remove(&part.name().to_ascii_lowercase()) {
            Some(desired) => !(self.is_same)(part, desired),
            None => self.is_removed(part),
        };
        existing.iter().any(differs) || !missing.is_empty()
    }

    fn is_removed(&self, part: &T) -> bool {
        (self.is_owned)(part.name()) && !(self.is_needed)(part)
    }

    /// Replaces different parts in place, drops parts that no Service needs anymore, and appends missing parts.
    pub(super) fn apply(&self, existing: &mut Option<Vec<T>>, reasons: &mut Vec<String>) {
        let mut missing: BTreeMap<String, (usize, &T)> = BTreeMap::new();
        for (place, part) in self.wanted.iter().enumerate() {
            missing.entry(part.name().to_ascii_lowercase()).or_insert((place, *part));
        }
        if let Some(parts) = existing {
            parts.retain_mut(|part| {
                let wanted = missing.remove(&part.name().to_ascii_lowercase());
                self.keep(part, wanted.map(|(_, wanted)| wanted), reasons)
            });
        }
        let mut missing: Vec<_> = missing.into_values().collect();
        missing.sort_by_key(|(place, _)| *place);
        for (_, part) in missing {
            reasons.push(format!("add {} {}", T::KIND, part.name()));
            existing.get_or_insert_default().push(part.clone());
        }
    }

    fn keep(&self, part: &mut T, wanted: Option<&T>, reasons: &mut Vec<String>) -> bool {
        match wanted {
            Some(wanted) if (self.is_same)(part, wanted) => true,
            Some(wanted) => {
                reasons.push(format!("change {} {}", T::KIND, part.name()));
                let mut changed = wanted.clone();
                changed.take_id(part);
                *part = changed;
                true
            }
            None if self.is_removed(part) => {
                reasons.push(format!("remove {} {}", T::KIND, part.name()));
                false
            }
            None => true,
        }
    }
}
