mod arm;

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::{
    providers::azure::{
        arm::budget::{Budget, BudgetSettings, ChargedOperation as Counts},
        auth::AuthError,
        model::api,
    },
    runtime::{leader_election::LeadershipState as Lead, watch},
    sandbox::azure::{AsyncStyle, Latencies, Latency},
};
use arm::{Arm, Barrier, Credential, Fault, HOST};

const LB: &str = "/subscriptions/s/resourceGroups/G/providers/Microsoft.Network/loadBalancers/lb";
const MACHINES: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines";
const THROTTLED: &str = r#"{"error":{"code":"SubscriptionRequestsThrottled","message":"m"}}"#;
const NOT_FOUND: &str = r#"{"error":{"code":"ResourceNotFound","message":"m"}}"#;
const BUSY: &str = r#"{"error":{"code":"RetryableError","message":"m","details":[{"code":"RetryableErrorDueToAnotherOperation","message":"The call can be retried in 14 seconds."}]}}"#;

/// Headers of responses to writes: `Azure-AsyncOperation`, and `Location`.
type Style = [bool; 2];

const STATUS: Style = [true, false];
const LOCATION: Style = [false, true];
/// `provisioningState` only.
const BODY: Style = [false, false];

struct ClientSetup {
    arm: Arc<Arm>,
    credential: Arc<Credential>,
    barrier: Arc<Barrier>,
    metrics: Arc<Metrics>,
    lead: watch::Sender<Lead>,
    client: ArmClient,
}

fn setup() -> ClientSetup {
    setup_with(None)
}

/// Returns a client behind `budget`, or else behind the barrier.
fn setup_with(budget: Option<Budget>) -> ClientSetup {
    let (arm, credential, barrier) = (Arc::<Arm>::default(), Arc::<Credential>::default(), Arc::<Barrier>::default());
    let metrics = Arc::new(Metrics::new().unwrap());
    let (lead, leadership) = Leadership::channel();
    lead.send_replace(Lead::Unopposed);
    let mut settings = ArmSettings::new(HOST, "agent/1").unwrap();
    settings.backoff.jitter = 0.0;
    let parts = ArmClientDeps {
        transport: arm.clone(),
        tokens: credential.clone(),
        gate: budget.map_or_else(|| barrier.clone() as Arc<dyn RequestGate>, |budget| Arc::new(budget)),
        leadership,
        metrics: Arc::clone(&metrics),
        clock: Clock::manual(Timestamp::UNIX_EPOCH),
    };
    ClientSetup { arm, credential, barrier, metrics, lead, client: ArmClient::new(settings, parts) }
}

fn budget() -> Budget {
    let metrics = Arc::new(Metrics::new().unwrap());
    Budget::new(BudgetSettings::default(), metrics, Clock::manual(Timestamp::UNIX_EPOCH))
}

impl ClientSetup {
    /// Adds a document that has only a name.
    fn add(&self, id: &str, name: impl Into<Value>) {
        self.arm.azure.put_document(json!({"id": id, "name": name.into()})).unwrap();
    }

    /// Sets the headers and the length of operations.
    fn set_operations(&self, [operation_header, location_header]: Style, seconds: u64) {
        let latency = Latency { respond: Duration::ZERO, operation: Duration::from_secs(seconds) };
        self.arm.azure.with_options(|options| {
            options.latencies = Latencies::writes(latency);
            options.operations = AsyncStyle { operation_header, location_header, retry_after: None, in_documents: true };
        });
    }

    fn fault(&self, part: &'static str, fault: Fault) {
        self.arm.faults.lock().push_back((part, fault));
    }

    /// Returns the sent requests, such as `GET /path`.
    fn sent(&self) -> Vec<String> {
        let log = self.arm.log.lock();
        log.iter().map(|request| format!("{} {}", request.method(), request.uri().path())).collect()
    }

    fn url(&self, index: usize) -> String {
        self.arm.log.lock()[index].uri().to_string()
    }

    fn header(&self, index: usize, name: &str) -> String {
        let log = self.arm.log.lock();
        log[index].headers().get(name).map_or("-", |value| value.to_str().unwrap()).to_owned()
    }

    async fn get(&self) -> ArmResult<Value> {
        self.client.get(&api::LOAD_BALANCERS, &lb(), &[]).await
    }

    async fn put(&self, etag: Option<&str>) -> ArmResult<Value> {
        let condition = etag.map_or(Precondition::Unconditional, Precondition::Version);
        self.client.put(&api::LOAD_BALANCERS, &lb(), condition, &json!({"location": "eastus", "x": 1})).await
    }

    async fn delete(&self) -> ArmResult<()> {
        self.client.delete(&api::LOAD_BALANCERS, &lb(), Precondition::Unconditional).await
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

fn response(status: u16, body: &str) -> Fault {
    Fault::Response(status, vec![], body.into())
}

#[tokio::test(start_paused = true)]
async fn a_document_is_read_with_the_headers_arm_expects() {
    let setup = setup();
    setup.add(LB, "lb");
    assert_eq!(setup.client.get::<Value>(&api::LOAD_BALANCERS, &lb(), &[("$expand", "x")]).await.unwrap()["name"], "lb");
    assert_eq!(setup.url(0), format!("{HOST}{LB}?api-version=2025-05-01&$expand=x"));
    assert_eq!(["user-agent", "authorization"].map(|name| setup.header(0, name)), ["agent/1", "Bearer token-0"]);
    assert_eq!(setup.header(0, "x-ms-client-request-id").len(), 36);
    let labels = r#"{method="get",resource="LoadBalancer",resource_group="g",subscription_id="s"}"#;
    assert!(setup.metric(&format!("arm_request_duration_seconds_count{labels} 1")));
}

#[tokio::test(start_paused = true)]
async fn azure_stack_has_versions_of_its_own() {
    let setup = setup();
    let mut settings = setup.client.shared.settings.clone();
    settings.azure_stack = true;
    let ArmClientDeps { transport, tokens, gate, leadership, metrics, clock } = &setup.client.shared.deps;
    let (transport, tokens, gate, metrics) = (transport.clone(), tokens.clone(), gate.clone(), metrics.clone());
    let parts = ArmClientDeps { transport, tokens, gate, leadership: leadership.clone(), metrics, clock: *clock };
    let _ = ArmClient::new(settings, parts).get::<Value>(&api::LOAD_BALANCERS, &lb(), &[]).await;
    assert!(setup.url(0).ends_with("?api-version=2018-11-01"));
}

#[tokio::test(start_paused = true)]
async fn errors_name_request_code_and_correlation_id() {
    let setup = setup();
    setup.fault("loadBalancers", Fault::Response(404, vec![("x-ms-correlation-request-id", "corr-1")], NOT_FOUND.into()));
    let error = setup.get().await.unwrap_err();
    assert_eq!(error.class, ArmErrorClass::NotFound);
    assert_eq!(error.to_string(), format!("GET {LB}: HTTP 404 ResourceNotFound: m (correlation id corr-1)"));
    assert_eq!(setup.sent().len(), 1, "not retried");
    let labels = r#"error_code="ResourceNotFound",method="get",resource="LoadBalancer",resource_group="g",status_code="404",subscription_id="s""#;
    assert!(setup.metric(&format!("arm_request_errors_counter_total{{{labels}}} 1")));
}

#[tokio::test(start_paused = true)]
async fn reads_are_retried_after_errors() {
    let setup = setup();
    setup.add(LB, "lb");
    for fault in [Fault::NotSent, response(503, ""), response(200, "<html>")] {
        setup.fault("loadBalancers", fault);
    }
    let started = Instant::now();
    assert_eq!(setup.get().await.unwrap()["name"], "lb");
    assert_eq!(started.elapsed().as_millis(), 500 + 1000 + 2000);
    for _ in 0..4 {
        setup.fault("loadBalancers", response(404, "<html>404</html>"));
    }
    assert_eq!(
        class(setup.get().await),
        ArmErrorClass::MalformedAnswer,
        "the 404 of a proxy proves nothing about the resource"
    );
}

#[tokio::test(start_paused = true)]
async fn requests_without_a_response_end_at_the_deadline() {
    let setup = setup();
    for _ in 0..10 {
        setup.fault("loadBalancers", Fault::Hang);
    }
    let started = Instant::now();
    assert_eq!(class(setup.get().await), ArmErrorClass::Transient);
    assert_eq!(started.elapsed().as_secs(), 180, "the limit of a read");
    let soon = setup.client.with_deadline(Instant::now() + Duration::from_secs(5));
    let started = Instant::now();
    assert_eq!(class(soon.get::<Value>(&api::LOAD_BALANCERS, &lb(), &[]).await), ArmErrorClass::Transient);
    assert_eq!(started.elapsed().as_secs(), 5);
    let before = setup.sent().len();
    let late = soon.delete(&api::LOAD_BALANCERS, &lb(), Precondition::Unconditional).await;
    assert_eq!((class(late), setup.sent().len()), (ArmErrorClass::Transient, before), "the deadline is past");
}

#[tokio::test(start_paused = true)]
async fn a_rejected_token_is_replaced_once() {
    let setup = setup();
    setup.add(LB, "lb");
    setup.fault("loadBalancers", response(401, ""));
    setup.get().await.unwrap();
    assert_eq!([0, 1].map(|index| setup.header(index, "authorization")), ["Bearer token-0", "Bearer token-1"]);
    setup.fault("loadBalancers", response(401, ""));
    setup.fault("loadBalancers", response(401, ""));
    assert_eq!(class(setup.put(None).await), ArmErrorClass::Unauthorized);
    assert_eq!(setup.sent().len(), 4, "two attempts each, no more");

    *setup.credential.auxiliary.lock() = Some("other".to_owned());
    setup.fault("loadBalancers", response(401, ""));
    setup.get().await.unwrap();
    assert_eq!(setup.credential.rejected.lock()[3..], ["token-3", "other"], "either token may be the rejected one");
}

#[tokio::test(start_paused = true)]
async fn without_a_token_nothing_is_sent() {
    let setup = setup();
    let (endpoint, message) = ("https://login.example".to_owned(), "no route".to_owned());
    for (error, class_of_it) in [
        (AuthError::configuration("aadClientSecret", "AADSTS7000215"), ArmErrorClass::Unauthorized),
        (AuthError::Unreachable { endpoint, message, retry_after: None }, ArmErrorClass::Transient),
    ] {
        *setup.credential.error.lock() = Some(error);
        assert_eq!(class(setup.get().await), class_of_it);
    }
    assert!(setup.sent().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_throttled_request_waits_at_the_gate() {
    let setup = setup();
    setup.add(LB, "lb");
    setup.fault("loadBalancers", Fault::Response(429, vec![("retry-after", "40")], THROTTLED.into()));
    let started = Instant::now();
    setup.client.with_urgency(Urgency::Change).get::<Value>(&api::LOAD_BALANCERS, &lb(), &[]).await.unwrap();
    assert_eq!(started.elapsed().as_secs(), 40);
    let labels = r#"{method="get",resource="LoadBalancer",resource_group="g",subscription_id="s"} 1"#;
    assert!(setup.metric(&format!("arm_request_throttle_counter_total{labels}")));
    assert!(setup.metric(&format!("arm_request_rate_limit_counter_total{labels}")));
    let passed = setup.barrier.passed.lock();
    let passed: Vec<_> = passed.iter().map(|(charge, urgency)| (charge.operation, *urgency)).collect();
    assert_eq!(passed, [(Counts::Read, Urgency::Change); 2]);
}

#[tokio::test(start_paused = true)]
async fn only_writes_are_charged_to_their_causes() {
    let setup = setup();
    setup.add(LB, "lb");
    let client = setup.client.with_causes(["web"].into_iter().collect());
    client.get::<Value>(&api::LOAD_BALANCERS, &lb(), &[]).await.unwrap();
    client.delete(&api::LOAD_BALANCERS, &lb(), Precondition::Unconditional).await.unwrap();
    let passed = setup.barrier.passed.lock();
    let is_charged = |charge: &RequestCharge| charge.causes != Causes::default();
    assert!(passed.iter().all(|(charge, _)| is_charged(charge) == (charge.operation != Counts::Read)));
    assert!(passed.iter().any(|(charge, _)| is_charged(charge)), "{passed:?}");
}

#[tokio::test(start_paused = true)]
async fn the_budget_pauses_for_a_quota_but_not_for_a_lock() {
    let setup = setup_with(Some(budget()));
    setup.add(LB, "lb");
    for (fault, own, of_another) in [
        (Fault::Response(429, vec![], BUSY.into()), 14, 1),
        (Fault::Response(429, vec![("retry-after", "40")], THROTTLED.into()), 40, 40),
    ] {
        setup.fault("loadBalancers", fault.clone());
        let started = Instant::now();
        let (refused, other) = tokio::join!(setup.get(), async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            setup.get().await.unwrap();
            started.elapsed().as_secs()
        });
        refused.unwrap();
        let case = format!("a lock delays one request, a quota all of them: {fault:?}");
        assert_eq!((started.elapsed().as_secs(), other), (own, of_another), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_requests_that_may_have_reached_arm_cost_tokens() {
    let no_token = || Some(AuthError::configuration("aadClientSecret", "no"));
    for (fault, error, passed, returned) in [
        (None, None, 1, 0),
        (None, no_token(), 1, 1),
        (Some(Fault::NotSent), None, 2, 1),
        (Some(Fault::NoResponse), None, 2, 0),
        (Some(Fault::Hang), None, 1, 0),
    ] {
        let setup = setup();
        setup.add(LB, "lb");
        let case = format!("{fault:?} {error:?}");
        *setup.credential.error.lock() = error;
        fault.into_iter().for_each(|fault| setup.fault("loadBalancers", fault));
        let _ = tokio::time::timeout(Duration::from_secs(1), setup.get()).await;
        let counts = (setup.barrier.passed.lock().len(), *setup.barrier.returned.lock());
        assert_eq!(counts, (passed, returned), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_beyond_the_deadline_is_returned_to_the_caller() {
    let setup = setup();
    setup.fault("loadBalancers", Fault::Response(429, vec![("retry-after", "200")], THROTTLED.into()));
    let error = setup.get().await.unwrap_err();
    assert_eq!((error.class, error.retry_after), (ArmErrorClass::Throttled, Some(Duration::from_secs(200))));
    let started = Instant::now();
    let late = setup.get().await.unwrap_err();
    let result = (late.class, late.status, started.elapsed().as_secs());
    assert_eq!(result, (ArmErrorClass::Throttled, None, 180), "waited at the gate");
    assert_eq!(setup.sent().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn lists_follow_their_pages() {
    let setup = setup();
    setup.arm.azure.with_options(|options| options.page_size = 2);
    (0..5).for_each(|number| setup.add(&format!("{MACHINES}/{number}"), number));
    setup.fault("skiptoken", response(500, ""));
    let all: Vec<Value> = setup.client.list(&api::VIRTUAL_MACHINES, MACHINES, &[]).await.unwrap();
    assert_eq!(all.iter().map(|machine| machine["name"].as_i64().unwrap()).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    let mut sizes = Vec::new();
    let take = |page: Vec<Value>| sizes.push(page.len());
    setup.client.list_with(&api::VIRTUAL_MACHINES, MACHINES, &[], take).await.unwrap();
    assert_eq!(sizes, [2, 2, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_list_follows_links_of_its_host_only_and_ends() {
    let setup = setup();
    let list = || setup.client.list::<Value>(&api::VIRTUAL_MACHINES, MACHINES, &[]);
    let add_page = |link: &str| {
        setup.fault("virtualMachines", response(200, &json!({"value": [], "nextLink": link}).to_string()));
    };
    add_page("https://evil.example/next");
    assert_eq!(class(list().await), ArmErrorClass::MalformedAnswer);
    assert_eq!(setup.sent().len(), 1, "the fake asserts the host too");
    (0..2).for_each(|_| add_page(&format!("{HOST}{MACHINES}?api-version=1&skip=0")));
    let error = list().await.unwrap_err();
    assert!(error.class == ArmErrorClass::MalformedAnswer && error.message.contains("does not end"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_malformed_list_is_not_an_empty_list() {
    let setup = setup();
    for body in ["{}", r#"{"value":null}"#, "[]", "", r#"{"value":{}}"#] {
        for _ in 0..4 {
            setup.fault("virtualMachines", response(200, body));
        }
        let listed = setup.client.list::<Value>(&api::VIRTUAL_MACHINES, MACHINES, &[]).await;
        assert_eq!(class(listed), ArmErrorClass::MalformedAnswer, "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn writes_are_conditional_on_what_was_read() {
    let setup = setup();
    let first = setup.put(None).await.unwrap();
    assert_eq!(setup.header(0, "if-match"), "-");
    let etag = first["etag"].as_str().unwrap();
    let second = setup.put(Some(etag)).await.unwrap();
    assert_eq!(setup.header(1, "if-match"), etag);
    let newer = second["etag"].as_str().unwrap();
    assert!(second["x"] == 1 && newer != etag, "{second}");
    assert_eq!(class(setup.put(Some(etag)).await), ArmErrorClass::Conflict, "another writer changed it meanwhile");
    assert_eq!(setup.sent().len(), 3, "a conflict is not retried here");
    let change = json!({"tags": {"a": "b"}});
    let changed: Value =
        setup.client.patch(&api::LOAD_BALANCERS, &lb(), Precondition::Version(newer), &change).await.unwrap();
    assert_eq!(setup.header(3, "if-match"), newer);
    assert!(changed["x"] == 1 && changed["tags"]["a"] == "b" && changed["etag"] != newer, "{changed}");
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_operation_is_followed_to_its_end() {
    for (style, seconds) in [(STATUS, 0), (STATUS, 3), (LOCATION, 3), (BODY, 3)] {
        let setup = setup();
        setup.set_operations(style, seconds);
        let started = Instant::now();
        let written = setup.put(None).await.unwrap();
        assert_eq!(written["properties"]["provisioningState"], "Succeeded", "{style:?}");
        let took = started.elapsed();
        assert!((seconds..seconds + 2).contains(&took.as_secs()), "{style:?}: {took:?}, Go takes 5 s");
        assert!(setup.sent().len() <= 9, "{style:?}: {:?}", setup.sent());
        setup.delete().await.unwrap();
        assert_eq!(class(setup.get().await), ArmErrorClass::NotFound, "{style:?}: deleted");
        let before = setup.sent().len();
        setup.fault("loadBalancers", response(404, NOT_FOUND));
        setup.delete().await.unwrap();
        assert_eq!(setup.sent().len(), before + 1, "{style:?}: absent before is success");
        let passed = setup.barrier.passed.lock();
        let count = |operation| passed.iter().filter(|(charge, _)| charge.operation == operation).count();
        assert_eq!((count(Counts::Write), count(Counts::Delete)), (1, 2), "{style:?}: polls count as reads");
    }
}

#[tokio::test(start_paused = true)]
async fn an_endless_operation_has_an_unknown_outcome() {
    let setup = setup();
    setup.set_operations(STATUS, 86_400);
    let started = Instant::now();
    assert_eq!(class(setup.put(None).await), ArmErrorClass::OutcomeUnknown);
    assert!((880..=900).contains(&started.elapsed().as_secs()));
    assert!(setup.sent().len() < 110, "{} polls", setup.sent().len());
}

#[tokio::test(start_paused = true)]
async fn writes_are_retried_only_if_arm_did_not_execute_them() {
    let setup = setup();
    setup.fault("loadBalancers", Fault::NotSent);
    setup.fault("loadBalancers", Fault::Response(429, vec![], BUSY.into()));
    setup.fault("loadBalancers", Fault::Response(429, vec![("retry-after", "20")], THROTTLED.into()));
    let started = Instant::now();
    setup.put(None).await.unwrap();
    assert_eq!(started.elapsed().as_millis(), 500 + 14_000 + 20_000);
    for (fault, expected) in [
        (Fault::NoResponse, ArmErrorClass::OutcomeUnknown),
        (Fault::Hang, ArmErrorClass::OutcomeUnknown),
        (response(504, ""), ArmErrorClass::OutcomeUnknown),
        (response(500, ""), ArmErrorClass::Transient),
        (response(400, "<html>"), ArmErrorClass::MalformedAnswer),
    ] {
        let before = setup.sent().len();
        setup.fault("loadBalancers", fault.clone());
        assert_eq!(class(setup.put(None).await), expected, "{fault:?}");
        assert_eq!(setup.sent().len(), before + 1, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_most_informative_error_is_returned_at_the_deadline() {
    let setup = setup();
    let soon = || setup.client.with_deadline(Instant::now() + Duration::from_secs(30));
    let (id, document) = (lb(), json!({}));
    setup.fault("loadBalancers", Fault::Response(429, vec![], BUSY.into()));
    setup.fault("loadBalancers", Fault::Hang);
    let client = soon();
    let put = client.put(&api::LOAD_BALANCERS, &id, Precondition::Absent, &document).await;
    assert_eq!(class(put), ArmErrorClass::OutcomeUnknown, "the second attempt may have arrived");
    setup.fault("loadBalancers", Fault::Response(503, vec![("retry-after", "1")], String::new()));
    setup.fault("loadBalancers", Fault::Hang);
    let error = soon().get::<Value>(&api::LOAD_BALANCERS, &id, &[]).await.unwrap_err();
    assert_eq!(error.status, Some(503), "the error of ARM, not the timeout");
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_result_is_an_unknown_outcome() {
    let setup = setup();
    setup.set_operations(STATUS, 3);
    // Each fault applies to the first request that matches, in order: the poll, then the final read.
    setup.fault("operations", response(200, r#"{"status":"Succeeded"}"#));
    setup.fault("loadBalancers", response(403, ""));
    let error = setup.put(None).await.unwrap_err();
    assert_eq!((error.class, error.request.as_str()), (ArmErrorClass::OutcomeUnknown, format!("PUT {LB}").as_str()));
}

#[tokio::test(start_paused = true)]
async fn a_standby_writes_nothing() {
    let setup = setup();
    setup.lead.send_replace(Lead::Standby);
    assert_eq!(class(setup.put(None).await), ArmErrorClass::NotLeader);
    assert_eq!(class(setup.delete().await), ArmErrorClass::NotLeader);
    let post = setup.client.post::<Value>(&api::LOAD_BALANCERS, &lb(), "migrate", &json!({})).await;
    assert_eq!(class(post), ArmErrorClass::NotLeader);
    assert!(setup.sent().is_empty() && setup.barrier.passed.lock().is_empty());
    assert_eq!(class(setup.get().await), ArmErrorClass::NotFound, "reads are still sent");
}

#[tokio::test(start_paused = true)]
async fn leadership_lost_at_the_gate_stops_the_write() {
    let setup = setup();
    *setup.barrier.closed.lock() = Some(Instant::now() + Duration::from_secs(30));
    let (outcome, ()) = tokio::join!(setup.put(None), async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        setup.lead.send_replace(Lead::Standby);
    });
    assert_eq!(class(outcome), ArmErrorClass::NotLeader);
    assert!(setup.sent().is_empty());
}

#[tokio::test(start_paused = true)]
async fn actions_return_their_result_if_any() {
    let setup = setup();
    setup.fault("/migrate", response(200, r#"{"done":true}"#));
    let (id, input) = (lb(), json!({"a": 1}));
    let post = || setup.client.post::<Value>(&api::LOAD_BALANCERS, &id, "migrate", &input);
    assert_eq!(post().await.unwrap(), Some(json!({"done": true})));
    setup.fault("/migrate", response(200, ""));
    assert_eq!(post().await.unwrap(), None);
}
