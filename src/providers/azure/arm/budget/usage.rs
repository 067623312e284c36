//! Writes of each namespace within the window. Pure.
//!
//! In: writes with their [`Causes`]. Out: the usage of a namespace. Only quotas with a window are counted: those of the network
//! provider, which all Services share. A write counts in equal parts for the namespaces that cause it.

use std::collections::HashMap;

use tokio::time::Instant;

use super::{charge::Causes, limits::BucketCharge, window::SendWindow};

/// Number of parts of one write, the unit of usage.
const PARTS: u32 = 1_000;

/// Writes per Service and window, after which the reserve is closed to the namespace.
///
/// A Service that is created and deleted without others costs as many.
const WRITES_PER_SERVICE: u32 = 6;

/// Returns the usage, in parts of a write, after which the reserve is closed to a namespace with so many Services.
pub(super) fn allowance(services: usize) -> u32 {
    u32::try_from(services).unwrap_or(u32::MAX).saturating_mul(WRITES_PER_SERVICE * PARTS)
}

/// Writes of all namespaces, in parts of a write.
#[derive(Debug, Default, Clone)]
pub(super) struct NamespaceUsage {
    windows: HashMap<String, SendWindow>,
}

/// Returns the number of parts that each namespace of `causes` is charged for one write.
fn parts(causes: &Causes) -> u32 {
    PARTS / u32::try_from(causes.iter().count()).unwrap_or(PARTS).clamp(1, PARTS)
}

fn is_counted(charges: &[BucketCharge]) -> bool {
    charges.iter().any(|charge| charge.limit.window.is_some())
}

impl NamespaceUsage {
    /// Charges a write with `charges` to the namespaces that cause it.
    pub(super) fn add(&mut self, charges: &[BucketCharge], causes: &Causes, now: Instant) {
        for namespace in causes.iter().filter(|_| is_counted(charges)) {
            self.windows.entry(namespace.to_owned()).or_default().add(parts(causes), now);
        }
    }

    /// Reverts [`Self::add`] for a write that was charged at `admitted` or before, and was not sent.
    pub(super) fn remove(&mut self, charges: &[BucketCharge], causes: &Causes, admitted: Instant) {
        for namespace in causes.iter().filter(|_| is_counted(charges)) {
            if let Some(window) = self.windows.get_mut(namespace) {
                window.remove(parts(causes), admitted);
            }
        }
    }

    /// Returns the lowest usage among the namespaces of `causes`, in parts of a write; zero if no Service causes the write.
    pub(super) fn of_causes(&self, causes: &Causes, now: Instant) -> u32 {
        let used = |namespace: &str| self.windows.get(namespace).map_or(0, |window| window.sent(now));
        causes.iter().map(used).min().unwrap_or(0)
    }

    /// Removes namespaces without writes within the window.
    pub(super) fn tidy(&mut self, now: Instant) {
        self.windows.retain(|_, window| window.sent(now) > 0);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{
        super::{
            limits::{BucketId, BucketLimit, QuotaLevel},
            window::{WINDOW, WindowLimit},
        },
        *,
    };

    fn charges(window: Option<WindowLimit>) -> [BucketCharge; 1] {
        let id = BucketId { level: QuotaLevel::Provider, name: "w".into(), subscription: "s".to_owned(), resource: None };
        [BucketCharge { id, limit: BucketLimit { capacity: 500.0, per_second: 1.0, window } }]
    }

    #[test]
    fn a_write_counts_in_equal_parts_for_its_causes() {
        let (start, counted) = (Instant::now(), charges(Some(WindowLimit::all(500.0))));
        let of = |names: &[&str]| names.iter().copied().collect::<Causes>();
        let mut usage = NamespaceUsage::default();
        usage.add(&counted, &of(&["a", "b", "a"]), start);
        usage.add(&counted, &of(&["a"]), start);
        usage.add(&counted, &Causes::default(), start);
        usage.add(&charges(None), &of(&["a"]), start);
        let used = |usage: &NamespaceUsage, names: &[&str], now| usage.of_causes(&of(names), now);
        let all = [&["a"][..], &["b"], &["a", "b"], &["c"], &[]];
        assert_eq!(all.map(|names| used(&usage, names, start)), [1_500, 500, 500, 0, 0]);
        usage.remove(&counted, &of(&["a"]), start);
        assert_eq!(used(&usage, &["a"], start), 500, "it was not sent");
        let later = start + WINDOW + Duration::from_secs(1);
        assert_eq!(used(&usage, &["a"], later), 0);
        usage.tidy(later);
        assert!(usage.windows.is_empty());
    }

    #[test]
    fn an_allowance_grows_with_the_services() {
        assert_eq!([0, 1, 20, usize::MAX].map(allowance), [0, 6_000, 120_000, u32::MAX]);
    }
}
