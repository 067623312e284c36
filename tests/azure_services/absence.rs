//! False lists: at any step of a Service, one kind of list is empty or incomplete, or its response is a 404 of ARM or of a proxy. Resources
//! of others do not change, no finalizer is removed before the resources that it guards, and the final state is the same as without the
//! false list.
//!
//! In CI each kind of Service, act and list meets one kind of lie at its first two reads, in a process that has just started or in one that
//! has not. With `CCM_SOAK_SECONDS` set, both processes meet all kinds at every read, also lies that last.

use std::{collections::BTreeMap, time::Duration};

use cloud_controller_manager::sandbox::azure::{Class, Fault};
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

use crate::azure_services::{
    cluster::{BALANCERS, Cluster, Manager, TIMEOUT, addresses, is_ready, run_paused},
    crash::{ACTS, Act, Kind, SHARED, act},
    documents::{State, differences, unordered},
    services::{annotate, dual_stack, external, internal, pinned},
    wire::Lie,
};

const LIES: [Lie; 4] = [Lie::Empty, Lie::Partial, Lie::NoGroup, Lie::Page];
const LISTS: [&str; 5] =
    ["loadBalancers", "publicIPAddresses", "virtualMachineScaleSets", "virtualMachines", "networkInterfaces"];
/// Longer than lists stay in the cache.
const LONG: Duration = Duration::from_secs(200);
/// Time during which the state is checked after the act.
const LIED: Duration = Duration::from_secs(600);

/// An act, and the false response during it.
#[derive(Debug, Clone, Copy)]
struct Case {
    kind: Kind,
    act: Act,
    list: &'static str,
    lie: Lie,
    /// Whether the process has just started, with an empty cache.
    restarted: bool,
    /// Whether later lists of the kind are false, too.
    lasting: bool,
}

/// Returns the lists that become false: with a private link service, only those that it affects.
fn lists(kind: Kind) -> &'static [&'static str] {
    if kind == Kind::PrivateLink { &["privateLinkServices", "loadBalancers"] } else { &LISTS }
}

/// Adds a foreign outbound rule to the shared load balancer: it is the cluster's egress, which must remain.
fn add_egress(cluster: &Cluster) {
    let address = cluster.put_public_ip("egress", "52.1.2.4");
    let balancer = cluster.balancers().into_iter().find(|balancer| balancer["name"] == "kubernetes").unwrap();
    let id = balancer["id"].as_str().unwrap().to_owned();
    let part = |list: &str| format!("{id}/{list}/egress");
    let (frontend, pool) = (part("frontendIPConfigurations"), part("backendAddressPools"));
    let changed = cluster.azure().change_document(&id, |document| {
        let mut add = |list: &str, part: Value| {
            let properties = &mut document["properties"];
            if !properties[list].is_array() {
                properties[list] = json!([]);
            }
            properties[list].as_array_mut().unwrap().push(part);
        };
        let shown = |id: &str, properties: Value| json!({"id": id, "name": "egress", "properties": properties});
        add("frontendIPConfigurations", shown(&frontend, json!({"publicIPAddress": {"id": address}})));
        add("backendAddressPools", shown(&pool, json!({})));
        let rule =
            json!({"frontendIPConfigurations": [{"id": frontend}], "backendAddressPool": {"id": pool}, "protocol": "All",
            "allocatedOutboundPorts": 0, "enableTcpReset": false, "idleTimeoutInMinutes": 4});
        add("outboundRules", shown(&part("outboundRules"), rule));
    });
    assert!(changed);
}

/// Prepares a cluster with other Services, in which the acts before `last` happened long ago.
async fn prepared(kind: Kind, last: Act) -> (Cluster, Manager) {
    let cluster = Cluster::with_two_nodes();
    cluster.put_public_ip("theirs", SHARED);
    cluster.create(&external("other"));
    cluster.create(&internal("inside"));
    if kind == Kind::Shared {
        cluster.create(&pinned("base", SHARED, 80));
    }
    let manager = cluster.serve(&[]).await;
    add_egress(&cluster);
    tokio::time::sleep(LONG).await;
    for earlier in ACTS.into_iter().take_while(|earlier| *earlier != last) {
        act(&cluster, kind, earlier);
        tokio::time::sleep(LONG).await;
    }
    (cluster, manager)
}

/// Returns what does not belong to `web`: parts of load balancers, public IPs, and security rules about addresses of others.
fn foreign(cluster: &Cluster) -> BTreeMap<String, Value> {
    let others: Vec<String> =
        cluster.services().iter().filter(|service| service.metadata.name.as_deref() != Some("web")).map(base).collect();
    let is_foreign = |name: &str| ["egress", "theirs"].contains(&name) || others.iter().any(|base| name.contains(base));
    let mut found = BTreeMap::new();
    for document in cluster.balancers() {
        let properties = document["properties"].as_object().unwrap();
        for part in properties.values().filter_map(Value::as_array).flatten() {
            if part["name"].as_str().is_some_and(is_foreign) {
                found.insert(text(&part["id"]), bare(&part["properties"]));
            }
        }
    }
    for document in cluster.public_ips() {
        if is_foreign(&text(&document["name"])) {
            found.insert(text(&document["id"]), json!(document["properties"]["ipAddress"]));
        }
    }
    let other_addresses: Vec<String> = cluster
        .services()
        .iter()
        .filter(|service| service.metadata.name.as_deref() != Some("web"))
        .flat_map(addresses)
        .collect();
    for group in cluster.security_groups() {
        for address in other_addresses.iter().filter(|address| *address != SHARED) {
            let rules = group["properties"]["securityRules"].as_array().unwrap().iter();
            let about = rules.filter(|rule| rule["properties"].to_string().contains(&format!("\"{address}\"")));
            let about: Vec<Value> = about.map(|rule| rule["name"].clone()).collect();
            found.insert(format!("rules for {address}"), json!(about));
        }
    }
    found
}

/// Asserts that everything in `before` exists unchanged. ARM may have added defaults.
fn assert_same(before: &BTreeMap<String, Value>, now: &BTreeMap<String, Value>, context: &str) {
    for (id, was) in before {
        let is = now.get(id);
        assert!(is.is_some_and(|is| covers(is, was)), "{context}: {id} was {was}, and is {is:?}");
    }
}

fn covers(is: &Value, was: &Value) -> bool {
    match (is, was) {
        (Value::Object(is), Value::Object(was)) => {
            was.iter().all(|(key, was)| is.get(key).is_some_and(|is| covers(is, was)))
        }
        (Value::Array(is), Value::Array(was)) => {
            is.len() == was.len() && is.iter().zip(was).all(|(is, was)| covers(is, was))
        }
        _ => is == was,
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns properties without members and without fields that change when the document or parts of others are written.
fn bare(properties: &Value) -> Value {
    let mut bare = properties.clone();
    for field in ["etag", "provisioningState", "loadBalancingRules", "outboundRules", "backendIPConfigurations"] {
        bare.as_object_mut().map(|fields| fields.remove(field));
    }
    bare
}

/// Returns the base of the names of a Service's parts.
fn base(service: &Service) -> String {
    let mut base = format!("a{}", service.metadata.uid.clone().unwrap_or_default().replace('-', ""));
    base.truncate(32);
    base
}

/// Returns parts of load balancers and public IPs that are named after the Service.
fn parts(cluster: &Cluster, base: &str) -> Vec<String> {
    let balancers = cluster.balancers();
    let parts = balancers.iter().flat_map(|document| document["properties"].as_object().unwrap().values());
    let parts = parts.filter_map(Value::as_array).flatten().map(|part| text(&part["id"]));
    let public_ips = cluster.public_ips().into_iter().map(|document| text(&document["id"]));
    parts.chain(public_ips).filter(|id| id.contains(base)).collect()
}

fn statuses(cluster: &Cluster) -> Vec<(Option<String>, usize)> {
    cluster.services().iter().map(|service| (service.metadata.name.clone(), addresses(service).len())).collect()
}

type Outcome = (State, Vec<(Option<String>, usize)>);

fn undisturbed(kind: Kind, last: Act) -> Outcome {
    run_paused(async {
        let (cluster, manager) = prepared(kind, last).await;
        act(&cluster, kind, last);
        cluster.quiet_for(2 * LONG).await;
        manager.stop().await;
        (unordered(&cluster), statuses(&cluster))
    })
}

/// Makes the `nth` list of the kind false. Returns whether that list was read, and the final state.
fn deceived(case: Case, nth: usize) -> (bool, Outcome) {
    let Case { kind, act: last, list, lie, restarted, lasting } = case;
    run_paused(async {
        let (cluster, mut manager) = prepared(kind, last).await;
        let before = foreign(&cluster);
        let web = cluster.service("web").as_ref().map(base);
        if restarted {
            manager.kill();
            manager = cluster.start_deceived(list, lie, nth, lasting);
        } else {
            manager.wire.deceive(list, lie, nth, lasting);
        }
        act(&cluster, kind, last);
        let context = format!("{case:?}, list {nth}");
        let began = tokio::time::Instant::now();
        while began.elapsed() < LIED {
            // The first attempts follow each other closely.
            let step = if began.elapsed() < Duration::from_secs(40) { 1 } else { 10 };
            tokio::time::sleep(Duration::from_secs(step)).await;
            assert_same(&before, &foreign(&cluster), &context);
            if let Some(base) = web.as_ref().filter(|_| cluster.service("web").is_none()) {
                assert_eq!(parts(&cluster, base), Vec::<String>::new(), "{context}: the finalizer was removed too early");
            }
        }
        let has_lied = manager.wire.truth();
        let is_done = |cluster: &Cluster| match last {
            Act::Delete => cluster.service("web").is_none(),
            _ => cluster.services().iter().all(is_ready),
        };
        cluster.until(&context, TIMEOUT, is_done).await;
        cluster.quiet_for(4 * LONG).await;
        assert_same(&before, &foreign(&cluster), &context);
        manager.stop().await;
        (has_lied, (unordered(&cluster), statuses(&cluster)))
    })
}

fn is_soak() -> bool {
    std::env::var_os("CCM_SOAK_SECONDS").is_some()
}

/// Returns the kinds of lies to play: all, or in CI one, which differs from case to case.
fn lies(index: usize) -> Vec<Lie> {
    if is_soak() { LIES.to_vec() } else { vec![LIES[index % LIES.len()]] }
}

fn sweep(kind: Kind) {
    let (mut index, mut lie_count) = (kind as usize, 0);
    for last in ACTS {
        let expected = undisturbed(kind, last);
        for list in lists(kind).iter().copied() {
            for restarted in [false, true] {
                index += 1;
                // In CI, every second case.
                let is_due = is_soak() || (index / 2 + usize::from(restarted)) % 2 == 0;
                for lie in lies(index).into_iter().filter(|_| is_due) {
                    for lasting in [false, true].into_iter().take(if is_soak() { 2 } else { 1 }) {
                        lie_count += at_every_list(Case { kind, act: last, list, lie, restarted, lasting }, &expected);
                    }
                }
            }
        }
    }
    assert!(lie_count > 0, "{kind:?}: no list was read");
    println!("{kind:?}: {lie_count} lies");
}

fn at_every_list(case: Case, expected: &Outcome) -> usize {
    for nth in 1.. {
        let (has_lied, found) = deceived(case, nth);
        if !has_lied {
            return nth - 1;
        }
        assert_eq!(differences(&expected.0, &found.0), Vec::<String>::new(), "{case:?}, list {nth}");
        assert_eq!(expected.1, found.1, "{case:?}, list {nth}");
        if !is_soak() && nth >= 2 {
            return nth;
        }
    }
    0
}

#[test]
fn false_lists_do_not_harm_external_services() {
    sweep(Kind::External);
}

#[test]
fn false_lists_do_not_harm_internal_services() {
    sweep(Kind::Internal);
}

#[test]
fn false_lists_do_not_harm_dual_stack_services() {
    sweep(Kind::DualStack);
}

#[test]
fn false_lists_do_not_harm_local_services() {
    sweep(Kind::Local);
}

#[test]
fn false_lists_do_not_harm_private_link_services() {
    sweep(Kind::PrivateLink);
}

#[test]
fn false_lists_do_not_harm_services_on_a_shared_public_ip() {
    sweep(Kind::Shared);
}

/// The Service is changed and deleted while its public IP exists and no resource refers to it yet.
#[test]
fn a_deleted_service_leaves_no_address_despite_false_lists() {
    let make_internal = |service: &mut Service| annotate(service, "azure-load-balancer-internal", Some("true"));
    let make_single_stack = |service: &mut Service| {
        let spec = service.spec.as_mut().unwrap();
        (spec.ip_family_policy, spec.ip_families) = (Some("SingleStack".to_owned()), Some(vec!["IPv4".to_owned()]));
    };
    let changes: [(_, fn(&mut Service)); 2] = [(external("web"), make_internal), (dual_stack("web"), make_single_stack)];
    for (lasting, lie) in [(false, Lie::Empty), (true, Lie::Empty), (true, Lie::Partial)] {
        for (service, change) in &changes {
            run_paused(async {
                let cluster = Cluster::with_two_nodes();
                let refusal = Fault::refuse(503, "ServiceUnavailable").class(Class::Write).resource_type(BALANCERS);
                cluster.azure().add_fault(refusal);
                let manager = cluster.start();
                let base = base(&cluster.create(service));
                let families = 1 + usize::from(service.spec.as_ref().unwrap().ip_family_policy.is_some());
                let all_made = |cluster: &Cluster| parts(cluster, &base).len() == families;
                cluster.until("its public IPs", TIMEOUT, all_made).await;
                manager.kill();
                cluster.azure().faults().clear();
                cluster.change("web", change);
                cluster.delete("web");
                let manager = cluster.start_deceived("publicIPAddresses", lie, 1, lasting);
                cluster.until_all_deleted(TIMEOUT).await;
                assert_eq!(parts(&cluster, &base), Vec::<String>::new(), "{lie:?}, for long: {lasting}");
                assert!(manager.wire.truth(), "no list was read");
                manager.kill();
            });
        }
    }
}
