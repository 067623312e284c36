use serde_json::json;

use super::{super::plan::plan, *};

fn node(name: &str, cidrs: &[&str], conditions: &[(&str, &str, &str)]) -> Arc<Node> {
    let condition =
        |(type_, status, reason): &(&str, &str, &str)| json!({"type": type_, "status": status, "reason": reason});
    let node = json!({
        "metadata": {"name": name, "uid": format!("uid-{name}")},
        "spec": {"podCIDRs": cidrs},
        "status": {"conditions": conditions.iter().map(condition).collect::<Vec<_>>()},
    });
    Arc::new(serde_json::from_value(node).unwrap())
}

#[test]
fn condition_is_patched_only_if_its_status_differs() {
    const CREATED: Option<(&str, &str)> = Some(("False", "RouteCreated"));
    const NOT_CREATED: Option<(&str, &str)> = Some(("True", "NoRouteCreated"));
    let table = [
        (None, true, CREATED),
        (None, false, NOT_CREATED),
        (Some(("False", "RouteCreated")), true, None),
        (Some(("False", "CiliumIsUp")), true, None),
        (Some(("False", "CiliumIsUp")), false, NOT_CREATED),
        (Some(("True", "SomeReason")), false, None),
        (Some(("True", "SomeReason")), true, CREATED),
        (Some(("False", "RouteCreated")), false, NOT_CREATED),
        (Some(("True", "NoRouteCreated")), false, None),
        (Some(("True", "NoRouteCreated")), true, CREATED),
    ];
    for (before, has_all, expected) in table {
        let ready = ("Ready", "False", "RouteCreated");
        let conditions: Vec<_> = before.iter().map(|(s, r)| ("NetworkUnavailable", *s, *r)).chain([ready]).collect();
        let patch = condition_patch(&node("n", &[], &conditions), has_all, Timestamp::UNIX_EPOCH);
        let written = patch.as_ref().map(|patch| {
            let condition = &patch["status"]["conditions"][0];
            (condition["status"].as_str().unwrap(), condition["reason"].as_str().unwrap())
        });
        assert_eq!(written, expected, "{before:?} {has_all}");
    }
}

#[test]
fn condition_patch_has_the_uid_and_one_condition() {
    let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
    let patch = condition_patch(&node("n", &[], &[]), true, now).unwrap();
    let expected = json!({"metadata": {"uid": "uid-n"}, "status": {"conditions": [{
        "type": "NetworkUnavailable",
        "status": "False",
        "reason": "RouteCreated",
        "message": "RouteController created a route",
        "lastHeartbeatTime": "2026-01-02T03:04:05Z",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }]}});
    assert_eq!(patch, expected);
}

/// Settles two nodes that each need a route, of which the second creation ends with `second`.
fn settle_two(second: CloudResult<()>) -> RouteSyncResult {
    let nodes = [node("a", &["10.0.0.0/24"], &[]), node("b", &["10.0.1.0/24"], &[])];
    let plan = plan(&[], &nodes, &["10.0.0.0/16".parse().unwrap()]);
    evaluate(&plan, &RouteOutcomes { deleted: Vec::new(), created: vec![Ok(()), second] })
}

#[test]
fn errors_determine_condition_event_and_retry() {
    let wait = Duration::from_secs(7);
    let retry_after = CloudError::RetryAfter { after: wait, message: "busy".into() };
    let deadline = CloudError::Deadline { call: "apply_routes", limit: wait };
    // Verdict on the second node, whether there is an event, and the next step.
    let table: [(CloudResult<()>, Option<bool>, bool, &str); 9] = [
        (Ok(()), Some(true), false, "done"),
        (Err(CloudError::failed("boom")), Some(false), true, "backoff"),
        (Err(deadline), Some(false), true, "backoff"),
        (Err(CloudError::InstanceNotFound), Some(false), true, "backoff"),
        (Err(CloudError::invalid("bad")), Some(false), true, "rejected"),
        (Err(retry_after), Some(false), false, "as requested by the cloud"),
        (Err(CloudError::NotLeader("x".into())), None, false, "done"),
        (Err(CloudError::ImplementedElsewhere), None, false, "done"),
        (Err(CloudError::NotImplemented), None, false, "done"),
    ];
    for (second, verdict, event, next) in table {
        let settled = settle_two(second.clone());
        let verdicts: Vec<_> = settled.node_results.iter().map(|(node, has_all)| (node.name_any(), *has_all)).collect();
        let expected: Vec<_> = std::iter::once(("a".to_owned(), true)).chain(verdict.map(|v| ("b".to_owned(), v))).collect();
        assert_eq!(verdicts, expected, "{second:?}");
        assert_eq!(settled.failed.len(), usize::from(event), "{second:?}");
        let actual = match outcome(&settled.retries) {
            ReconcileResult::Done => "done",
            ReconcileResult::Failed(_) => "backoff",
            ReconcileResult::RequeueAfter(after, _) => {
                assert_eq!(after, wait);
                "as requested by the cloud"
            }
            ReconcileResult::Rejected(_) => "rejected",
        };
        assert_eq!(actual, next, "{second:?}");
    }
}

#[test]
fn a_node_is_ready_only_when_all_its_routes_are_there() {
    let nodes = [node("a", &["10.0.0.0/24", "10.0.1.0/24"], &[])];
    let existing = Route { target_node: "a".into(), destination_cidr: "10.0.0.0/24".into(), ..Route::default() };
    let plan = plan(&[existing], &nodes, &["10.0.0.0/16".parse().unwrap()]);
    let verdict = |created: CloudResult<()>| {
        evaluate(&plan, &RouteOutcomes { deleted: Vec::new(), created: vec![created] }).node_results[0].1
    };
    assert!(verdict(Ok(())));
    assert!(!verdict(Err(CloudError::failed("boom"))));
}

#[test]
fn a_node_that_only_foreign_cidrs_lead_to_has_no_route() {
    let existing = Route { target_node: "a".into(), destination_cidr: "10.0.0.0/24".into(), ..Route::default() };
    let plan = plan(&[existing], &[node("a", &[], &[])], &["10.0.0.0/16".parse().unwrap()]);
    let settled = evaluate(&plan, &RouteOutcomes { deleted: vec![Ok(())], created: Vec::new() });
    assert!(!settled.node_results[0].1);
    assert_eq!(outcome(&settled.retries), ReconcileResult::Done);
}

#[test]
fn a_failed_deletion_is_retried_and_marks_no_node() {
    let existing = Route { target_node: "gone".into(), destination_cidr: "10.0.0.0/24".into(), ..Route::default() };
    let plan = plan(&[existing], &[], &["10.0.0.0/16".parse().unwrap()]);
    let settled = evaluate(&plan, &RouteOutcomes { deleted: vec![Err(CloudError::failed("boom"))], created: Vec::new() });
    assert_eq!((settled.node_results.len(), settled.failed.len()), (0, 0));
    assert_eq!(
        outcome(&settled.retries),
        ReconcileResult::Failed("deleting route 10.0.0.0/24 to node \"gone\": boom".into())
    );
}

#[test]
fn a_missing_outcome_is_a_failure() {
    let plan = plan(&[], &[node("a", &["10.0.0.0/24"], &[])], &["10.0.0.0/16".parse().unwrap()]);
    let settled = evaluate(&plan, &RouteOutcomes::default());
    assert_eq!(settled.node_results.iter().map(|(_, has_all)| *has_all).collect::<Vec<_>>(), [false]);
    assert!(matches!(outcome(&settled.retries), ReconcileResult::Failed(_)));
}

#[test]
fn failure_precedes_delays_and_shorter_delays_precede_longer() {
    let (short, long) = (Duration::from_secs(1), Duration::from_secs(60));
    let after = |delay| ReconcileResult::RequeueAfter(delay, "wait".into());
    let failed = ReconcileResult::Failed("boom".into());
    assert_eq!(outcome(&[]), ReconcileResult::Done);
    assert_eq!(outcome(&[after(short), failed]), ReconcileResult::Failed("boom (and 1 more)".into()));
    assert_eq!(outcome(&[after(long), after(short)]), ReconcileResult::RequeueAfter(short, "wait (and 1 more)".into()));
    assert_eq!(
        outcome(&[ReconcileResult::Rejected("bad".into()), after(short)]),
        ReconcileResult::RequeueAfter(short, "wait (and 1 more)".into())
    );
}

#[test]
fn api_server_errors_are_failures_unless_settled() {
    assert_eq!(api_failure("x", &ApiError::NotFound("n".into())), None);
    assert_eq!(api_failure("x", &ApiError::NotLeading(crate::runtime::leader_election::NotLeading)), None);
    for error in [ApiError::Conflict("n".into()), ApiError::Forbidden("no".into()), ApiError::Failed("no".into())] {
        assert_eq!(api_failure("x", &error), Some(format!("x: {error}")));
    }
}
