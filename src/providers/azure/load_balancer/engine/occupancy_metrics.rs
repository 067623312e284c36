//! How full load balancers are, as metrics.
//!
//! In: what there is, as ARM last sent it. Out: a pair of gauges for each load balancer of the cluster; of one that has gone, none.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    metrics::Metrics,
    providers::azure::{
        metrics::AzureMetrics,
        planner::load_balancer::{observed::ObservedNetwork, occupancy::occupancy, settings::LoadBalancerSettings},
    },
};

/// See the module.
pub(super) struct OccupancyMetrics {
    metrics: Arc<Metrics>,
    /// Load balancers that have gauges.
    shown: Mutex<BTreeSet<String>>,
}

impl OccupancyMetrics {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, shown: Mutex::default() }
    }

    /// Takes note of what there is.
    pub(super) fn note(&self, observed: &ObservedNetwork, settings: &LoadBalancerSettings) {
        let Some(metrics) = self.metrics.table::<AzureMetrics>() else { return };
        let rows = &metrics.rows;
        let counted = occupancy(observed, settings).load_balancers;
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let names: BTreeSet<String> = counted.iter().map(|one| one.name.clone()).collect();
        for gone in shown.difference(&names) {
            for gauge in [&rows.load_balancer_rules, &rows.load_balancer_rules_limit] {
                // One that was never set is not there.
                let _ = gauge.remove_label_values(&[gone]);
            }
        }
        for one in &counted {
            rows.load_balancer_rules.with_label_values(&[&one.name]).set(number(one.rules));
            rows.load_balancer_rules_limit.with_label_values(&[&one.name]).set(number(one.limits.rules));
        }
        *shown = names;
    }
}

fn number(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::MAX, f64::from)
}
