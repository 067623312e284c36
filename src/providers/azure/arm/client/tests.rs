mod arm;

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::{
    providers::azure::arm::{
        TokenError, api,
        budget::{Budget, BudgetSettings, ChargedOperation as Counts},
    },
    runtime::leader_election::LeadershipState as Lead,
    runtime::watch,
};
use arm::{Arm, Barrier, Credential, Fault, HOST, Style};

const LB: &str = "/subscriptions/s/resourceGroups/G/providers/Microsoft.Network/loadBalancers/lb";
const MACHINES: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/machines";
const THROTTLED: &str = r#"{"error":{"code":"SubscriptionRequestsThrottled","message":"m"}}"#;
const BUSY: &str = r#"{"error":{"code":"RetryableError","message":"m","details":[{"code":"RetryableErrorDueToAnotherOperation","message":"The call can be retried in 14 seconds."}]}}"#;

struct World {
    arm: Arm,
    credential: Arc<Credential>,
    barrier: Arc<Barrier>,
    metrics: Arc<Metrics>,
    lead: watch::Sender<Lead>,
    client: ArmClient,
}

fn world() -> World {
    world_behind(None)
}

/// `budget`: instead of the barrier.
fn world_behind(budget: Option<Budget>) -> World {
    let (arm, credential, barrier) = (Arm::default(), Arc::new(Credential::default()), Arc::new(Barrier::default()));
    let metrics = Arc::new(Metrics::new().unwrap());
    let (lead, leadership) = Leadership::channel();
    lead.send_replace(Lead::Unopposed);
    let mut settings = ArmSettings::new(HOST, "agent/1").unwrap();
    settings.backoff.jitter = 0.0;
    let parts = ArmClientDeps {
        transport: Arc::new(arm.clone()),
        tokens: credential.clone(),
        gate: budget.map_or_else(|| barrier.clone() as Arc<dyn RequestGate>, |budget| Arc::new(budget)),
        leadership,
        metrics: Arc::clone(&metrics),
        clock: Clock::manual(Timestamp::UNIX_EPOCH),
    };
    World { arm, credential, barrier, metrics, lead, client: ArmClient::new(settings, parts) }
}

impl World {
    fn set(&self, change: impl FnOnce(&mut arm::State)) {
        change(&mut self.arm.0.lock().unwrap());
    }

    fn fault(&self, part: &'static str, fault: Fault) {
        self.set(|state| state.faults.push_back((part, fault)));
    }

    /// What was sent: `GET /path`.
    fn sent(&self) -> Vec<String> {
        let state = self.arm.0.lock().unwrap();
        let path = |url: &str| url.trim_start_matches(HOST).split('?').next().unwrap_or_default().to_owned();
        state.log.iter().map(|seen| format!("{} {}", seen.method, path(&seen.url))).collect()
    }

    fn header(&self, index: usize, name: &str) -> String {
        let state = self.arm.0.lock().unwrap();
        state.log[index].headers.get(name).map_or("-", |value| value.to_str().unwrap()).to_owned()
    }

    async fn get(&self) -> ArmResult<Value> {
        self.client.get(&api::LOAD_BALANCERS, &lb(), &[]).await
    }

    async fn put(&self, etag: Option<&str>) -> ArmResult<Value> {
        let condition = etag.map_or(Precondition::Unconditional, Precondition::Version);
        self.client.put(&api::LOAD_BALANCERS, &lb(), condition, &json!({"name": "lb", "x": 1})).await
    }

    fn metric(&self, line: &str) -> bool {
        self.metrics.render().unwrap().contains(line)
    }
}

fn lb() -> ResourceId {
    ResourceId::parse(LB).unwrap()
}

fn class<T: std::fmt::Debug>(outcome: ArmResult<T>) -> ArmErrorClass {
    outcome.unwrap_err().class
}

fn answer(status: u16, body: &str) -> Fault {
    Fault::Answer(status, vec![], body.into())
}

#[tokio::test(start_paused = true)]
async fn a_document_is_read_with_the_headers_arm_expects() {
    let world = world();
    world.set(|state| drop(state.documents.insert(LB.into(), json!({"name": "lb"}))));
    assert_eq!(world.client.get::<Value>(&api::LOAD_BALANCERS, &lb(), &[("$expand", "x")]).await.unwrap()["name"], "lb");
    assert_eq!(world.arm.0.lock().unwrap().log[0].url, format!("{HOST}{LB}?api-version=2025-05-01&$expand=x"));
    assert_eq!(
        (world.header(0, "user-agent"), world.header(0, "authorization")),
        ("agent/1".into(), "Bearer token-0".into())
    );
    assert_eq!(world.header(0, "x-ms-client-request-id").len(), 36);
    let labels = r#"{method="get",resource="LoadBalancer",resource_group="g",subscription_id="s"}"#;
    assert!(world.metric(&format!("arm_request_duration_seconds_count{labels} 1")));
}

#[tokio::test(start_paused = true)]
async fn azure_stack_has_versions_of_its_own() {
    let world = world();
    let mut settings = world.client.shared.settings.clone();
    settings.azure_stack = true;
    let ArmClientDeps { transport, tokens, gate, leadership, metrics, clock } = &world.client.shared.deps;
    let (transport, tokens, gate, metrics) = (transport.clone(), tokens.clone(), gate.clone(), metrics.clone());
    let parts = ArmClientDeps { transport, tokens, gate, leadership: leadership.clone(), metrics, clock: *clock };
    let _ = ArmClient::new(settings, parts).get::<Value>(&api::LOAD_BALANCERS, &lb(), &[]).await;
    assert!(world.arm.0.lock().unwrap().log[0].url.ends_with("?api-version=2018-11-01"));
}

#[tokio::test(start_paused = true)]
async fn errors_name_request_code_and_correlation_id() {
    let world = world();
    let error = world.get().await.unwrap_err();
    assert_eq!(error.class, ArmErrorClass::NotFound);
    assert_eq!(error.to_string(), format!("GET {LB}: HTTP 404 ResourceNotFound: ResourceNotFound. (correlation id corr-1)"));
    assert_eq!(world.sent().len(), 1, "not tried again");
    let labels = r#"error_code="ResourceNotFound",method="get",resource="LoadBalancer",resource_group="g",status_code="404",subscription_id="s""#;
    assert!(world.metric(&format!("arm_request_errors_counter_total{{{labels}}} 1")));
}

#[tokio::test(start_paused = true)]
async fn reads_survive_trouble() {
    let world = world();
    world.set(|state| drop(state.documents.insert(LB.into(), json!({"name": "lb"}))));
    for fault in [Fault::NotSent, answer(503, ""), answer(200, "<html>")] {
        world.fault("loadBalancers", fault);
    }
    let started = Instant::now();
    assert_eq!(world.get().await.unwrap()["name"], "lb");
    assert_eq!(started.elapsed().as_millis(), 500 + 1000 + 2000);
    for _ in 0..4 {
        world.fault("loadBalancers", answer(404, "<html>404</html>"));
    }
    assert_eq!(class(world.get().await), ArmErrorClass::MalformedAnswer, "a proxy's 404 says nothing about the machine");
}

#[tokio::test(start_paused = true)]
async fn a_silent_arm_is_given_up_in_time() {
    let world = world();
    for _ in 0..10 {
        world.fault("loadBalancers", Fault::Hang);
    }
    let started = Instant::now();
    assert_eq!(class(world.get().await), ArmErrorClass::Transient);
    assert_eq!(started.elapsed().as_secs(), 180, "the limit of a read");
    let soon = world.client.with_deadline(Instant::now() + Duration::from_secs(5));
    let started = Instant::now();
    assert_eq!(class(soon.get::<Value>(&api::LOAD_BALANCERS, &lb(), &[]).await), ArmErrorClass::Transient);
    assert_eq!(started.elapsed().as_secs(), 5);
    let before = world.sent().len();
    assert_eq!(
        class(soon.delete(&api::LOAD_BALANCERS, &lb(), Precondition::Unconditional).await),
        ArmErrorClass::Transient,
        "the deadline is past"
    );
    assert_eq!(world.sent().len(), before, "nothing was sent");
}

#[tokio::test(start_paused = true)]
async fn a_rejected_token_is_replaced_once() {
    let world = world();
    world.set(|state| drop(state.documents.insert(LB.into(), json!({"name": "lb"}))));
    world.fault("loadBalancers", answer(401, ""));
    world.get().await.unwrap();
    assert_eq!(
        (world.header(0, "authorization"), world.header(1, "authorization")),
        ("Bearer token-0".into(), "Bearer token-1".into())
    );
    world.fault("loadBalancers", answer(401, ""));
    world.fault("loadBalancers", answer(401, ""));
    assert_eq!(class(world.put(None).await), ArmErrorClass::Unauthorized);
    assert_eq!(world.sent().len(), 4, "two tries each, no more");

    *world.credential.auxiliary.lock().unwrap() = Some("other".to_owned());
    world.fault("loadBalancers", answer(401, ""));
    world.get().await.unwrap();
    assert_eq!(world.credential.rejected.lock().unwrap()[3..], ["token-3", "other"], "either may be the one");
}

#[tokio::test(start_paused = true)]
async fn without_a_token_nothing_is_sent() {
    let world = world();
    for (error, class_of_it) in [
        (TokenError::Refused("AADSTS7000215".into()), ArmErrorClass::Unauthorized),
        (TokenError::Unavailable("no route".into()), ArmErrorClass::Transient),
    ] {
        *world.credential.error.lock().unwrap() = Some(error);
        assert_eq!(class(world.get().await), class_of_it);
    }
    assert!(world.sent().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_throttled_request_waits_at_the_gate() {
    let world = world();
    world.set(|state| drop(state.documents.insert(LB.into(), json!({"name": "lb"}))));
    world.fault("loadBalancers", Fault::Answer(429, vec![("retry-after", "40")], THROTTLED.into()));
    let started = Instant::now();
    world.client.with_urgency(Urgency::Change).get::<Value>(&api::LOAD_BALANCERS, &lb(), &[]).await.unwrap();
    assert_eq!(started.elapsed().as_secs(), 40);
    let labels = r#"{method="get",resource="LoadBalancer",resource_group="g",subscription_id="s"} 1"#;
    assert!(world.metric(&format!("arm_request_throttle_counter_total{labels}")));
    assert!(world.metric(&format!("arm_request_rate_limit_counter_total{labels}")));
    let passed = world.barrier.passed.lock().unwrap().clone();
    assert_eq!(
        passed.iter().map(|(charge, urgency)| (charge.operation, *urgency)).collect::<Vec<_>>(),
        [(Counts::Read, Urgency::Change); 2]
    );
}

#[tokio::test(start_paused = true)]
async fn the_budget_pauses_for_a_quota_but_not_for_a_lock() {
    let metrics = Arc::new(Metrics::new().unwrap());
    let budget = Budget::new(BudgetSettings::default(), metrics, Clock::manual(Timestamp::UNIX_EPOCH));
    let world = world_behind(Some(budget));
    world.set(|state| drop(state.documents.insert(LB.into(), json!({"name": "lb"}))));
    let started = Instant::now();
    world.fault("loadBalancers", Fault::Answer(429, vec![], BUSY.into()));
    let (busy, other) = tokio::join!(world.get(), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.get().await.unwrap();
        started.elapsed().as_secs()
    });
    busy.unwrap();
    assert_eq!((other, started.elapsed().as_secs()), (1, 14), "a lock is the matter of who met it");
    world.fault("loadBalancers", Fault::Answer(429, vec![("retry-after", "40")], THROTTLED.into()));
    let (throttled, other) = tokio::join!(world.get(), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.get().await.unwrap();
        started.elapsed().as_secs()
    });
    throttled.unwrap();
    assert_eq!(other, 54, "a quota is everybody's");
}

#[tokio::test(start_paused = true)]
async fn without_a_token_the_budget_stays_as_it_is() {
    let metrics = Arc::new(Metrics::new().unwrap());
    let budget = Budget::new(BudgetSettings::default(), metrics, Clock::manual(Timestamp::UNIX_EPOCH));
    let world = world_behind(Some(budget.clone()));
    *world.credential.error.lock().unwrap() = Some(TokenError::Refused("no".into()));
    for _ in 0..20 {
        assert_eq!(class(world.get().await), ArmErrorClass::Unauthorized);
    }
    for bucket in budget.status()["buckets"].as_array().unwrap() {
        assert_eq!(bucket["left"], bucket["capacity"], "{bucket}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_what_may_have_reached_arm_is_paid_for() {
    let no_token = || Some(TokenError::Refused("no".into()));
    for (fault, error, passed, returned) in [
        (None, None, 1, 0),
        (None, no_token(), 1, 1),
        (Some(Fault::NotSent), None, 2, 1),
        (Some(Fault::NoAnswer), None, 2, 0),
        (Some(Fault::Hang), None, 1, 0),
    ] {
        let world = world();
        world.set(|state| drop(state.documents.insert(LB.into(), json!({"name": "lb"}))));
        let case = format!("{fault:?} {error:?}");
        *world.credential.error.lock().unwrap() = error;
        fault.into_iter().for_each(|fault| world.fault("loadBalancers", fault));
        let _ = tokio::time::timeout(Duration::from_secs(1), world.get()).await;
        let counts = (world.barrier.passed.lock().unwrap().len(), *world.barrier.returned.lock().unwrap());
        assert_eq!(counts, (passed, returned), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_behind_the_deadline_is_the_callers_to_wait_for() {
    let world = world();
    world.fault("loadBalancers", Fault::Answer(429, vec![("retry-after", "200")], THROTTLED.into()));
    let error = world.get().await.unwrap_err();
    assert_eq!((error.class, error.retry_after), (ArmErrorClass::Throttled, Some(Duration::from_secs(200))));
    let started = Instant::now();
    let late = world.get().await.unwrap_err();
    assert_eq!(
        (late.class, late.status, started.elapsed().as_secs()),
        (ArmErrorClass::Throttled, None, 180),
        "held at the gate"
    );
    assert_eq!(world.sent().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn lists_follow_their_pages() {
    let world = world();
    world.set(|state| {
        state.page_size = 2;
        state.documents.extend((0..5).map(|n| (format!("{MACHINES}/{n}"), json!({"name": n}))));
    });
    world.fault("skip=2", answer(500, ""));
    let all: Vec<Value> = world.client.list(&api::VIRTUAL_MACHINES, MACHINES, &[]).await.unwrap();
    assert_eq!(all.iter().map(|one| one["name"].as_i64().unwrap()).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    let mut sizes = Vec::new();
    let take = |page: Vec<Value>| sizes.push(page.len());
    world.client.list_with(&api::VIRTUAL_MACHINES, MACHINES, &[], take).await.unwrap();
    assert_eq!(sizes, [2, 2, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_list_stays_at_its_host_and_ends() {
    let world = world();
    world.set(|state| {
        state.page_size = 2;
        state.documents.extend((0..5).map(|n| (format!("{MACHINES}/{n}"), json!({}))));
        state.next_link = Some("https://evil.example/next".into());
    });
    let list = || world.client.list::<Value>(&api::VIRTUAL_MACHINES, MACHINES, &[]);
    assert_eq!(class(list().await), ArmErrorClass::MalformedAnswer);
    assert_eq!(world.sent().len(), 1, "the fake asserts the host too");
    world.set(|state| state.next_link = Some(format!("{HOST}{MACHINES}?api-version=1&skip=0")));
    let error = list().await.unwrap_err();
    assert!(error.class == ArmErrorClass::MalformedAnswer && error.message.contains("does not end"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_a_list_is_not_an_empty_list() {
    let world = world();
    for body in ["{}", r#"{"value":null}"#, "[]", "", r#"{"value":{}}"#] {
        for _ in 0..4 {
            world.fault("machines", answer(200, body));
        }
        assert_eq!(
            class(world.client.list::<Value>(&api::VIRTUAL_MACHINES, MACHINES, &[]).await),
            ArmErrorClass::MalformedAnswer,
            "{body}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn writes_are_conditional_on_what_was_read() {
    let world = world();
    let first = world.put(None).await.unwrap();
    assert_eq!(world.header(0, "if-match"), "-");
    let etag = first["etag"].as_str().unwrap();
    let second = world.put(Some(etag)).await.unwrap();
    assert_eq!(world.header(1, "if-match"), etag);
    assert_eq!((second["x"].as_i64(), second["etag"].as_str()), (Some(1), Some("W/\"2\"")));
    assert_eq!(class(world.put(Some(etag)).await), ArmErrorClass::Conflict, "somebody wrote meanwhile");
    assert_eq!(world.sent().len(), 3, "a conflict is not tried again here");
    let change = json!({"name": "lb", "tags": {}});
    let changed: Value =
        world.client.patch(&api::LOAD_BALANCERS, &lb(), Precondition::Version("W/\"2\""), &change).await.unwrap();
    assert_eq!((world.header(3, "if-match"), changed["etag"].as_str()), ("W/\"2\"".into(), Some("W/\"3\"")));
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_operation_is_followed_to_its_end() {
    for style in [Style::Immediate, Style::Status, Style::Location, Style::Body] {
        let world = world();
        world.set(|state| (state.style, state.takes) = (style, Duration::from_secs(3)));
        let started = Instant::now();
        let written = world.put(None).await.unwrap();
        assert_eq!(written["properties"]["provisioningState"], "Succeeded", "{style:?}");
        let took = started.elapsed();
        assert!(style == Style::Immediate || (3..5).contains(&took.as_secs()), "{style:?}: {took:?}, Go takes 5 s");
        assert!(world.sent().len() <= 9, "{style:?}: {:?}", world.sent());
        world.client.delete(&api::LOAD_BALANCERS, &lb(), Precondition::Unconditional).await.unwrap();
        assert_eq!(class(world.get().await), ArmErrorClass::NotFound, "{style:?}: deleted");
        let before = world.sent().len();
        world.client.delete(&api::LOAD_BALANCERS, &lb(), Precondition::Unconditional).await.unwrap();
        assert_eq!(world.sent().len(), before + 1, "{style:?}: absent before is success");
        let passed = world.barrier.passed.lock().unwrap();
        let count = |operation| passed.iter().filter(|(charge, _)| charge.operation == operation).count();
        assert_eq!((count(Counts::Write), count(Counts::Delete)), (1, 2), "{style:?}: polls count as reads");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_operation_is_the_error_of_its_write() {
    for style in [Style::Status, Style::Location] {
        let world = world();
        world.set(|state| {
            (state.style, state.takes) = (style, Duration::from_secs(1));
            state.fails_with = Some(json!({"code": "PublicIPCountLimitReached", "message": "no more"}));
        });
        let error = world.put(None).await.unwrap_err();
        assert_eq!(
            (error.class, error.code.as_str()),
            (ArmErrorClass::QuotaExceeded, "PublicIPCountLimitReached"),
            "{style:?}"
        );
        assert_eq!(error.request, format!("PUT {LB}"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_or_unwell_status_url_does_not_lose_the_write() {
    let world = world();
    world.set(|state| (state.style, state.takes, state.forgets_operations) = (Style::Status, Duration::from_secs(3), true));
    assert_eq!(world.put(None).await.unwrap()["properties"]["provisioningState"], "Succeeded");
    world.set(|state| state.forgets_operations = false);
    for _ in 0..12 {
        world.fault("operations", answer(503, ""));
    }
    assert_eq!(world.put(None).await.unwrap()["etag"], "W/\"2\"");
}

#[tokio::test(start_paused = true)]
async fn an_endless_operation_has_an_unknown_outcome() {
    let world = world();
    world.set(|state| (state.style, state.takes) = (Style::Status, Duration::from_secs(86_400)));
    let started = Instant::now();
    assert_eq!(class(world.put(None).await), ArmErrorClass::OutcomeUnknown);
    assert!((880..=900).contains(&started.elapsed().as_secs()));
    assert!(world.sent().len() < 110, "{} polls", world.sent().len());
}

#[tokio::test(start_paused = true)]
async fn writes_are_repeated_only_when_arm_did_not_take_them() {
    let world = world();
    world.fault("loadBalancers", Fault::NotSent);
    world.fault("loadBalancers", Fault::Answer(429, vec![], BUSY.into()));
    world.fault("loadBalancers", Fault::Answer(429, vec![("retry-after", "20")], THROTTLED.into()));
    let started = Instant::now();
    world.put(None).await.unwrap();
    assert_eq!(started.elapsed().as_millis(), 500 + 14_000 + 20_000);
    for (fault, expected) in [
        (Fault::NoAnswer, ArmErrorClass::OutcomeUnknown),
        (Fault::Hang, ArmErrorClass::OutcomeUnknown),
        (answer(504, ""), ArmErrorClass::OutcomeUnknown),
        (answer(500, ""), ArmErrorClass::Transient),
        (answer(400, "<html>"), ArmErrorClass::MalformedAnswer),
    ] {
        let before = world.sent().len();
        world.fault("loadBalancers", fault.clone());
        assert_eq!(class(world.put(None).await), expected, "{fault:?}");
        assert_eq!(world.sent().len(), before + 1, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_try_before_the_deadline_tells_how_it_ended() {
    let world = world();
    let soon = || world.client.with_deadline(Instant::now() + Duration::from_secs(30));
    let (id, document) = (lb(), json!({}));
    world.fault("loadBalancers", Fault::Answer(429, vec![], BUSY.into()));
    world.fault("loadBalancers", Fault::Hang);
    let client = soon();
    let put = client.put(&api::LOAD_BALANCERS, &id, Precondition::Absent, &document).await;
    assert_eq!(class(put), ArmErrorClass::OutcomeUnknown, "the second try may have arrived");
    world.fault("loadBalancers", Fault::Answer(503, vec![("retry-after", "1")], String::new()));
    world.fault("loadBalancers", Fault::Hang);
    let error = soon().get::<Value>(&api::LOAD_BALANCERS, &id, &[]).await.unwrap_err();
    assert_eq!(error.status, Some(503), "what ARM said, not that the time was over");
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_result_cannot_be_read_is_unknown() {
    let world = world();
    world.set(|state| state.style = Style::Status);
    // Faults are taken in order, each by the first request that fits: the poll, then the final read.
    world.fault("operations", answer(200, r#"{"status":"Succeeded"}"#));
    world.fault("loadBalancers", answer(403, ""));
    let error = world.put(None).await.unwrap_err();
    assert_eq!((error.class, error.request.as_str()), (ArmErrorClass::OutcomeUnknown, format!("PUT {LB}").as_str()));
}

#[tokio::test(start_paused = true)]
async fn who_does_not_lead_writes_nothing() {
    let world = world();
    world.lead.send_replace(Lead::Standby);
    assert_eq!(class(world.put(None).await), ArmErrorClass::NotLeader);
    assert_eq!(
        class(world.client.delete(&api::LOAD_BALANCERS, &lb(), Precondition::Unconditional).await),
        ArmErrorClass::NotLeader
    );
    let post = world.client.post::<Value>(&api::LOAD_BALANCERS, &lb(), "migrate", &json!({})).await;
    assert_eq!(class(post), ArmErrorClass::NotLeader);
    assert!(world.sent().is_empty() && world.barrier.passed.lock().unwrap().is_empty());
    assert_eq!(class(world.get().await), ArmErrorClass::NotFound, "reads go on");
}

#[tokio::test(start_paused = true)]
async fn leadership_lost_at_the_gate_stops_the_write() {
    let world = world();
    *world.barrier.closed.lock().unwrap() = Some(Instant::now() + Duration::from_secs(30));
    let (outcome, ()) = tokio::join!(world.put(None), async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        world.lead.send_replace(Lead::Standby);
    });
    assert_eq!(class(outcome), ArmErrorClass::NotLeader);
    assert!(world.sent().is_empty());
}

#[tokio::test(start_paused = true)]
async fn actions_answer_what_they_have() {
    let world = world();
    world.fault("/migrate", answer(200, r#"{"done":true}"#));
    let (id, input) = (lb(), json!({"a": 1}));
    let post = || world.client.post::<Value>(&api::LOAD_BALANCERS, &id, "migrate", &input);
    assert_eq!(post().await.unwrap(), Some(json!({"done": true})));
    world.fault("/migrate", answer(200, ""));
    assert_eq!(post().await.unwrap(), None);
}

#[test]
fn futures_can_be_spawned() {
    fn spawnable<T: Send>(_: T) {}
    let world = world();
    let (client, id, document) = (&world.client, lb(), json!({}));
    spawnable(client.get::<Value>(&api::LOAD_BALANCERS, &id, &[]));
    spawnable(client.list::<Value>(&api::LOAD_BALANCERS, LB, &[]));
    spawnable(client.put::<Value>(&api::LOAD_BALANCERS, &id, Precondition::Absent, &document));
    spawnable(client.delete(&api::LOAD_BALANCERS, &id, Precondition::Unconditional));
}
