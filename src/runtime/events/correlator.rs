//! Decides whether an event is written as new, counted up, combined with similar ones, or dropped as spam. Pure.
//!
//! In: events with the time. Out: a [`CorrelationDecision`]. Upstream: client-go `tools/record/events_cache.go`.

use std::{collections::HashSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event as CoreEvent, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use tokio::time::Instant;

use super::{EventType, RecordedEvent, lru::LruMap, truncate_message};
use crate::runtime::token_bucket::TokenBucket;

/// Maximum number of keys in each map.
const MAX_KEYS: usize = 4096;
/// Number of different messages with one reason on one object from which on they are combined.
const MAX_SIMILAR_MESSAGES: usize = 10;
/// Pause after which the count of similar events restarts.
const AGGREGATION_WINDOW: Duration = Duration::from_secs(600);
/// Burst of events per source and object.
const BURST: f64 = 25.0;
/// Interval of one event per source and object after the burst.
const REFILL: Duration = Duration::from_secs(300);
const COMBINED: &str = "(combined from similar events): ";
/// Longest object name that Kubernetes accepts.
const LONGEST_NAME: usize = 253;

/// Component and object. Keys are in several maps at once, so their texts are shared.
type EventSourceKey = (&'static str, Arc<str>);
/// Source, type and reason, which are equal for similar events.
type EventAggregateKey = (EventSourceKey, EventType, &'static str);
/// Key of similar events and message, which are equal for equal events. The message of combined events is empty.
pub(super) type EventKey = (EventAggregateKey, Arc<str>);

/// Current time on the wall clock and on the monotonic clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct EventTime {
    /// Time that is written into events.
    pub(super) wall: Timestamp,
    /// Time that pauses are measured with.
    pub(super) monotonic: Instant,
}

/// Decision about an event.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum CorrelationDecision {
    /// Drop the event, because its source has recorded too many on its object.
    Drop,
    /// Write the event as a new object.
    Create(EventKey, Box<CoreEvent>),
    /// Increment `count` of the object of an earlier equal event. If that object was deleted, create this event.
    Increment(EventKey, Box<CoreEvent>),
}

struct EventAggregate {
    messages: HashSet<String>,
    last_seen: Instant,
}

struct EventLogEntry {
    name: String,
    count: i32,
    first: Timestamp,
}

/// Keys and counts of earlier events, which determine the decisions about new events.
pub(super) struct EventCorrelator {
    aggregates: LruMap<EventAggregateKey, EventAggregate>,
    event_log: LruMap<EventKey, EventLogEntry>,
    buckets: LruMap<EventSourceKey, TokenBucket>,
    /// Time in the last name, in nanoseconds. It makes names of events at the same nanosecond unique.
    last_name: i128,
}

impl EventCorrelator {
    pub(super) fn new() -> Self {
        Self {
            aggregates: LruMap::new(MAX_KEYS),
            event_log: LruMap::new(MAX_KEYS),
            buckets: LruMap::new(MAX_KEYS),
            last_name: 0,
        }
    }

    /// Decides about `event` of `component`.
    pub(super) fn correlate(
        &mut self,
        component: &'static str,
        event: RecordedEvent,
        now: EventTime,
    ) -> CorrelationDecision {
        let source: EventSourceKey = (component, object_key(&event.about).into());
        if !self.take_token(&source, now.monotonic) {
            return CorrelationDecision::Drop;
        }
        let group = (source, event.type_, event.reason);
        let combined = self.is_aggregated(&group, &event.message, now.monotonic);
        let identity = (group, if combined { Arc::from("") } else { Arc::from(event.message.as_str()) });
        let mut message = if combined { format!("{COMBINED}{}", event.message) } else { event.message.clone() };
        truncate_message(&mut message);
        let previous = self.event_log.get(&identity).filter(|written| written.count > 0);
        let previous = previous.map(|written| (written.name.clone(), written.count, written.first));
        let (name, count, first) = match &previous {
            Some((name, count, first)) => (name.clone(), count.saturating_add(1), *first),
            None => (self.new_name(&event.about, now.wall), 1, now.wall),
        };
        let object = core_event(component, event, message, name.clone(), count, first, now.wall);
        self.event_log.put(&identity, EventLogEntry { name, count, first });
        match previous {
            Some(_) => CorrelationDecision::Increment(identity, Box::new(object)),
            None => CorrelationDecision::Create(identity, Box::new(object)),
        }
    }

    /// Records that the server does not have the event, so the next equal event is created.
    pub(super) fn forget(&mut self, identity: &EventKey) {
        if let Some(written) = self.event_log.get(identity) {
            written.count = 0;
        }
    }

    fn take_token(&mut self, source: &EventSourceKey, now: Instant) -> bool {
        if self.buckets.get(source).is_none() {
            self.buckets.put(source, TokenBucket::new(1.0 / REFILL.as_secs_f64(), BURST, now));
        }
        self.buckets.get(source).is_none_or(|bucket| bucket.try_take(now))
    }

    fn is_aggregated(&mut self, group: &EventAggregateKey, message: &str, now: Instant) -> bool {
        let is_recent =
            |similar: &mut EventAggregate| now.saturating_duration_since(similar.last_seen) <= AGGREGATION_WINDOW;
        if !self.aggregates.get(group).is_some_and(is_recent) {
            self.aggregates.put(group, EventAggregate { messages: HashSet::new(), last_seen: now });
        }
        let Some(similar) = self.aggregates.get(group) else { return false };
        similar.last_seen = now;
        if similar.messages.contains(message) {
            return false;
        }
        if similar.messages.len() + 1 >= MAX_SIMILAR_MESSAGES {
            return true;
        }
        similar.messages.insert(message.to_owned());
        false
    }

    fn new_name(&mut self, about: &ObjectReference, wall: Timestamp) -> String {
        self.last_name = wall.as_nanosecond().max(self.last_name + 1);
        let suffix = format!(".{:x}", self.last_name);
        let object = about.name.as_deref().unwrap_or("unknown");
        let room = LONGEST_NAME - suffix.len();
        let object: String = object.chars().take(room).collect();
        format!("{}{suffix}", object.trim_end_matches(['-', '.']))
    }
}

fn object_key(about: &ObjectReference) -> String {
    let parts = [&about.api_version, &about.kind, &about.namespace, &about.name, &about.uid];
    parts.map(|part| part.as_deref().unwrap_or_default()).join("/")
}

fn core_event(
    component: &str,
    event: RecordedEvent,
    message: String,
    name: String,
    count: i32,
    first: Timestamp,
    last: Timestamp,
) -> CoreEvent {
    let namespace = event.about.namespace.clone().filter(|namespace| !namespace.is_empty());
    let type_ = match event.type_ {
        EventType::Normal => "Normal",
        EventType::Warning => "Warning",
    };
    CoreEvent {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(namespace.unwrap_or_else(|| "default".to_owned())),
            ..ObjectMeta::default()
        },
        involved_object: event.about,
        type_: Some(type_.to_owned()),
        reason: Some(event.reason.to_owned()),
        message: Some(message),
        count: Some(count),
        first_timestamp: Some(Time(first)),
        last_timestamp: Some(Time(last)),
        source: Some(EventSource { component: Some(component.to_owned()), host: None }),
        reporting_component: Some(component.to_owned()),
        reporting_instance: Some(String::new()),
        ..CoreEvent::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bench {
        correlator: EventCorrelator,
        now: EventTime,
    }

    impl Bench {
        fn new() -> Self {
            let wall = Timestamp::from_second(1_700_000_000).unwrap();
            Self { correlator: EventCorrelator::new(), now: EventTime { wall, monotonic: Instant::now() } }
        }
        fn pass(&mut self, seconds: u64) {
            self.now.monotonic += Duration::from_secs(seconds);
            self.now.wall += jiff::SignedDuration::from_secs(i64::try_from(seconds).unwrap());
        }
        fn judge(&mut self, object: &str, message: &str) -> CorrelationDecision {
            let about =
                ObjectReference { kind: Some("Node".into()), name: Some(object.into()), ..ObjectReference::default() };
            let event = RecordedEvent { about, type_: EventType::Normal, reason: "Tested", message: message.into() };
            self.correlator.correlate("tester", event, self.now)
        }
        fn created(&mut self, object: &str, message: &str) -> CoreEvent {
            match self.judge(object, message) {
                CorrelationDecision::Create(_, event) => *event,
                other => panic!("not created: {other:?}"),
            }
        }
        fn recounted(&mut self, object: &str, message: &str) -> CoreEvent {
            match self.judge(object, message) {
                CorrelationDecision::Increment(_, event) => *event,
                other => panic!("not recounted: {other:?}"),
            }
        }
    }

    #[test]
    fn a_new_event_is_complete() {
        let event = Bench::new().created("node-1", "hello");
        assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
        assert_eq!(event.metadata.name.as_deref(), Some("node-1.17979cfe362a0000"));
        assert_eq!(
            (event.count, event.type_.as_deref(), event.reason.as_deref()),
            (Some(1), Some("Normal"), Some("Tested"))
        );
        assert_eq!(event.source.unwrap().component.as_deref(), Some("tester"));
        assert_eq!(event.reporting_component.as_deref(), Some("tester"));
        assert_eq!(event.first_timestamp, event.last_timestamp);
    }

    #[test]
    fn the_same_event_is_counted_and_keeps_its_name_and_first_time() {
        let mut bench = Bench::new();
        let first = bench.created("node-1", "hello");
        bench.pass(60);
        let second = bench.recounted("node-1", "hello");
        assert_eq!((second.count, &second.metadata.name), (Some(2), &first.metadata.name));
        assert_eq!(second.first_timestamp, first.first_timestamp);
        assert_ne!(second.last_timestamp, first.last_timestamp);
        assert_ne!(bench.created("node-2", "hello").metadata.name, first.metadata.name);
    }

    #[test]
    fn ten_similar_events_are_combined_until_a_pause() {
        let mut bench = Bench::new();
        for i in 0..9 {
            bench.created("node-1", &format!("message {i}"));
        }
        let combined = bench.created("node-1", "message 9");
        assert_eq!(combined.message.as_deref(), Some("(combined from similar events): message 9"));
        let recounted = bench.recounted("node-1", "message 10");
        assert_eq!(recounted.message.as_deref(), Some("(combined from similar events): message 10"));
        assert_eq!((recounted.count, recounted.metadata.name), (Some(2), combined.metadata.name));
        assert_eq!(bench.created("node-2", "message 9").message.as_deref(), Some("message 9"));
        bench.pass(601);
        assert_eq!(bench.created("node-1", "message 11").message.as_deref(), Some("message 11"));
    }

    #[test]
    fn events_on_one_object_are_limited_to_burst_and_rate() {
        let mut bench = Bench::new();
        for _ in 0..25 {
            assert_ne!(bench.judge("node-1", "hello"), CorrelationDecision::Drop);
        }
        assert_eq!(bench.judge("node-1", "hello"), CorrelationDecision::Drop);
        assert_ne!(bench.judge("node-2", "hello"), CorrelationDecision::Drop);
        bench.pass(299);
        assert_eq!(bench.judge("node-1", "hello"), CorrelationDecision::Drop);
        bench.pass(2);
        assert_eq!(bench.recounted("node-1", "hello").count, Some(26));
        assert_eq!(bench.judge("node-1", "hello"), CorrelationDecision::Drop);
    }

    #[test]
    fn names_stay_unique_and_valid() {
        let mut bench = Bench::new();
        let long = format!("{}-{}", "a".repeat(235), "b".repeat(17));
        let names = [bench.created(&long, "x"), bench.created(&long, "y")].map(|event| event.metadata.name.unwrap());
        assert_ne!(names[0], names[1]);
        assert!(names.iter().all(|name| name.len() <= 253 && !name.contains("-.")), "{names:?}");
    }
}
