//! The fake cloud: its state, and the path of every call.
//!
//! In: the effect of a call. Out: its result, delayed, failed or interrupted as configured.

use std::{
    collections::{BTreeMap, VecDeque},
    future::Future,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::{Mutex, MutexGuard};

use super::{
    call_log::CallLog,
    calls::{self, CallName, FakeFault, FaultInjection},
    config::FakeConfig,
    state::{FakeCloudState, FakeCloudStep},
    state_file::StateFile,
};
use crate::{
    cloud_provider::{CloudError, CloudResult},
    runtime::{leader_election::Leadership, watch},
};

/// Handle on a fake cloud. Clones are the same cloud.
#[derive(Clone)]
pub struct FakeCloud {
    pub(super) cloud: Arc<SharedFakeCloud>,
    /// Leadership of this replica. Before `initialize` it is `None`, and every write is allowed.
    pub(super) leadership: Arc<Mutex<Option<Leadership>>>,
}

pub(super) struct SharedFakeCloud {
    pub(super) path: Option<PathBuf>,
    pub(super) inner: Mutex<FakeCloudData>,
    pub(super) changed: watch::Sender<u64>,
}

pub(super) struct FakeCloudData {
    pub(super) config: FakeConfig,
    /// Number of faults shown per entry of `config.calls`.
    pub(super) faults_shown: BTreeMap<CallName, u32>,
    pub(super) failures: BTreeMap<CallName, VecDeque<CloudError>>,
    pub(super) state: FakeCloudState,
    pub(super) state_file: Option<StateFile>,
    pub(super) call_log: CallLog,
}

impl FakeCloudData {
    pub(super) fn injection(&mut self, call: CallName, object: &str, whole_call: bool) -> FaultInjection {
        let injection_for = |shown: &mut _| calls::fault_injection(&self.config.calls, shown, call, object, whole_call);
        match self.failures.get_mut(&call).and_then(VecDeque::pop_front) {
            // A requested failure does not count as a configured fault, so the counts are not changed.
            Some(error) => {
                let latency = injection_for(&mut self.faults_shown.clone()).latency;
                FaultInjection { latency, fault: Some(FakeFault::Error(error)), loses_response: false }
            }
            None => injection_for(&mut self.faults_shown),
        }
    }

    pub(super) fn refresh(&mut self) -> CloudResult<()> {
        if let Some(state) = self.state_file.as_mut().map(StateFile::changed).transpose()?.flatten() {
            self.state = state;
        }
        Ok(())
    }

    pub(super) fn set_config(&mut self, config: FakeConfig) {
        let calls = &config.calls;
        self.faults_shown.retain(|call, _| calls.get(call) == self.config.calls.get(call));
        if self.state_file.as_ref().map(StateFile::path) != config.state_file.as_deref() {
            self.state_file = config.state_file.clone().map(StateFile::new);
        }
        self.config = config;
    }
}

impl FakeCloud {
    /// Creates a cloud with this configuration.
    pub fn new(config: FakeConfig) -> Self {
        Self::build(None, config)
    }

    /// Creates a cloud that is configured by a YAML file. After [`CloudProvider::initialize`], it follows changes of the
    /// file.
    ///
    /// [`CloudProvider::initialize`]: crate::cloud_provider::CloudProvider::initialize
    pub fn from_file(path: &Path) -> CloudResult<Self> {
        Ok(Self::build(Some(path.to_owned()), FakeConfig::read(path)?))
    }

    pub(super) fn build(path: Option<PathBuf>, config: FakeConfig) -> Self {
        let mut inner = FakeCloudData {
            config: FakeConfig::default(),
            faults_shown: BTreeMap::new(),
            failures: BTreeMap::new(),
            state: FakeCloudState::default(),
            state_file: None,
            call_log: CallLog::default(),
        };
        inner.set_config(config);
        let cloud = SharedFakeCloud { path, inner: Mutex::new(inner), changed: watch::Sender::new(0) };
        Self { cloud: Arc::new(cloud), leadership: Arc::default() }
    }

    /// Returns a handle on this cloud for another replica, whose leadership is separate.
    pub fn replica(&self) -> Self {
        Self { cloud: self.cloud.clone(), leadership: Arc::default() }
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, FakeCloudData> {
        self.cloud.inner.lock()
    }

    pub(super) fn notify(&self) {
        self.cloud.changed.send_modify(|version| *version = version.wrapping_add(1));
    }

    /// Runs a call: logs it, waits for its latency, and shows its fault before or after `body`.
    pub(super) async fn call<T>(
        &self,
        name: CallName,
        object: &str,
        body: impl Future<Output = CloudResult<T>>,
    ) -> CloudResult<T> {
        let _in_flight = RunningCall::begin(self, name, object);
        let injection = self.inner().injection(name, object, !name.is_step());
        if !injection.latency.is_zero() {
            tokio::time::sleep(injection.latency).await;
        }
        if !injection.loses_response {
            inject_fault(injection.fault.clone()).await?;
        }
        let output = body.await?;
        if injection.loses_response {
            inject_fault(injection.fault).await?;
        }
        Ok(output)
    }

    pub(super) async fn read_call<T>(
        &self,
        name: CallName,
        object: &str,
        body: impl FnOnce(&FakeConfig) -> CloudResult<T>,
    ) -> CloudResult<T> {
        self.call(name, object, async { body(&self.inner().config) }).await
    }

    /// Runs one change inside a batch with the configured faults of the single call, without its latency.
    pub(super) async fn batch_item<T>(
        &self,
        name: CallName,
        object: &str,
        body: impl FnOnce() -> CloudResult<T>,
    ) -> CloudResult<T> {
        let injection = self.inner().injection(name, object, false);
        if !injection.loses_response {
            inject_fault(injection.fault.clone()).await?;
        }
        let output = body()?;
        if injection.loses_response {
            inject_fault(injection.fault).await?;
        }
        Ok(output)
    }

    /// Applies steps until `next` returns `None`. Each step is a call of its own, which can be slow, fail or be interrupted.
    pub(super) async fn run_steps(
        &self,
        object: &str,
        next: impl Fn(&FakeConfig, &FakeCloudState) -> CloudResult<Option<FakeCloudStep>>,
    ) -> CloudResult<()> {
        while let Some(planned) = self.with_state(&next)?.map(|step| step.call()) {
            let body = async {
                self.write(|config, state| {
                    // Another replica may have allocated the planned address meanwhile, so the step is planned again.
                    let step = next(config, state)?.filter(|step| step.call() == planned);
                    let changes = step.is_some();
                    step.into_iter().for_each(|step| state.apply(step));
                    Ok(changes)
                })
            };
            self.call(planned, object, body).await?;
        }
        Ok(())
    }

    pub(super) fn with_state<T>(&self, read: impl FnOnce(&FakeConfig, &FakeCloudState) -> CloudResult<T>) -> CloudResult<T> {
        let mut inner = self.inner();
        inner.refresh()?;
        read(&inner.config, &inner.state)
    }

    /// Changes the state and writes the state file. `change` returns `false` if there is nothing to change.
    ///
    /// # Errors
    ///
    /// [`CloudError::NotLeader`] if this replica does not lead, and errors of the state file.
    pub(super) fn write(
        &self,
        change: impl FnOnce(&FakeConfig, &mut FakeCloudState) -> CloudResult<bool>,
    ) -> CloudResult<()> {
        let leadership = self.leadership.lock().clone();
        let mut guard = self.inner();
        let inner = &mut *guard;
        inner.refresh()?;
        if let Some(leadership) = leadership {
            leadership.check().map_err(|error| CloudError::NotLeader(error.to_string()))?;
        }
        if !change(&inner.config, &mut inner.state)? {
            return Ok(());
        }
        if let Some(file) = &mut inner.state_file {
            file.save(&inner.state)?;
        }
        inner.call_log.writes += 1;
        drop(guard);
        self.notify();
        Ok(())
    }
}

#[expect(clippy::panic, reason = "the configuration requests a panic")]
async fn inject_fault(fault: Option<FakeFault>) -> CloudResult<()> {
    match fault {
        None => Ok(()),
        Some(FakeFault::Error(error)) => Err(error),
        Some(FakeFault::Hang) => std::future::pending().await,
        Some(FakeFault::Panic) => panic!("the configuration of the fake cloud requests a panic"),
        Some(FakeFault::Crash) => std::process::abort(),
    }
}

/// Running call. Its end is logged on drop, also if the caller cancels it.
pub(super) struct RunningCall<'a> {
    cloud: &'a FakeCloud,
    name: CallName,
}

impl<'a> RunningCall<'a> {
    pub(super) fn begin(cloud: &'a FakeCloud, name: CallName, object: &str) -> Self {
        cloud.inner().call_log.begin(name, object);
        cloud.notify();
        Self { cloud, name }
    }
}

impl Drop for RunningCall<'_> {
    fn drop(&mut self) {
        self.cloud.inner().call_log.end(self.name);
        self.cloud.notify();
    }
}
