//! Writes events. In: what recorders queued. Out: core/v1 Events, created or counted up as [`super::correlator`] decides.
//!
//! Any replica writes, leading or not: a standby has things to say about the election. Upstream: client-go `tools/record/event.go`.

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
    Event,
    correlator::{Correlator, Decision, Moment},
};
use crate::{
    metrics::Metrics,
    runtime::{client::with_causes, clock::Clock, shutdown::Shutdown},
};

/// Tries per event while the API server cannot be reached.
const TRIES: u32 = 12;
/// Pause between them.
const PAUSE: Duration = Duration::from_secs(10);
/// How long a shutdown waits for what is queued.
const FLUSH: Duration = Duration::from_secs(1);
/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(30);

type Queue = mpsc::Receiver<(&'static str, Event)>;

/// Writes what comes out of `events`. Once `stop` begins, what is queued is written within a second; begin it last, so that
/// events about the shutdown still get out.
pub fn start_sink(events: Queue, client: kube::Client, clock: Clock, metrics: Arc<Metrics>, stop: &Shutdown) {
    let token = stop.clone();
    let sink = Sink { client, clock, metrics, correlator: Correlator::new() };
    stop.spawn(sink.run(events, token));
}

enum Written {
    Yes,
    /// The server has no such event.
    Gone,
    /// The server refused; trying again would not help.
    Refused(String),
    /// No answer.
    Unreachable(String),
}

struct Sink {
    client: kube::Client,
    clock: Clock,
    metrics: Arc<Metrics>,
    correlator: Correlator,
}

impl Sink {
    async fn run(mut self, events: Queue, stop: Shutdown) {
        // One limit for everything, a write under way included.
        let overdue = async {
            stop.begun().await;
            sleep(FLUSH).await;
        };
        tokio::select! {
            () = self.work(events, &stop) => {}
            () = overdue => tracing::warn!("stopped before all events were written"),
        }
    }

    async fn work(&mut self, mut events: Queue, stop: &Shutdown) {
        loop {
            tokio::select! {
                biased;
                () = stop.begun() => break,
                event = events.recv() => match event {
                    Some((component, event)) => self.take(component, event, stop).await,
                    None => return,
                },
            }
        }
        events.close();
        while let Some((component, event)) = events.recv().await {
            self.take(component, event, stop).await;
        }
    }

    async fn take(&mut self, component: &'static str, event: Event, stop: &Shutdown) {
        let now = Moment { wall: self.clock.wall(), monotonic: self.clock.now() };
        let (identity, event, recount) = match self.correlator.judge(component, event, now) {
            Decision::Drop => return self.discarded("spam"),
            Decision::Create(identity, event) => (identity, event, false),
            Decision::Recount(identity, event) => (identity, event, true),
        };
        let refused = match self.write_patiently(&event, recount, stop).await {
            Written::Yes => return,
            Written::Gone => ("refused", "its namespace does not exist".to_owned()),
            Written::Refused(error) => ("refused", error),
            Written::Unreachable(error) => ("unreachable", error),
        };
        self.correlator.forget(&identity);
        let (why, error) = refused;
        tracing::warn!(reason = event.reason, object = event.involved_object.name, error, "event not written");
        self.discarded(why);
    }

    fn discarded(&self, why: &str) {
        self.metrics.events_discarded_total.with_label_values(&[why]).inc();
    }

    /// Tries again while the server cannot be reached, but not during a shutdown.
    async fn write_patiently(&self, event: &CoreEvent, recount: bool, stop: &Shutdown) -> Written {
        let mut tries = 1;
        loop {
            let mut written = if recount { self.recount(event).await } else { self.create(event).await };
            if recount && matches!(written, Written::Gone) {
                written = self.create(event).await;
            }
            if !matches!(written, Written::Unreachable(_)) || tries == TRIES || stop.has_begun() {
                return written;
            }
            tries += 1;
            // The first pause is random, so that replicas do not all come back at once.
            let pause = if tries == 2 { PAUSE.mul_f64(rand::random()) } else { PAUSE };
            tokio::select! {
                () = stop.begun() => {}
                () = sleep(pause) => {}
            }
        }
    }

    fn api(&self, event: &CoreEvent) -> Api<CoreEvent> {
        Api::namespaced(self.client.clone(), event.metadata.namespace.as_deref().unwrap_or("default"))
    }

    async fn create(&self, event: &CoreEvent) -> Written {
        answer(timeout(REQUEST, self.api(event).create(&PostParams::default(), event)).await)
    }

    async fn recount(&self, event: &CoreEvent) -> Written {
        let body = json!({ "count": event.count, "lastTimestamp": event.last_timestamp, "message": event.message });
        let (api, name) = (self.api(event), event.metadata.name.as_deref().unwrap_or_default());
        answer(timeout(REQUEST, api.patch(name, &PatchParams::default(), &Patch::Merge(body))).await)
    }
}

fn answer(result: Result<kube::Result<CoreEvent>, tokio::time::error::Elapsed>) -> Written {
    match result {
        Ok(Ok(_)) => Written::Yes,
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Written::Gone,
        Ok(Err(kube::Error::Api(status))) => Written::Refused(format!("{} ({})", status.message, status.code)),
        Ok(Err(error)) => Written::Unreachable(with_causes(&error)),
        Err(_) => Written::Unreachable(format!("no answer within {REQUEST:?}")),
    }
}

#[cfg(test)]
mod tests;
