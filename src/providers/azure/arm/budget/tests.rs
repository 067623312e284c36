use futures::future::join_all;
use http::{HeaderValue, Method};
use tokio::{task::JoinHandle, time::timeout};

use super::*;
use crate::providers::azure::model::api;

const LB: &str = "/subscriptions/S/resourceGroups/g/providers/Microsoft.Network/loadBalancers/l";

fn budget() -> Budget {
    Budget::new(BudgetSettings::default(), Arc::new(Metrics::new().unwrap()), Clock::System)
}

fn write() -> RequestCharge {
    RequestCharge::of(&api::LOAD_BALANCERS, &Method::PUT, LB)
}

fn group_read() -> RequestCharge {
    RequestCharge::of(&api::RESOURCE_GROUPS, &Method::GET, "/subscriptions/S/resourcegroups/g")
}

fn spawn(budget: &Budget, charge: RequestCharge, urgency: Urgency) -> JoinHandle<Duration> {
    let budget = budget.clone();
    tokio::spawn(async move { budget.acquire(&charge, urgency).await })
}

fn assert_metric(budget: &Budget, line: &str) {
    let metrics = budget.shared.metrics.render().unwrap();
    assert!(metrics.contains(&format!("azure_arm_budget_{line}")), "{line}: {metrics}");
}

/// Returns the waits of `count` concurrent callers, in milliseconds.
async fn waits(budget: &Budget, count: usize, charge: fn() -> RequestCharge, urgency: Urgency) -> Vec<u128> {
    let waits = join_all((0..count).map(|_| spawn(budget, charge(), urgency))).await;
    waits.into_iter().map(|wait| wait.unwrap().as_millis()).collect()
}

fn headers(name: &'static str, value: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(http::HeaderName::from_static(name), HeaderValue::from_static(value))])
}

#[tokio::test(start_paused = true)]
async fn a_429_pauses_only_its_bucket_once_for_all_callers() {
    let budget = budget();
    for _ in 0..3 {
        budget.observe(&write(), 429, &headers("retry-after", "30"), "TooManyRequests");
    }
    let read = RequestCharge::of(&api::LOAD_BALANCERS, &Method::GET, LB);
    assert_eq!(budget.acquire(&read, Urgency::Resync).await, Duration::ZERO);
    let waits = waits(&budget, 3, write, Urgency::Change).await;
    assert_eq!(waits, [30_000, 30_600, 31_200], "one at the end of the pause, the others at the refill");
    assert_metric(&budget, "pauses_total{bucket=\"network-writes\",subscription_id=\"s\"} 1");
    assert_metric(&budget, "paused_seconds_total{bucket=\"network-writes\",subscription_id=\"s\"} 30");
    assert_metric(&budget, "wait_seconds_sum{bucket=\"network-writes\",urgency=\"change\"} 91.8");
}

#[tokio::test(start_paused = true)]
async fn the_delay_names_the_quota_while_requests_wait() {
    let budget = budget();
    budget.observe(&write(), 429, &headers("retry-after", "30"), "TooManyRequests");
    assert_eq!(budget.delay("web"), None, "no request waits");
    let (start, waiting) = (Instant::now(), spawn(&budget, write(), Urgency::Change));
    tokio::time::sleep(Duration::from_secs(10)).await;
    let delay = budget.delay("web").unwrap();
    assert_eq!((delay.quota.as_str(), delay.subscription.as_str()), ("network-writes", "s"));
    assert_eq!(delay.until, start + Duration::from_secs(30));
    waiting.await.unwrap();
    assert_eq!(budget.delay("web"), None);
}

/// Returns the charge of a load balancer's write that Services of `namespace` cause.
fn write_of(namespace: &str) -> RequestCharge {
    RequestCharge { causes: [namespace].into_iter().collect(), ..write() }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_beyond_its_share_leaves_a_reserve() {
    let budget = budget();
    let writes = |count| join_all((0..count).map(|_| spawn(&budget, write_of("noisy"), Urgency::Change)));
    let [noisy, quiet] = ["noisy", "quiet"].map(|namespace| RequestCharge::permit("S", namespace));
    assert!(!budget.enter(&noisy, Urgency::Change, &|| panic!("not counted while enough is left")).await);
    writes(340).await;
    assert!(!budget.enter(&noisy, Urgency::Change, &|| 60).await, "six writes for each Service are its share");
    assert!(budget.enter(&noisy, Urgency::Change, &|| 20).await, "more than the reserve is left");
    writes(120).await;
    let (start, waiting) = (Instant::now(), budget.clone());
    let waiting = tokio::spawn(async move { waiting.enter(&noisy, Urgency::Change, &|| 20).await });
    tokio::time::sleep(Duration::from_secs(60)).await;
    let delay = budget.delay("noisy").unwrap();
    assert_eq!((delay.quota.as_str(), delay.share_since), ("network-writes", Some(start)));
    assert_eq!(budget.delay("quiet"), None);
    assert!(!budget.enter(&quiet, Urgency::Change, &|| 1).await);
    assert_eq!(budget.acquire(&write_of("quiet"), Urgency::Change).await, Duration::ZERO);
    assert!(!waiting.is_finished());
    assert!(waiting.await.unwrap(), "the window has room again");
}

#[tokio::test(start_paused = true)]
async fn unsent_writes_are_not_charged() {
    let (budget, charge) = (budget(), write_of("web"));
    let used = || budget.shared.state.lock().buckets.usage.of_causes(&charge.causes, Instant::now());
    budget.acquire(&charge, Urgency::Change).await;
    assert_eq!(used(), 1_000);
    budget.give_back(&charge, Instant::now());
    assert_eq!(used(), 0);
    for bucket in budget.status().buckets {
        assert_eq!(bucket.remaining, bucket.capacity, "{bucket:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn long_waits_are_logged_once_a_minute() {
    let (mut state, start) = (BudgetState::default(), Instant::now());
    let mut logged = |second, wait| {
        let now = start + Duration::from_secs(second);
        let delay = RequestDelay {
            quota: "q".into(),
            subscription: "s".into(),
            until: now + Duration::from_secs(wait),
            share_since: None,
        };
        state.log(&delay, now);
        state.logged == Some(now)
    };
    let lines = [(0, 4), (1, 30), (2, 30), (60, 30), (61, 4), (62, 30)].map(|(second, wait)| logged(second, wait));
    assert_eq!(lines, [false, true, false, false, false, true]);
}

#[tokio::test(start_paused = true)]
async fn the_same_settings_keep_the_state() {
    let budget = budget();
    budget.observe(&write(), 429, &headers("retry-after", "30"), "TooManyRequests");
    let renewed = |settings| Budget::renewed(Some(&budget), settings, &budget.shared.metrics, Clock::System);
    let same = renewed(BudgetSettings::default());
    assert_eq!(same.acquire(&write(), Urgency::Change).await, Duration::from_secs(30));
    let other = renewed(BudgetSettings { share_percent: 10, ..BudgetSettings::default() });
    assert_eq!(other.status().share_percent, 10);
}

#[tokio::test(start_paused = true)]
async fn usage_by_other_clients_slows_requests_down() {
    let budget = budget();
    budget.observe(&group_read(), 200, &headers("x-ms-ratelimit-remaining-subscription-reads", "4"), "");
    let waits = waits(&budget, 4, group_read, Urgency::Shared).await;
    assert_eq!(waits, [0, 0, 40, 80], "all but two of the remaining tokens, then the refill");
    assert_eq!(budget.acquire(&group_read(), Urgency::Node).await.as_millis(), 280, "the less urgent leave eight");
}

#[tokio::test(start_paused = true)]
async fn a_raised_quota_admits_waiting_callers() {
    let (budget, machine) = (budget(), "/subscriptions/S/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/a");
    let read = || RequestCharge::of(&api::VIRTUAL_MACHINES, &Method::GET, machine);
    budget.observe(&read(), 200, &headers("x-ms-ratelimit-remaining-resource", "Microsoft.Compute/GetVMResource;0"), "");
    let waits = (0..8).map(|_| spawn(&budget, read(), Urgency::Change)).collect::<Vec<_>>();
    tokio::time::sleep(Duration::from_millis(100)).await;
    budget.observe(&read(), 200, &headers("x-ms-ratelimit-remaining-resource", "Microsoft.Compute/GetVMResource;30"), "");
    let waits = join_all(waits).await;
    let longest = waits.into_iter().map(|wait| wait.unwrap().as_millis()).max();
    assert_eq!(longest, Some(100), "immediately, not when the next token was due");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_caller_leaves_the_queue() {
    let budget = budget();
    budget.observe(&write(), 429, &headers("retry-after", "5"), "");
    assert!(timeout(Duration::from_secs(2), budget.acquire(&write(), Urgency::Change)).await.is_err());
    assert!(budget.status().buckets[0].waiting.is_empty());
    assert_eq!(budget.acquire(&write(), Urgency::Resync).await.as_secs(), 3, "the first token after the pause");
}

#[tokio::test(start_paused = true)]
async fn tokens_of_a_caller_cancelled_after_admission_return() {
    let budget = budget();
    budget.observe(&write(), 429, &headers("retry-after", "5"), "");
    let owner = budget.clone();
    let mut cancelled = Box::pin(async move { owner.acquire(&write(), Urgency::Change).await });
    assert!(futures::poll!(&mut cancelled).is_pending());
    let waiting = spawn(&budget, write(), Urgency::Resync);
    // The driver admits the first caller, which is not polled again.
    tokio::time::sleep(Duration::from_millis(5100)).await;
    assert!(!waiting.is_finished());
    drop(cancelled);
    assert_eq!(waiting.await.unwrap().as_millis(), 5100);
}

#[tokio::test(start_paused = true)]
async fn the_status_page_shows_buckets_and_waiting_callers() {
    let budget = budget();
    budget.observe(&write(), 429, &headers("retry-after", "30"), "");
    let waiting: Vec<_> =
        [Urgency::Change, Urgency::Resync, Urgency::Resync].map(|urgency| spawn(&budget, write(), urgency)).into();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let page = serde_json::json!(budget.status());
    let bucket = &page["buckets"][0];
    assert_eq!(
        (&page["sharePercent"], &bucket["bucket"], &bucket["subscription"]),
        (&50.into(), &"network-writes".into(), &"s".into())
    );
    assert_eq!((&bucket["capacity"], &bucket["pausedForSeconds"]), (&500.0.into(), &20.0.into()));
    assert_eq!(bucket["waiting"], serde_json::json!({"change": 1, "resync": 2}));
    let arm = RequestCharge::of(&api::RESOURCE_GROUPS, &Method::GET, "/subscriptions/S/resourcegroups/g");
    assert_eq!(budget.acquire(&arm, Urgency::Change).await, Duration::ZERO);
    let page = serde_json::json!(budget.status());
    let rows = page["buckets"].as_array().unwrap();
    let shares = |name: &str| {
        let row = rows.iter().find(|row| row["bucket"] == name).unwrap();
        (row["sharePercent"].clone(), row["capacity"].clone(), row["refillPerSecond"].clone(), row["sharedWith"].clone())
    };
    let all = "all clients of the subscription in this region";
    assert_eq!(shares("network-writes"), (50.0.into(), 500.0.into(), 1.667.into(), all.into()));
    let own = "clients with the same identity";
    assert_eq!(shares("subscription-reads"), (100.0.into(), 250.0.into(), 25.0.into(), own.into()));
    waiting.iter().for_each(JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn the_driver_ends_when_all_buckets_are_full() {
    let budget = budget();
    budget.acquire(&group_read(), Urgency::Node).await;
    assert!(budget.shared.state.lock().driver.is_some());
    tokio::time::sleep(REFRESH * 3).await;
    assert!(budget.shared.state.lock().driver.is_none());
    assert_metric(&budget, "tokens{bucket=\"subscription-reads\",subscription_id=\"s\"} 250");
    assert_metric(&budget, "capacity{bucket=\"subscription-reads\",subscription_id=\"s\"} 250");
    assert_eq!(budget.acquire(&group_read(), Urgency::Node).await, Duration::ZERO, "and starts again");
}
