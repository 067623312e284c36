//! Events: what happened to an object, for `kubectl describe`.
//!
//! In: [`Event`] values that controllers build in their `events.rs`. Out: core/v1 Events, similar ones aggregated and floods
//! filtered. Recording never blocks and never fails the caller.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use tokio::sync::mpsc;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventType {
    /// For information.
    Normal,
    /// Somebody should look.
    Warning,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// What it happened to.
    pub about: ObjectReference,
    /// How bad it is.
    pub type_: EventType,
    /// One CamelCase word, for machines.
    pub reason: &'static str,
    /// A sentence, for people.
    pub message: String,
}

/// A kind of event, for the reference page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventDoc {
    /// Reason, as in the event.
    pub reason: &'static str,
    /// How bad it is.
    pub type_: EventType,
    /// When it is recorded.
    pub when: &'static str,
}

/// Reference to `object`, with its UID.
pub fn reference<K: Resource<DynamicType = ()>>(object: &K) -> ObjectReference {
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        name: object.meta().name.clone(),
        namespace: object.meta().namespace.clone(),
        uid: object.meta().uid.clone(),
        resource_version: object.meta().resource_version.clone(),
        field_path: None,
    }
}

/// Takes events for one source component. Clones are the same recorder.
#[derive(Debug, Clone)]
pub struct EventRecorder {
    component: &'static str,
    queue: mpsc::Sender<(&'static str, Event)>,
}

impl EventRecorder {
    /// How many events may wait to be written; further ones are dropped. Upstream: client-go `tools/record`.
    pub const QUEUE: usize = 1000;

    /// A recorder for `component` and where its events come out: the sink, or a test.
    pub fn channel(component: &'static str) -> (Self, mpsc::Receiver<(&'static str, Event)>) {
        let (queue, events) = mpsc::channel(Self::QUEUE);
        (Self { component, queue }, events)
    }

    /// The same sink under another source component.
    pub fn for_component(&self, component: &'static str) -> Self {
        Self { component, queue: self.queue.clone() }
    }

    /// Records `event`; drops it when the queue is full.
    pub fn record(&self, event: Event) {
        if self.queue.try_send((self.component, event)).is_err() {
            tracing::debug!(component = self.component, "event dropped: the queue is full or closed");
        }
    }
}
