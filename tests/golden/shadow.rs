//! A shadow manager next to a writing manager, for an hour: it sends no writes, and its report is correct.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cloud_controller_manager::{
    app::manager::ClientSource,
    runtime::leader_election::Leadership,
    sandbox::{api_server::ApiServer, azure::Class},
};
use k8s_openapi::api::core::v1::Service;

use crate::golden::{cluster_plans::planned, corpus::case, replica::Replica, stage::Stage};

const SHADOW: &str = "the-shadow";
const KINDS: [&str; 8] =
    ["load_balancer", "public_ip", "security_group", "backend_pool", "service", "node", "leftovers", "unread"];

/// Clients whose requests differ from those of the writing manager by their user agent.
struct Marked(ApiServer);

impl ClientSource for Marked {
    fn component(&self, _: &str) -> Result<kube::Client, kube::Error> {
        Ok(self.0.client_as(SHADOW))
    }
    fn controller(&self, account: &str, _: &Leadership) -> Result<kube::Client, kube::Error> {
        self.component(account)
    }
    fn watches(&self) -> Result<kube::Client, kube::Error> {
        self.component("")
    }
}

fn azure_writes(stage: &Stage) -> usize {
    stage.azure().count(|request| matches!(request.class, Class::Write | Class::Delete))
}

/// Returns the number of the shadow's requests to the API server, and of its writes among them.
fn shadow_requests(stage: &Stage) -> (usize, usize) {
    let all: Vec<_> = stage.server.requests().into_iter().filter(|request| request.user_agent.contains(SHADOW)).collect();
    let reads = |verb: &str| matches!(verb, "get" | "list" | "watch");
    (all.len(), all.iter().filter(|request| !reads(request.verb.as_str())).count())
}

/// Changes the port of a Service.
fn set_port(stage: &Stage, port: i32) {
    stage.server.update_with("default", "svc04-int", |service: &mut Service| {
        let ports = service.spec.as_mut().and_then(|spec| spec.ports.as_mut());
        ports.into_iter().flatten().take(1).for_each(|found| found.port = port);
    });
}

#[tokio::test(start_paused = true)]
async fn a_shadow_manager_writes_nothing_and_reports_the_difference() {
    let case = case("azure-lb/takeover-50");
    let last = case.steps.len() - 1;
    let stage = Stage::after(case, last);
    let config = stage.config_after(case, last);
    let writer = stage.start(&config, &case.flags);
    stage.settled().await;
    let mut flags = case.flags.clone();
    flags.push("--dry-run".to_owned());
    let (mut deps, files) = stage.manager_deps(&config, &flags);
    deps.clients = Arc::new(Marked(stage.server.clone()));
    let shadow = Replica::start((deps, files));
    let metrics = Arc::clone(&shadow.metrics);
    let before = azure_writes(&stage);
    // The writer has work all the time: a Service changes every five minutes.
    for round in 0..12 {
        set_port(&stage, 8_000 + round);
        tokio::time::sleep(Duration::from_secs(300)).await;
        assert_eq!(shadow_requests(&stage).1, 0, "the shadow wrote to the API server");
    }
    assert!(azure_writes(&stage) > before, "the writer had nothing to do");
    assert!(shadow_requests(&stage).0 > 2, "the shadow read nothing");
    let gauge = |kind: &str| metrics.planned_writes.with_label_values(&[kind]).get();
    for kind in KINDS {
        assert!(gauge(kind).abs() < f64::EPSILON, "{kind}: {}", gauge(kind));
    }
    writer.stop().await;
    // The writer has stopped: every later write comes from the shadow.
    let writes_before = azure_writes(&stage);
    set_port(&stage, 9_999);
    // Longer than the oldest cache, because the report omits younger differences.
    tokio::time::sleep(Duration::from_secs(1_800)).await;
    assert_eq!((azure_writes(&stage), shadow_requests(&stage).1), (writes_before, 0));
    assert!(gauge("load_balancer") >= 1.0, "the change of the Service is in the plan");
    shadow.stop().await;
    stage.azure().clear_requests();
    stage.server.clear_requests();
    // The report equals the plan of a new manager, by kind. Other tests compare that plan with the requests that are sent.
    let plan = planned(&stage, &config, &case.flags).await;
    let mut counts: BTreeMap<&str, f64> = KINDS.iter().map(|kind| (*kind, 0.0)).collect();
    for write in plan.writes() {
        *counts.entry(write.kind).or_default() += 1.0;
        *counts.entry("leftovers").or_default() += f64::from(write.leftover);
    }
    assert!(
        plan.has_changes() && plan.is_complete() && counts["security_group"] + counts["load_balancer"] >= 1.0,
        "{counts:?}"
    );
    for (kind, count) in counts {
        assert!((gauge(kind) - count).abs() < f64::EPSILON, "{kind}: {} reported, {count} planned", gauge(kind));
    }
}
