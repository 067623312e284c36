//! How full load balancers are, as metrics.
//!
//! In: what there is, as ARM last sent it. Out: a pair of gauges for each load balancer of the cluster, and one for the network interfaces
//! behind it; of one that has gone, none.

use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

use crate::{
    metrics::Metrics,
    providers::azure::{
        metrics::AzureMetrics,
        planner::load_balancer::{
            observed::ObservedNetwork,
            occupancy::{NetworkOccupancy, occupancy},
            settings::LoadBalancerSettings,
        },
    },
};

/// See the module.
pub(super) struct OccupancyMetrics {
    metrics: Arc<Metrics>,
    state: Mutex<OccupancyState>,
}

#[derive(Default)]
struct OccupancyState {
    /// Load balancers that have gauges.
    shown: BTreeSet<String>,
    /// Version of the documents that the gauges show.
    observed: Weak<ObservedNetwork>,
}

impl OccupancyMetrics {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, state: Mutex::default() }
    }

    /// Sets the gauges to what is observed. Counting walks all documents, so a version that was counted is skipped.
    pub(super) fn note(&self, observed: &Arc<ObservedNetwork>, settings: &LoadBalancerSettings) {
        let Some(metrics) = self.metrics.table::<AzureMetrics>() else { return };
        let mut state = self.state.lock();
        if state.observed.upgrade().is_some_and(|counted| Arc::ptr_eq(&counted, observed)) {
            return;
        }
        let OccupancyState { shown, observed: counted } = &mut *state;
        let rows = &metrics.rows;
        let NetworkOccupancy { load_balancers, interfaces, .. } = occupancy(observed, settings);
        let names: BTreeSet<String> = load_balancers.iter().map(|one| one.name.clone()).collect();
        let names = &names | &interfaces.iter().map(|one| one.load_balancer.clone()).collect();
        let all =
            [&rows.load_balancer_rules, &rows.load_balancer_rules_limit, &rows.interface_rules, &rows.interface_rules_limit];
        for gone in shown.difference(&names) {
            for gauge in all {
                // One that was never set is not there.
                let _ = gauge.remove_label_values(&[gone]);
            }
        }
        for one in &load_balancers {
            rows.load_balancer_rules.with_label_values(&[&one.name]).set(number(one.rules));
            rows.load_balancer_rules_limit.with_label_values(&[&one.name]).set(number(one.limits.rules));
        }
        for one in &interfaces {
            rows.interface_rules.with_label_values(&[&one.load_balancer]).set(number(one.rules));
            rows.interface_rules_limit.with_label_values(&[&one.load_balancer]).set(number(one.limit));
        }
        *shown = names;
        *counted = Arc::downgrade(observed);
    }
}

fn number(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::MAX, f64::from)
}
