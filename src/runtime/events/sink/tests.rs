#![cfg(feature = "sandbox")]

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;

use super::*;
use crate::{
    runtime::events::{EventRecorder, EventType},
    sandbox::{
        api_server::ApiServer,
        faults::{Crash, any, on},
        http::Verb,
    },
};

const NAMESPACE: &str = "kube-system";

struct Running {
    server: ApiServer,
    recorder: EventRecorder,
    metrics: Arc<Metrics>,
    stop: Shutdown,
}

fn start() -> Running {
    let clock = Clock::manual(Timestamp::from_second(1_700_000_000).unwrap());
    let (server, metrics, stop) = (ApiServer::new(clock), Arc::new(Metrics::new().unwrap()), Shutdown::new());
    let (recorder, events) = EventRecorder::channel("tester");
    start_sink(events, server.client(), clock, Arc::clone(&metrics), &stop);
    Running { server, recorder, metrics, stop }
}

impl Running {
    fn record(&self, message: &str) {
        let about =
            ObjectReference { name: Some("web".into()), namespace: Some(NAMESPACE.into()), ..ObjectReference::default() };
        let event = RecordedEvent { about, type_: EventType::Warning, reason: "Tested", message: message.into() };
        self.recorder.record(event);
    }

    fn discarded(&self, reason: &str) -> f64 {
        self.metrics.events_discarded_total.with_label_values(&[reason]).get()
    }

    fn sent(&self) -> Vec<(Verb, u16)> {
        self.server.requests().iter().map(|request| (request.verb, request.code)).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn repeated_events_are_patched_and_deleted_ones_recreated() {
    let sink = start();
    sink.record("hello");
    sink.server.wait_until(|server| !server.requests().is_empty()).await;
    let name = sink.server.list::<CoreEvent>()[0].metadata.name.clone().unwrap();
    assert!(name.starts_with("web."), "{name}");
    assert!(sink.server.delete::<CoreEvent>(NAMESPACE, &name));
    sink.record("hello");
    sink.record("hello");
    sink.stop.begin();
    assert!(sink.stop.drain(Duration::from_secs(2)).await);
    let sent = [(Verb::Create, 201), (Verb::Patch, 404), (Verb::Create, 201), (Verb::Patch, 200)];
    assert_eq!(sink.sent(), sent);
    assert_eq!(sink.server.get::<CoreEvent>(NAMESPACE, &name).unwrap().count, Some(3));
}

#[tokio::test(start_paused = true)]
async fn unreachable_servers_get_twelve_attempts_and_refusals_one() {
    let sink = start();
    sink.server.faults().crash_after(1, Crash::BeforeEffect);
    sink.record("lost");
    sleep(Duration::from_secs(111)).await;
    assert_eq!((sink.sent().len(), sink.discarded("unreachable")), (12, 1.0));
    sink.server.faults().recover();
    sink.server.faults().fail_next(1, 403, on(Verb::Create, "events"));
    sink.record("forbidden");
    sleep(Duration::from_secs(1)).await;
    assert_eq!((sink.sent().len(), sink.discarded("refused")), (13, 1.0));
    sink.record("forbidden");
    sleep(Duration::from_secs(1)).await;
    let counts: Vec<_> = sink.server.list::<CoreEvent>().iter().map(|event| event.count).collect();
    assert_eq!(counts, [Some(1)], "an event that was never written is created");
}

#[tokio::test(start_paused = true)]
async fn spam_is_counted_and_not_sent() {
    let sink = start();
    (0..30).for_each(|_| sink.record("hello"));
    sleep(Duration::from_secs(1)).await;
    assert_eq!((sink.sent().len(), sink.discarded("spam")), (25, 5.0));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_a_silent_server() {
    let sink = start();
    sink.server.faults().hang_every(any);
    sink.record("hello");
    sleep(Duration::from_secs(5)).await;
    sink.stop.begin();
    assert!(sink.stop.drain(Duration::from_millis(1500)).await);
}
