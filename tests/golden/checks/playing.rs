//! Replays of changed recordings: each difference between recording and result is found.

use serde_json::json;

use crate::golden::{
    case::{Outcome, Step},
    corpus::case,
    replay::replay,
};

type Change = fn(&mut Step);

fn outcome(step: &mut Step) -> &mut Outcome {
    step.outcomes.get_mut("default/web").unwrap()
}

fn fail(step: &mut Step) {
    step.expect_failure = true;
    outcome(step).events.push("Warning SyncLoadBalancerFailed".to_owned());
}

fn clear_security_rules(step: &mut Step) {
    let group = step.after.iter_mut().find(|(id, _)| id.contains("/networksecuritygroups/")).unwrap().1;
    group["properties"]["securityRules"] = json!([]);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_result_is_reported() {
    let changes: [(&str, usize, Change, &str); 7] = [
        ("external-tcp", 0, clear_security_rules, "securityRules"),
        ("external-tcp", 0, |step| outcome(step).load_balancer.ingress.clear(), "its addresses are"),
        ("external-tcp", 0, |step| outcome(step).finalizers.clear(), "its finalizers are"),
        ("external-tcp", 0, |step| outcome(step).is_deleted = true, "it exists"),
        ("external-tcp", 0, fail, "it fails, but got an address"),
        ("external-tcp", 1, fail, "it fails without a warning event"),
        ("nsg-missing", 0, |step| step.after.retain(|id, _| !id.contains("/virtualnetworks/")), "virtualNetworks"),
    ];
    for (name, number, change, expected) in changes {
        let mut case = case(&format!("azure-lb/{name}")).clone();
        change(&mut case.steps[number]);
        let findings = replay(&case).await;
        assert!(findings.iter().any(|finding| finding.contains(expected)), "{name}, {expected}: {findings:?}");
    }
}
