//! Writes events. In: queued events. Out: core/v1 Events, created or counted up as [`super::correlator`] decides.
//!
//! Every replica writes events, whether it leads or not: a standby reports on the election. Upstream: client-go
//! `tools/record/event.go`.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Event as CoreEvent;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};

use super::{
    RecordedEvent,
    correlator::{CorrelationDecision, EventCorrelator, EventTime},
};
use crate::{
    metrics::Metrics,
    runtime::{client::with_causes, clock::Clock, shutdown::Shutdown},
};

/// Maximum number of attempts per event while the API server is unreachable.
const MAX_ATTEMPTS: u32 = 12;
/// Delay between attempts to write an event.
const PAUSE: Duration = Duration::from_secs(10);
/// Time that a shutdown waits for queued events.
const FLUSH: Duration = Duration::from_secs(1);
/// Time limit of one request.
const REQUEST: Duration = Duration::from_secs(30);

type EventReceiver = mpsc::Receiver<(&'static str, RecordedEvent)>;

/// Starts the task that writes `events`.
///
/// Once `stop` begins, queued events are written within a second. Begin it last, so that events about the shutdown are
/// written.
pub fn start_sink(events: EventReceiver, client: kube::Client, clock: Clock, metrics: Arc<Metrics>, stop: &Shutdown) {
    let token = stop.clone();
    let sink = EventSink { client, clock, metrics, correlator: EventCorrelator::new() };
    stop.spawn(sink.run(events, token));
}

enum EventWriteResult {
    Written,
    /// Missing event: the server has deleted it.
    Gone,
    /// Rejection by the server, with its reason. A retry would fail, too.
    Refused(String),
    /// Missing response, with its cause.
    Unreachable(String),
}

struct EventSink {
    client: kube::Client,
    clock: Clock,
    metrics: Arc<Metrics>,
    correlator: EventCorrelator,
}

impl EventSink {
    async fn run(mut self, events: EventReceiver, stop: Shutdown) {
        // One limit applies to all queued events, including a write in flight.
        let overdue = async {
            stop.begun().await;
            sleep(FLUSH).await;
        };
        tokio::select! {
            biased;
            () = self.work(events, &stop) => {}
            () = overdue => tracing::warn!("stopped before all events were written"),
        }
    }

    async fn work(&mut self, mut events: EventReceiver, stop: &Shutdown) {
        while let Some(event) = stop.run_until_begun(events.recv()).await {
            let Some((component, event)) = event else { return };
            self.write_correlated(component, event, stop).await;
        }
        events.close();
        while let Some((component, event)) = events.recv().await {
            self.write_correlated(component, event, stop).await;
        }
    }

    async fn write_correlated(&mut self, component: &'static str, event: RecordedEvent, stop: &Shutdown) {
        let now = EventTime { wall: self.clock.wall(), monotonic: self.clock.now() };
        let (identity, event, recount) = match self.correlator.correlate(component, event, now) {
            CorrelationDecision::Drop => return self.count_discarded("spam"),
            CorrelationDecision::Create(identity, event) => (identity, event, false),
            CorrelationDecision::Increment(identity, event) => (identity, event, true),
        };
        let (cause, error) = match self.write_with_retries(&event, recount, stop).await {
            EventWriteResult::Written => return,
            EventWriteResult::Gone => ("refused", "its namespace does not exist".to_owned()),
            EventWriteResult::Refused(error) => ("refused", error),
            EventWriteResult::Unreachable(error) => ("unreachable", error),
        };
        self.correlator.forget(&identity);
        tracing::warn!(reason = event.reason, object = event.involved_object.name, error, "event not written");
        self.count_discarded(cause);
    }

    fn count_discarded(&self, reason: &str) {
        self.metrics.events_discarded_total.with_label_values(&[reason]).inc();
    }

    /// Writes an event, with retries while the server is unreachable, except during a shutdown.
    async fn write_with_retries(&self, event: &CoreEvent, recount: bool, stop: &Shutdown) -> EventWriteResult {
        let mut attempts = 1;
        loop {
            let mut written = if recount { self.patch_count(event).await } else { self.create(event).await };
            if recount && matches!(written, EventWriteResult::Gone) {
                written = self.create(event).await;
            }
            if !matches!(written, EventWriteResult::Unreachable(_)) || attempts == MAX_ATTEMPTS || stop.has_begun() {
                return written;
            }
            attempts += 1;
            // The first pause is random, so that replicas do not retry at the same time.
            let pause = if attempts == 2 { PAUSE.mul_f64(self.clock.chance(&event.metadata.name)) } else { PAUSE };
            stop.run_until_begun(sleep(pause)).await;
        }
    }

    fn api(&self, event: &CoreEvent) -> Api<CoreEvent> {
        Api::namespaced(self.client.clone(), event.metadata.namespace.as_deref().unwrap_or("default"))
    }

    async fn create(&self, event: &CoreEvent) -> EventWriteResult {
        classify_write(timeout(REQUEST, self.api(event).create(&PostParams::default(), event)).await)
    }

    async fn patch_count(&self, event: &CoreEvent) -> EventWriteResult {
        let body = json!({ "count": event.count, "lastTimestamp": event.last_timestamp, "message": event.message });
        let (api, name) = (self.api(event), event.metadata.name.as_deref().unwrap_or_default());
        classify_write(timeout(REQUEST, api.patch(name, &PatchParams::default(), &Patch::Merge(body))).await)
    }
}

fn classify_write(result: Result<kube::Result<CoreEvent>, tokio::time::error::Elapsed>) -> EventWriteResult {
    match result {
        Ok(Ok(_)) => EventWriteResult::Written,
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => EventWriteResult::Gone,
        Ok(Err(kube::Error::Api(status))) => EventWriteResult::Refused(format!("{} ({})", status.message, status.code)),
        Ok(Err(error)) => EventWriteResult::Unreachable(with_causes(&error)),
        Err(_) => EventWriteResult::Unreachable(format!("no answer within {REQUEST:?}")),
    }
}

#[cfg(test)]
mod tests;
