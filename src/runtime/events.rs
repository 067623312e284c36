//! Kubernetes Events about objects, for `kubectl describe`.
//!
//! In: [`RecordedEvent`] values that controllers build in their `events.rs`. Out: core/v1 Events, similar ones aggregated
//! and floods filtered. Recording never blocks and never fails the caller.

mod correlator;
mod lru;
mod sink;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use prometheus::CounterVec;
use tokio::sync::mpsc;

pub use sink::start_sink;

use super::text::truncate;
use crate::metrics::Metrics;

/// Longest message that the API server accepts, in bytes. Upstream: `pkg/apis/core/validation/events.go`.
const LONGEST_MESSAGE: usize = 1024;
const ELLIPSIS: &str = "…";

/// Truncates a message that is too long, between two characters.
fn truncate_message(message: &mut String) {
    if message.len() > LONGEST_MESSAGE {
        *message = truncate(message, LONGEST_MESSAGE - ELLIPSIS.len());
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventType {
    Normal,
    Warning,
}

/// Event about an object.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedEvent {
    /// Object of the event.
    pub about: ObjectReference,
    pub type_: EventType,
    /// Reason in CamelCase, for machines.
    pub reason: &'static str,
    /// Message for people, which is a sentence.
    pub message: String,
}

/// Row of a controller's table of events, for the reference page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventDescription {
    /// Reason in CamelCase, for machines.
    pub reason: &'static str,
    pub type_: EventType,
    /// Occasion of the event.
    pub when: &'static str,
}

impl EventDescription {
    pub const fn normal(reason: &'static str, when: &'static str) -> Self {
        Self { reason, type_: EventType::Normal, when }
    }

    pub const fn warning(reason: &'static str, when: &'static str) -> Self {
        Self { reason, type_: EventType::Warning, when }
    }

    /// Returns this event about `object`.
    pub fn about<K: Resource<DynamicType = ()>>(&self, object: &K, message: impl Into<String>) -> RecordedEvent {
        RecordedEvent { about: object_reference(object), type_: self.type_, reason: self.reason, message: message.into() }
    }
}

/// Returns a reference to `object`, with its UID.
pub fn object_reference<K: Resource<DynamicType = ()>>(object: &K) -> ObjectReference {
    ObjectReference { resource_version: object.meta().resource_version.clone(), ..object.object_ref(&()) }
}

/// Recorder of the events of one source component. Clones share the queue.
#[derive(Debug, Clone)]
pub struct EventRecorder {
    component: &'static str,
    queue: mpsc::Sender<(&'static str, RecordedEvent)>,
    discarded: Option<CounterVec>,
}

impl EventRecorder {
    /// Maximum number of queued events; further events are dropped. Upstream: client-go `tools/record`.
    pub const QUEUE_CAPACITY: usize = 1000;

    /// Creates a recorder for `component`, and the receiver of its events: the sink, or a test.
    pub fn channel(component: &'static str) -> (Self, mpsc::Receiver<(&'static str, RecordedEvent)>) {
        let (queue, events) = mpsc::channel(Self::QUEUE_CAPACITY);
        (Self { component, queue, discarded: None }, events)
    }

    /// Counts events that are dropped because the queue is full, in `metrics`.
    pub fn with_discard_metric(self, metrics: &Metrics) -> Self {
        Self { discarded: Some(metrics.events_discarded_total.clone()), ..self }
    }

    /// Returns a recorder for the same sink with another source component.
    pub fn for_component(&self, component: &'static str) -> Self {
        Self { component, ..self.clone() }
    }

    /// Records `event` with its message truncated to the limit of the API. If the queue is full, the event is dropped.
    pub fn record(&self, mut event: RecordedEvent) {
        truncate_message(&mut event.message);
        if self.queue.try_send((self.component, event)).is_err() {
            tracing::debug!(component = self.component, "event dropped: the queue is full or closed");
            self.discarded.iter().for_each(|discarded| discarded.with_label_values(&["queue_full"]).inc());
        }
    }
}
