//! The fake cloud itself: its memory, and how every call passes through it.
//!
//! In: what a call would do. Out: its answer, slow, failing or cut off as the configuration says.

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
    /// Of this replica; `None` before it is initialised: everybody may write.
    pub(super) leadership: Arc<Mutex<Option<Leadership>>>,
}

pub(super) struct SharedFakeCloud {
    pub(super) path: Option<PathBuf>,
    pub(super) inner: Mutex<FakeCloudData>,
    pub(super) changed: watch::Sender<u64>,
}

pub(super) struct FakeCloudData {
    pub(super) config: FakeConfig,
    /// How often the fault of each entry of `config.calls` was shown.
    pub(super) faults_shown: BTreeMap<CallName, u32>,
    pub(super) failures: BTreeMap<CallName, VecDeque<CloudError>>,
    pub(super) state: FakeCloudState,
    pub(super) state_file: Option<StateFile>,
    pub(super) call_log: CallLog,
}

impl FakeCloudData {
    pub(super) fn injection(&mut self, call: CallName, object: &str, whole_call: bool) -> FaultInjection {
        let judge = |shown: &mut _| calls::fault_injection(&self.config.calls, shown, call, object, whole_call);
        match self.failures.get_mut(&call).and_then(VecDeque::pop_front) {
            // What is configured waits its turn: its count stays as it is.
            Some(error) => {
                let latency = judge(&mut self.faults_shown.clone()).latency;
                FaultInjection { latency, fault: Some(FakeFault::Error(error)), answer_lost: false }
            }
            None => judge(&mut self.faults_shown),
        }
    }

    pub(super) fn refresh(&mut self) -> CloudResult<()> {
        if let Some(memory) = self.state_file.as_mut().map(StateFile::changed).transpose()?.flatten() {
            self.state = memory;
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
    /// A cloud that is configured once.
    pub fn new(config: FakeConfig) -> Self {
        Self::build(None, config)
    }

    /// A cloud configured by a YAML file, which is read again when it changes (see `CloudProvider::initialize`).
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

    /// The same cloud as seen by another replica, with a leadership of its own.
    pub fn replica(&self) -> Self {
        Self { cloud: self.cloud.clone(), leadership: Arc::default() }
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, FakeCloudData> {
        self.cloud.inner.lock()
    }

    pub(super) fn notify(&self) {
        self.cloud.changed.send_modify(|version| *version = version.wrapping_add(1));
    }

    /// Runs a call: records it, waits its latency, shows its fault before or after `body`.
    pub(super) async fn call<T>(
        &self,
        name: CallName,
        object: &str,
        body: impl Future<Output = CloudResult<T>>,
    ) -> CloudResult<T> {
        let _in_flight = RunningCall::begin(self, name, object);
        let verdict = self.inner().injection(name, object, !name.is_step());
        if !verdict.latency.is_zero() {
            tokio::time::sleep(verdict.latency).await;
        }
        if !verdict.answer_lost {
            inject_fault(verdict.fault.clone()).await?;
        }
        let answer = body.await?;
        if verdict.answer_lost {
            inject_fault(verdict.fault).await?;
        }
        Ok(answer)
    }

    pub(super) async fn read_call<T>(
        &self,
        name: CallName,
        object: &str,
        answer: impl FnOnce(&FakeConfig) -> CloudResult<T>,
    ) -> CloudResult<T> {
        self.call(name, object, async { answer(&self.inner().config) }).await
    }

    /// One change inside a batch: shows faults meant for the single call, without its latency.
    pub(super) async fn batch_item<T>(
        &self,
        name: CallName,
        object: &str,
        body: impl FnOnce() -> CloudResult<T>,
    ) -> CloudResult<T> {
        let verdict = self.inner().injection(name, object, false);
        if !verdict.answer_lost {
            inject_fault(verdict.fault.clone()).await?;
        }
        let answer = body()?;
        if verdict.answer_lost {
            inject_fault(verdict.fault).await?;
        }
        Ok(answer)
    }

    /// Takes steps until none is left, with a chance to be slow, to fail or to be cut off around each.
    pub(super) async fn run_steps(
        &self,
        object: &str,
        next: impl Fn(&FakeConfig, &FakeCloudState) -> CloudResult<Option<FakeCloudStep>>,
    ) -> CloudResult<()> {
        while let Some(planned) = self.with_state(&next)?.map(|step| step.call()) {
            let body = async {
                self.write(|config, memory| {
                    // Others went on meanwhile: an address that was free may be taken. What is due is found anew.
                    let step = next(config, memory)?.filter(|step| step.call() == planned);
                    let changes = step.is_some();
                    step.into_iter().for_each(|step| memory.apply(step));
                    Ok(changes)
                })
            };
            self.call(planned, object, body).await?;
        }
        Ok(())
    }

    pub(super) fn with_state<T>(
        &self,
        answer: impl FnOnce(&FakeConfig, &FakeCloudState) -> CloudResult<T>,
    ) -> CloudResult<T> {
        let mut inner = self.inner();
        inner.refresh()?;
        answer(&inner.config, &inner.state)
    }

    /// Changes the memory, if this replica leads. `change` answers whether anything is different.
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

#[expect(clippy::panic, reason = "a provider that panics is what was asked for")]
async fn inject_fault(fault: Option<FakeFault>) -> CloudResult<()> {
    match fault {
        None => Ok(()),
        Some(FakeFault::Error(error)) => Err(error),
        Some(FakeFault::Hang) => std::future::pending().await,
        Some(FakeFault::Panic) => panic!("the fake cloud was told to panic"),
        Some(FakeFault::Crash) => std::process::abort(),
    }
}

/// A call that runs; ends when it is dropped, also half-way.
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
