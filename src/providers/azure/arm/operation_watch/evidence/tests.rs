use serde_json::json;

use super::*;

/// Returns a public IP with etag, state and address.
fn entry(etag: &str, state: &str, address: Option<&str>) -> Value {
    let mut document = json!({
        "id": "/subscriptions/s/x", "etag": etag, "tags": {"service": "a"},
        "properties": {"provisioningState": state, "resourceGuid": "g", "ipTags": [{"tag": "x"}], "dnsSettings": null, "zones": []},
    });
    if let Some(address) = address {
        document["properties"]["ipAddress"] = json!(address);
    }
    document
}

fn put(condition: Option<(&str, &str)>) -> Option<ListedWrite> {
    ListedWrite::of(&Method::PUT, condition, &entry("\"2\"", "Updating", None).to_string().into())
}

fn created() -> ListedWrite {
    put(Some(("if-none-match", "*"))).unwrap()
}

fn changed() -> ListedWrite {
    put(Some(("if-match", "W/\"1\""))).unwrap()
}

#[test]
fn a_write_that_no_list_can_prove_is_not_watched() {
    assert_eq!(put(None), None, "the replaced version is unknown");
    assert_eq!(put(Some(("if-match", "*"))), None);
    assert_eq!(put(Some(("if-match", ""))), None);
    for (method, body) in [(Method::PUT, ""), (Method::PUT, "{\"name\":\"x\"}"), (Method::POST, "{\"properties\":{}}")] {
        let written = ListedWrite::of(&method, Some(("if-none-match", "*")), &body.into());
        assert_eq!(written, None, "{method} {body}: nothing to compare with");
    }
    for state in ["Succeeded", "succeeded", "Failed"] {
        let response = entry("\"2\"", state, Some("20.0.0.1")).to_string();
        let written = ListedWrite::of(&Method::PUT, Some(("if-match", "\"1\"")), &response.to_owned().into());
        assert_eq!(written, None, "{state} while the operation is in progress: every list would look final");
    }
    assert!(ListedWrite::of(&Method::DELETE, None, &Bytes::from_static(b"")).is_some());
}

#[test]
fn an_entry_is_the_result_only_of_its_own_write() {
    use ListVerdict::{Running, Succeeded, Unclear};
    let succeeded = entry("\"3\"", "Succeeded", Some("20.0.0.1"));
    let with = |change: fn(&mut Value)| {
        let mut changed = succeeded.clone();
        change(&mut changed);
        changed
    };
    for (case, mut write, entry, expected) in [
        ("created", created(), succeeded.clone(), Succeeded),
        ("changed", changed(), succeeded.clone(), Succeeded),
        ("the etag of the response", changed(), entry("\"2\"", "succeeded", None), Succeeded),
        ("the version before", changed(), entry("\"1\"", "Succeeded", Some("20.0.0.1")), Running),
        ("the version before, weakly", changed(), entry("W/\"1\"", "Succeeded", None), Running),
        ("in progress", created(), entry("\"2\"", "Updating", None), Running),
        ("failed", created(), entry("\"3\"", "Failed", None), Unclear),
        ("no version", changed(), with(|it| drop(it.as_object_mut().unwrap().remove("etag"))), Running),
        ("no state", created(), with(|it| it["properties"]["provisioningState"] = json!(3)), Running),
        ("another one of that name", created(), with(|it| it["properties"]["resourceGuid"] = json!("h")), Running),
        ("other tags", changed(), with(|it| it["tags"]["service"] = json!("b")), Running),
        ("a part is missing", changed(), with(|it| it["properties"]["ipTags"] = json!([])), Running),
        (
            "more than was written",
            changed(),
            with(|it| it["properties"]["ipTags"] = json!([{"y": 1}, {"tag": "X"}])),
            Running,
        ),
        ("a tag more", changed(), with(|it| it["tags"]["old"] = json!("b")), Running),
        ("a part more", changed(), with(|it| it["properties"]["natGateway"] = json!({"id": "n"})), Running),
        ("a list more", changed(), with(|it| it["properties"]["zones"] = json!(["1"])), Running),
        ("a list less, of nothing", changed(), with(|it| it["properties"]["zones"] = Value::Null), Succeeded),
        ("letter case", changed(), with(|it| it["id"] = json!("/SUBSCRIPTIONS/s/X")), Succeeded),
    ] {
        assert_eq!(write.judge(Some(&entry)), expected, "{case}");
    }
}

/// Returns a load balancer with `rules` in this order.
fn with_rules(etag: &str, state: &str, rules: &[&str]) -> Value {
    let rule =
        |name: &&str| json!({"id": format!("/lb/rules/{name}"), "name": "n", "etag": etag, "properties": {"port": 1}});
    let rules: Vec<_> = rules.iter().map(rule).collect();
    json!({"etag": etag, "properties": {"provisioningState": state, "rules": rules}})
}

#[test]
fn a_list_two_versions_behind_is_not_the_end_of_a_removal() {
    let accepted = with_rules("\"2\"", "Updating", &["b", "a"]).to_string();
    let removal = ListedWrite::of(&Method::PUT, Some(("if-match", "\"1\"")), &accepted.into()).unwrap();
    for (etag, rules, expected) in [
        ("\"0\"", vec!["a", "b", "c"], ListVerdict::Running),
        ("\"0\"", vec!["a", "a"], ListVerdict::Running),
        ("\"0\"", vec!["a", "c"], ListVerdict::Running),
        ("\"2\"", vec!["b"], ListVerdict::Running),
        ("\"2\"", vec!["A", "B"], ListVerdict::Succeeded),
    ] {
        let shown = with_rules(etag, "Succeeded", &rules);
        assert_eq!(removal.clone().judge(Some(&shown)), expected, "{etag} {rules:?}");
    }
}

#[test]
fn after_two_inconclusive_lists_a_write_polls_alone() {
    for entry in [None, Some(entry("\"1\"", "Succeeded", None))] {
        let mut write = changed();
        let verdicts = [0; 4].map(|_| write.judge(entry.as_ref()));
        let (running, unclear) = (ListVerdict::Running, ListVerdict::Unclear);
        assert_eq!(verdicts, [running.clone(), unclear.clone(), running, unclear]);
    }
}

#[test]
fn a_write_long_in_progress_polls_alone() {
    let (mut write, running) = (created(), entry("\"2\"", "Updating", None));
    let verdicts: Vec<_> = (0..16).map(|_| write.judge(Some(&running))).collect();
    let polls: Vec<_> = (0..16).filter(|list| verdicts[*list] == ListVerdict::Unclear).collect();
    assert_eq!(polls, [7, 15]);
}

#[test]
fn a_list_does_not_prove_a_deletion() {
    let mut write = ListedWrite::of(&Method::DELETE, None, &Bytes::from_static(b"")).unwrap();
    assert_eq!(write.judge(Some(&entry("\"1\"", "Deleting", None))), ListVerdict::Running);
    assert_eq!(write.judge(None), ListVerdict::Missing);
    let running = write.judge(Some(&entry("\"1\"", "Deleting", None)));
    assert_eq!(running, ListVerdict::Running);
    assert_eq!(write.judge(Some(&entry("\"1\"", "Failed", None))), ListVerdict::Unclear, "the deletion has failed");
    let existing = [0; 2].map(|_| write.judge(Some(&entry("\"1\"", "Succeeded", None))));
    assert_eq!(existing, [ListVerdict::Running, ListVerdict::Unclear], "an old list, or it is not being deleted");
}
