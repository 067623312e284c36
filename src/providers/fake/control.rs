//! The side of a fake cloud that tests hold: what was called, what is there, and what should go wrong next.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::api::core::v1::Service;

use super::{
    call_log::{CallLog, RecordedCall},
    calls::CallName,
    cloud::{FakeCloud, FakeCloudData},
    config::{FakeConfig, InstancePresence, InstanceSpec, PowerState},
    state::{FakeLoadBalancer, FakeRoute},
};
use crate::cloud_provider::{CloudError, LoadBalancer};

impl FakeCloud {
    /// The configuration as it is now.
    pub fn config(&self) -> FakeConfig {
        self.inner().config.clone()
    }

    /// Changes the configuration until the file (if any) changes again.
    pub fn configure(&self, change: impl FnOnce(&mut FakeConfig)) {
        let mut inner = self.inner();
        let mut config = inner.config.clone();
        change(&mut config);
        inner.set_config(config);
        drop(inner);
        self.notify();
    }

    /// Adds or replaces the instance of node `name`.
    pub fn add_instance(&self, name: impl Into<String>, spec: InstanceSpec) {
        self.configure(|config| {
            config.instances.insert(name.into(), spec);
        });
    }

    /// Makes the instance of node `name` gone, also when it was generated or stood for any name.
    pub fn remove_instance(&self, name: &str) {
        self.change_instance(name, |spec| spec.existence = InstancePresence::Gone);
    }

    /// Switches the instance of node `name` on or off.
    pub fn set_power(&self, name: &str, power_state: PowerState) {
        self.change_instance(name, |spec| spec.power_state = power_state);
    }

    /// Changes the instance of node `name`; one that is not there is added first.
    pub fn change_instance(&self, name: &str, change: impl FnOnce(&mut InstanceSpec)) {
        self.configure(|config| {
            let mut spec = config.spec_of(name).unwrap_or_default();
            change(&mut spec);
            config.instances.insert(name.to_owned(), spec);
        });
    }

    /// Lets the next `times` calls fail, before anything that is configured for them.
    pub fn fail_next(&self, call: CallName, error: &CloudError, times: usize) {
        let errors = std::iter::repeat_n(error.clone(), times);
        self.inner().failures.entry(call).or_default().extend(errors);
    }

    /// Lets a call take this long.
    pub fn set_latency(&self, call: CallName, latency: Duration) {
        self.configure(|config| config.calls.entry(call).or_default().latency = latency);
    }

    /// Calls and steps in the order they began: the last 100,000.
    pub fn calls(&self) -> Vec<RecordedCall> {
        self.inner().call_log.calls.iter().cloned().collect()
    }

    /// What `call` was made for, in order.
    pub fn objects_of(&self, call: CallName) -> Vec<String> {
        self.inner().call_log.calls.iter().filter(|made| made.name == call).map(|made| made.object.clone()).collect()
    }

    /// How often `call` was made.
    pub fn call_count(&self, call: CallName) -> u64 {
        self.inner().call_log.counts.get(&call).copied().unwrap_or_default()
    }

    /// How many changes were really made.
    pub fn write_count(&self) -> u64 {
        self.inner().call_log.writes
    }

    /// Forgets calls and counts; what runs is still counted.
    pub fn clear_calls(&self) {
        let mut inner = self.inner();
        let CallLog { in_flight, all_in_flight, .. } = std::mem::take(&mut inner.call_log);
        inner.call_log = CallLog {
            in_flight_seen: in_flight.clone(),
            in_flight,
            all_in_flight,
            all_in_flight_seen: all_in_flight,
            ..CallLog::default()
        };
    }

    /// The most calls (steps not counted) that ran at once.
    pub fn max_in_flight_seen(&self) -> usize {
        self.inner().call_log.all_in_flight_seen
    }

    /// The most of this call that ran at once.
    pub fn max_in_flight_seen_of(&self, call: CallName) -> usize {
        self.inner().call_log.in_flight_seen.get(&call).copied().unwrap_or_default()
    }

    /// Load balancers by name. A state file that cannot be read counts as unchanged.
    pub fn load_balancers(&self) -> BTreeMap<String, FakeLoadBalancer> {
        self.read_state(|inner| inner.state.load_balancers.clone())
    }

    /// The load balancer of a Service given as `namespace/name`.
    pub fn load_balancer_of(&self, service: &str) -> Option<FakeLoadBalancer> {
        self.read_state(|inner| inner.state.load_balancers.values().find(|lb| lb.service == service).cloned())
    }

    /// Routes, ordered by cluster and destination.
    pub fn routes(&self) -> Vec<FakeRoute> {
        self.read_state(|inner| inner.state.routes.values().cloned().collect())
    }

    /// What nobody will ever clean up when `live` are all Services that want a load balancer: load balancers of others, and
    /// addresses without a load balancer.
    pub fn leaks<'a>(&self, live: impl IntoIterator<Item = &'a Service>) -> Vec<String> {
        let names: BTreeSet<String> = live.into_iter().map(|service| self.get_load_balancer_name("", service)).collect();
        self.read_state(|inner| inner.state.leaks(&names))
    }

    /// Resolves when `reached` holds. Asks again after each change: a call beginning or ending, a write, a new configuration; not
    /// when another process writes the state file.
    pub async fn wait_until(&self, reached: impl Fn(&FakeCloud) -> bool) {
        let mut changed = self.cloud.changed.subscribe();
        loop {
            changed.borrow_and_update();
            // The sender lives as long as this handle, so waiting cannot fail.
            if reached(self) || changed.changed().await.is_err() {
                return;
            }
        }
    }

    fn read_state<T>(&self, answer: impl FnOnce(&FakeCloudData) -> T) -> T {
        let mut inner = self.inner();
        if let Err(error) = inner.refresh() {
            tracing::warn!(%error, "Cannot read the fake cloud; showing its last state");
        }
        answer(&inner)
    }
}
