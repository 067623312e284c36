//! Control of a fake cloud by tests: changes of the configuration, recorded calls, existing resources, and requested
//! failures.

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
    /// Returns the current configuration.
    pub fn config(&self) -> FakeConfig {
        self.inner().config.clone()
    }

    /// Changes the configuration. The next change of the configuration file, if there is one, replaces it.
    pub fn configure(&self, change: impl FnOnce(&mut FakeConfig)) {
        let mut inner = self.inner();
        let mut config = inner.config.clone();
        change(&mut config);
        inner.set_config(config);
        drop(inner);
        self.notify();
    }

    /// Adds or replaces the instance of Node `name`.
    pub fn add_instance(&self, name: impl Into<String>, spec: InstanceSpec) {
        self.configure(|config| {
            config.instances.insert(name.into(), spec);
        });
    }

    /// Removes the instance of Node `name`, whether it was listed, generated, or `anyInstance`.
    pub fn remove_instance(&self, name: &str) {
        self.change_instance(name, |spec| spec.existence = InstancePresence::Gone);
    }

    /// Sets the power state of the instance of Node `name`.
    pub fn set_power(&self, name: &str, power_state: PowerState) {
        self.change_instance(name, |spec| spec.power_state = power_state);
    }

    /// Changes the instance of Node `name`, which is added first if it does not exist.
    pub fn change_instance(&self, name: &str, change: impl FnOnce(&mut InstanceSpec)) {
        self.configure(|config| {
            let mut spec = config.spec_of(name).unwrap_or_default();
            change(&mut spec);
            config.instances.insert(name.to_owned(), spec);
        });
    }

    /// Makes the next `times` calls fail with `error`. These failures precede configured faults.
    pub fn fail_next(&self, call: CallName, error: &CloudError, times: usize) {
        let errors = std::iter::repeat_n(error.clone(), times);
        self.inner().failures.entry(call).or_default().extend(errors);
    }

    /// Sets the latency of a call.
    pub fn set_latency(&self, call: CallName, latency: Duration) {
        self.configure(|config| config.calls.entry(call).or_default().latency = latency);
    }

    /// Returns the last 100,000 calls and steps in the order of their starts.
    pub fn calls(&self) -> Vec<RecordedCall> {
        self.inner().call_log.calls.iter().cloned().collect()
    }

    /// Returns the subjects of the recorded calls of `call`, in order.
    pub fn objects_of(&self, call: CallName) -> Vec<String> {
        self.inner().call_log.calls.iter().filter(|it| it.name == call).map(|it| it.object.clone()).collect()
    }

    /// Returns the number of times that `call` began.
    pub fn call_count(&self, call: CallName) -> u64 {
        self.inner().call_log.counts.get(&call).copied().unwrap_or_default()
    }

    /// Returns the number of effective changes of the cloud.
    pub fn write_count(&self) -> u64 {
        self.inner().call_log.writes
    }

    /// Clears recorded calls and counts. Running calls still count as in flight.
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

    /// Returns the highest number of calls that ran at once, without steps.
    pub fn max_in_flight_seen(&self) -> usize {
        self.inner().call_log.all_in_flight_seen
    }

    /// Returns the highest number of calls of `call` that ran at once.
    pub fn max_in_flight_seen_of(&self, call: CallName) -> usize {
        self.inner().call_log.in_flight_seen.get(&call).copied().unwrap_or_default()
    }

    /// Returns the load balancers by name. If the state file is unreadable, the last state is returned.
    pub fn load_balancers(&self) -> BTreeMap<String, FakeLoadBalancer> {
        self.read_state(|inner| inner.state.load_balancers.clone())
    }

    /// Returns the load balancer of `service`, given as `namespace/name`.
    pub fn load_balancer_of(&self, service: &str) -> Option<FakeLoadBalancer> {
        self.read_state(|inner| inner.state.load_balancers.values().find(|lb| lb.service == service).cloned())
    }

    /// Returns the routes, ordered by cluster and destination.
    pub fn routes(&self) -> Vec<FakeRoute> {
        self.read_state(|inner| inner.state.routes.values().cloned().collect())
    }

    /// Returns the resources that no later call will clean up: load balancers of Services that are not in `live`, and
    /// addresses that no load balancer uses.
    ///
    /// `live` are all Services that need a load balancer.
    pub fn leaks<'a>(&self, live: impl IntoIterator<Item = &'a Service>) -> Vec<String> {
        let names: BTreeSet<String> = live.into_iter().map(|service| self.get_load_balancer_name("", service)).collect();
        self.read_state(|inner| inner.state.leaks(&names))
    }

    /// Resolves when `condition` returns `true`.
    ///
    /// The condition is evaluated again after each start and end of a call, each write and each change of the configuration,
    /// but not when another process writes the state file.
    pub async fn wait_until(&self, condition: impl Fn(&FakeCloud) -> bool) {
        let mut changed = self.cloud.changed.subscribe();
        loop {
            changed.borrow_and_update();
            // This handle keeps the sender alive, so waiting cannot fail.
            if condition(self) || changed.changed().await.is_err() {
                return;
            }
        }
    }

    fn read_state<T>(&self, read: impl FnOnce(&FakeCloudData) -> T) -> T {
        let mut inner = self.inner();
        if let Err(error) = inner.refresh() {
            tracing::warn!(%error, "Cannot read the state file of the fake cloud; its last state is used");
        }
        read(&inner)
    }
}
