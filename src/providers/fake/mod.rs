//! A cloud with memory, for tests, demonstrations and authors of providers.
//!
//! In: YAML (`--cloud-config`, see `docs/guides/fake-provider.md`) or a [`FakeConfig`]. Out: a [`FakeCloud`], a complete
//! [`CloudProvider`] that remembers what was made in it, records calls, and is slow, fails, hangs or dies on request. Load
//! balancers are made and removed in several steps, as in real clouds, so that work can be cut off between any two of them.

mod calls;
mod config;
mod control;
mod instances;
mod load_balancer;
mod reload;
mod routes;
mod state;
mod state_file;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    future::Future,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use tokio::sync::watch;

use calls::{FakeFault, FaultInjection};
use state::{FakeCloudState, FakeCloudStep};
use state_file::StateFile;

pub use calls::{CallBehaviour, CallName, FakeErrorClass};
pub use config::{
    FakeConfig, FakeLoadBalancerConfig, FakeRouteConfig, GeneratedInstances, InstancePresence, InstanceSpec, PowerState,
};
pub use control::RecordedCall;
pub use state::{FakeLoadBalancer, FakePort, FakeRoute};

use crate::{
    cloud_provider::{
        CloudError, CloudProvider, CloudResult, Clusters, Instances, InstancesV2, LoadBalancer, LocalConfig,
        ProviderContext, Routes, Zones, registry::ProviderConfig,
    },
    runtime::leader_election::Leadership,
};

/// Name in `--cloud-provider`, and scheme of its provider ids.
pub const PROVIDER_NAME: &str = "fake";

/// Builds the provider for [`crate::cloud_provider::Registry`].
pub fn factory(config: &ProviderConfig) -> CloudResult<Arc<dyn CloudProvider>> {
    let cloud = match &config.cloud_config {
        Some(path) => FakeCloud::from_file(path)?,
        None => FakeCloud::new(FakeConfig::any_node()),
    };
    Ok(Arc::new(cloud))
}

/// The same for one machine: what the YAML says of it, read by the machine itself.
pub fn local_factory(config: &LocalConfig) -> CloudResult<Arc<dyn CloudProvider>> {
    factory(&ProviderConfig { cloud_config: config.cloud_config.clone(), ..ProviderConfig::default() })
}

/// Handle on a fake cloud. Clones are the same cloud.
#[derive(Clone)]
pub struct FakeCloud {
    cloud: Arc<SharedFakeCloud>,
    /// Of this replica; `None` before it is initialised: everybody may write.
    leadership: Arc<Mutex<Option<Leadership>>>,
}

struct SharedFakeCloud {
    path: Option<PathBuf>,
    inner: Mutex<FakeCloudData>,
    changed: watch::Sender<u64>,
}

struct FakeCloudData {
    config: FakeConfig,
    /// How often the fault of each entry of `config.calls` was shown.
    faults_shown: BTreeMap<CallName, u32>,
    failures: BTreeMap<CallName, VecDeque<CloudError>>,
    state: FakeCloudState,
    state_file: Option<StateFile>,
    call_log: control::CallLog,
}

impl FakeCloudData {
    fn injection(&mut self, call: CallName, object: &str, whole_call: bool) -> FaultInjection {
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

    fn refresh(&mut self) -> CloudResult<()> {
        if let Some(memory) = self.state_file.as_mut().map(StateFile::changed).transpose()?.flatten() {
            self.state = memory;
        }
        Ok(())
    }

    fn set_config(&mut self, config: FakeConfig) {
        let calls = &config.calls;
        self.faults_shown.retain(|call, _| calls.get(call) == self.config.calls.get(call));
        if self.state_file.as_ref().map(StateFile::path) != config.state_file.as_deref() {
            self.state_file = config.state_file.clone().map(StateFile::new);
        }
        self.config = config;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic on request never happens under the lock, so what is behind it is whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FakeCloud {
    /// A cloud that is configured once.
    pub fn new(config: FakeConfig) -> Self {
        Self::build(None, config)
    }

    /// A cloud configured by a YAML file, which is read again when it changes (see [`CloudProvider::initialize`]).
    pub fn from_file(path: &Path) -> CloudResult<Self> {
        Ok(Self::build(Some(path.to_owned()), FakeConfig::read(path)?))
    }

    fn build(path: Option<PathBuf>, config: FakeConfig) -> Self {
        let mut inner = FakeCloudData {
            config: FakeConfig::default(),
            faults_shown: BTreeMap::new(),
            failures: BTreeMap::new(),
            state: FakeCloudState::default(),
            state_file: None,
            call_log: control::CallLog::default(),
        };
        inner.set_config(config);
        let cloud = SharedFakeCloud { path, inner: Mutex::new(inner), changed: watch::Sender::new(0) };
        Self { cloud: Arc::new(cloud), leadership: Arc::default() }
    }

    /// The same cloud as seen by another replica, with a leadership of its own.
    pub fn replica(&self) -> Self {
        Self { cloud: self.cloud.clone(), leadership: Arc::default() }
    }

    fn inner(&self) -> MutexGuard<'_, FakeCloudData> {
        lock(&self.cloud.inner)
    }

    fn notify(&self) {
        self.cloud.changed.send_modify(|version| *version = version.wrapping_add(1));
    }

    /// Runs a call: records it, waits its latency, shows its fault before or after `body`.
    async fn call<T>(&self, name: CallName, object: &str, body: impl Future<Output = CloudResult<T>>) -> CloudResult<T> {
        let _in_flight = control::RunningCall::begin(self, name, object);
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

    async fn read_call<T>(
        &self,
        name: CallName,
        object: &str,
        answer: impl FnOnce(&FakeConfig) -> CloudResult<T>,
    ) -> CloudResult<T> {
        self.call(name, object, async { answer(&self.inner().config) }).await
    }

    /// One change inside a batch: shows faults meant for the single call, without its latency.
    async fn batch_item<T>(&self, name: CallName, object: &str, body: impl FnOnce() -> CloudResult<T>) -> CloudResult<T> {
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
    async fn run_steps(
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

    fn with_state<T>(&self, answer: impl FnOnce(&FakeConfig, &FakeCloudState) -> CloudResult<T>) -> CloudResult<T> {
        let mut inner = self.inner();
        inner.refresh()?;
        answer(&inner.config, &inner.state)
    }

    /// Changes the memory, if this replica leads. `change` answers whether anything is different.
    fn write(&self, change: impl FnOnce(&FakeConfig, &mut FakeCloudState) -> CloudResult<bool>) -> CloudResult<()> {
        let leadership = lock(&self.leadership).clone();
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

#[async_trait]
impl CloudProvider for FakeCloud {
    fn provider_name(&self) -> &str {
        PROVIDER_NAME
    }

    fn has_cluster_id(&self) -> bool {
        !self.inner().config.cluster_id.is_empty()
    }

    /// Also starts the task that follows changes of the configuration file.
    async fn initialize(&self, context: ProviderContext) -> CloudResult<()> {
        self.read_call(CallName::Initialize, "", |_| Ok(())).await?;
        // Fails early when the state file is unusable.
        self.with_state(|_, _| Ok(()))?;
        *lock(&self.leadership) = Some(context.leadership);
        if self.cloud.path.is_some() {
            context.shutdown.spawn(reload::follow(self.clone(), context.shutdown.clone()));
        }
        Ok(())
    }

    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        self.inner().config.load_balancers.enabled.then(|| Arc::new(self.clone()) as Arc<dyn LoadBalancer>)
    }

    fn instances(&self) -> Option<Arc<dyn Instances>> {
        (!self.inner().config.instances_v2).then(|| Arc::new(self.clone()) as Arc<dyn Instances>)
    }

    fn instances_v2(&self) -> Option<Arc<dyn InstancesV2>> {
        self.inner().config.instances_v2.then(|| Arc::new(self.clone()) as Arc<dyn InstancesV2>)
    }

    fn zones(&self) -> Option<Arc<dyn Zones>> {
        (!self.inner().config.instances_v2).then(|| Arc::new(self.clone()) as Arc<dyn Zones>)
    }

    fn clusters(&self) -> Option<Arc<dyn Clusters>> {
        Some(Arc::new(self.clone()))
    }

    fn routes(&self) -> Option<Arc<dyn Routes>> {
        self.inner().config.routes.enabled.then(|| Arc::new(self.clone()) as Arc<dyn Routes>)
    }
}

/// Compiles and runs the guide's example.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/fake-provider.md")]
struct Guide;
