use aws_lc_rs::digest::{SHA256, digest};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::{super::super::health::ProbeResult, *};
use crate::status::{ManagerStatus, ProviderState};

fn probe(name: &str, error: Option<&str>) -> ProbeResult {
    ProbeResult { name: name.to_owned(), result: Some(error.map_or(Ok(()), |error| Err(error.to_owned()))) }
}

/// Returns the page with these keys next to those without which none can be read.
fn read(keys: &Value) -> ManagerStatus {
    let mut page = json!({"version": "v1.2.3", "cloudProvider": {}, "controllers": []});
    page.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    serde_json::from_value(page).unwrap()
}

fn shown(keys: &Value, readiness: &[ProbeResult]) -> String {
    render(&OverviewInput { status: &read(keys), readiness, show_reasons: true, has_plan: true })
}

/// A manager with `count` Services that fail, all named by `name`.
fn busy(count: usize, name: impl Fn(usize) -> String, reason: &str) -> Value {
    let row = |number| json!({"key": name(number), "dueInSeconds": 12.4, "failures": 3, "reason": reason});
    let rows: Vec<Value> = (0..count).map(row).collect();
    json!({
        "leading": true,
        "controllers": [{"name": "service-lb-controller", "unsettled": rows, "loadBalancers": {"Failed": count}}],
    })
}

#[test]
fn an_empty_status_is_a_page() {
    let page = shown(&json!({}), &[]);
    assert_eq!(page.matches("None.").count(), 5, "{page}");
    assert!(page.ends_with("</html>\n") && !page.contains("Leader<b>"));
}

#[test]
fn waiting_work_is_shown_with_stage_and_reason() {
    let mut status = busy(2, |number| format!("default/web-{number}"), "no quota left");
    status["cloudProvider"] = json!({"name": "azure", "state": ProviderState::Initialized, "details": {"session": {
        "loadBalancers": {"waiting": {"lease": 1}, "unsettled": {"services": {
            "default/web-0": {"stage": "planning", "problem": null},
            "default/late": {"stage": "refused", "problem": "no such protocol"},
        }}, "drift": {"services": {"default/odd": {"documents": ["kubernetes (change probe p)"], "repairAfter": "2026-01-01T00:00:00Z"}},
            "latest": [{"about": "default/mended", "found": "2026-01-01T00:00:01Z", "outcome": "repaired", "what": "somebody else changed x"}]}},
        "requestBudget": {"buckets": [{"bucket": "writes", "left": 7.5, "capacity": 10.0, "waiting": {"change": 4}}]},
    }}});
    status["controllers"][0]["drift"] = json!([{"about": "node-7", "found": "2026-01-01T00:00:02Z", "outcome": "repaired",
        "what": "somebody else deleted route r"}]);
    let page = shown(&status, &[probe("informer-nodes", Some("list fails")), probe("ping", None)]);
    let expected = [
        "<tr><td>node-7</td><td data-of=\"Found\">2026-01-01T00:00:02Z</td><td data-of=\"Done\">repaired</td>\
         <td>somebody else deleted route r</td></tr><tr><td>default/mended</td>",
        "<small>v1.2.3</small>",
        "Leader<b>this replica</b>",
        "no: 1 of 2 checks fail",
        "Services that wait<b>4</b>",
        "repaired after 2026-01-01T00:00:00Z",
        "kubernetes (change probe p)",
        "<td data-of=\"Stage\">planning</td>",
        "<a href=\"/planz?service=default/web-0\">default/web-0</a>",
        "<td data-of=\"Stage\">refused</td>",
        "default/web-0 and 1 more",
        "may list and watch this kind",
        "<meter min=\"0\" max=\"10.0\" value=\"7.5\"></meter>",
        "provider: lease",
        "change: 4",
        "due in 12 s",
    ];
    for part in expected {
        assert!(page.contains(part), "{part} is missing from {page}");
    }
}

#[test]
fn only_working_replicas_show_waiting_work() {
    let page_with = |leading: bool, shadow: bool| {
        let mut status = busy(2, |number| format!("default/web-{number}"), "no quota left");
        (status["leading"], status["shadow"]) = (json!(leading), json!(shadow));
        shown(&status, &[])
    };
    let shadow = page_with(false, true);
    assert!(
        shadow.contains("Shadow manager")
            && shadow.contains("<a href=\"/reportz\">")
            && shadow.contains("never: this is a shadow")
    );
    let standby = page_with(false, false);
    assert!(standby.contains("does not lead") && !standby.contains("/reportz"));
    assert!([shadow, standby].iter().all(|page| !page.contains("no quota left") && !page.contains("Services that wait<b>")));
    let leader = page_with(true, false);
    assert!(
        leader.contains("no quota left") && leader.contains("Services that wait<b>2") && !leader.contains("Shadow manager")
    );
}

#[test]
fn advice_depends_on_the_class_and_not_on_the_text() {
    let rows = json!([
        {"key": "a/idle", "failures": 1, "class": "Invalid", "reason": "azure-load-balancer-tcp-idle-timeout: expected 4 to 100"},
        {"key": "a/full", "failures": 0, "class": "Invalid", "reason": "SubnetIsFull: the subnet has no address left"},
        {"key": "a/dns", "failures": 2, "class": "Failed", "reason": "dns quota 401 connect"},
        {"key": "a/patient", "failures": 0, "class": "Waiting", "reason": "HTTP 429"},
        {"key": "node-1", "failures": 1, "reason": "forbidden"},
    ]);
    let stages = json!({"a/full": {"stage": "refused", "class": "invalid", "advice": "Free addresses in the subnet."}});
    let lists = json!([{"list": "LIST virtualMachines", "lastError": "HTTP 403", "lastErrorClass": "Forbidden"}]);
    let status = read(&json!({
        "controllers": [{"name": "service-lb-controller", "unsettled": rows}],
        "cloudProvider": {"details": {"session": {"loadBalancers": {"unsettled": {"services": stages}}, "inventory": {"lists": lists}}}},
    }));
    let problems = facts::problems(&status, &[], true);
    let advice =
        |subject: &str| problems.iter().find(|problem| problem.subject == subject).map(|problem| problem.remedy.as_str());
    for (subject, expected) in [
        ("a/idle", Some("Correct the field, annotation or setting")),
        ("a/full", Some("Free addresses in the subnet.")),
        ("a/dns", Some("The program tries again")),
        ("a/patient", None),
        ("node-1", Some("The program tries again")),
        ("reading LIST virtualMachines", Some("Grant the missing right")),
    ] {
        let found = advice(subject);
        assert!(
            found.is_some() == expected.is_some() && found.unwrap_or("").starts_with(expected.unwrap_or("")),
            "{subject}: {found:?}"
        );
    }
}

#[test]
fn anonymous_callers_see_no_reasons_of_checks() {
    let readiness = [probe("cloud-provider", Some("token of tenant x"))];
    let page = render(&OverviewInput {
        status: &ManagerStatus::default(),
        readiness: &readiness,
        show_reasons: false,
        has_plan: false,
    });
    assert!(page.contains("reason withheld") && !page.contains("tenant x") && !page.contains("/planz"));
}

#[test]
fn hostile_values_stay_text_everywhere() {
    let evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>";
    let note = json!({"about": evil, "found": "2026-01-01T00:00:01Z", "outcome": "repaired", "what": evil});
    let mut status = busy(1, |_| format!("{evil}/{evil}"), evil);
    status["version"] = json!(evil);
    status["notRunning"] = json!({evil: evil});
    status["controllers"][0]["name"] = json!(evil);
    status["controllers"][0]["problem"] = json!(evil);
    status["controllers"][0]["drift"] = json!([note]);
    status["controllers"][0]["facts"] = json!({evil: evil});
    status["controllers"][0]["loadBalancers"] = json!({evil: 1});
    status["cloudProvider"] = json!({"name": evil, "state": evil, "details": {"refusedConfiguration": evil, "session": {
        "inventory": {"lists": [{"list": evil, "lastError": evil, "lastErrorClass": evil}],
            "failures": [{"read": evil, "error": evil, "class": evil, "ageSeconds": 1}]},
        "loadBalancers": {"waiting": {evil: 1}, "unsettled": {"services": {evil: {"stage": evil, "problem": evil}}},
            "drift": {"services": {format!("{evil}2"): {"documents": [evil], "repairAfter": evil}},
                "latest": [note]}},
        "requestBudget": {"buckets": [{"bucket": evil, "resource": evil, "waiting": {evil: 1}}]},
    }}});
    let page = shown(&status, &[probe(evil, Some(evil))]);
    assert!(!page.contains("<script") && !page.contains("<img") && !page.contains("\"'>"), "{page}");
    assert!(page.matches("&lt;script&gt;").count() > 20, "{page}");
}

#[test]
fn pages_are_bounded() {
    let rows =
        [(500, "x"), (500, "it cannot be done for a reason that has the length of an ordinary sentence"), (100_000, "x")];
    for (count, reason) in rows {
        let page = shown(&busy(count, |number| format!("namespace/service-{number}"), reason), &[]);
        assert!(page.len() < 256 * 1024, "{count}: {}", page.len());
        assert_eq!(page.matches("<a href=\"/planz?service=").count(), 500, "{count}");
        assert_eq!(page.contains(" more are not shown"), count > 500);
    }
    let long = "\"".repeat(100_000);
    let page = shown(&busy(2_000, |number| format!("{number}/{long}"), &long), &[]);
    assert!(page.len() < 512 * 1024 && page.contains(" more are not shown"), "{}", page.len());
}

#[test]
fn the_policies_allow_this_style_sheet_and_nothing_else() {
    let hash = serde_json::to_value(ByteString(digest(&SHA256, STYLE.as_bytes()).as_ref().to_vec())).unwrap();
    let expected =
        format!("default-src 'none'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'", hash.as_str().unwrap());
    assert_eq!(document_policy!(), expected);
    let page = shown(&json!({}), &[]);
    assert!(page.contains(&expected) && page.contains(STYLE) && !STYLE.contains('<'));
    for way_out in ["style=", "http://", "https://", "src=", "@import", "url("] {
        assert!(!page.contains(way_out), "{way_out}");
    }
}
