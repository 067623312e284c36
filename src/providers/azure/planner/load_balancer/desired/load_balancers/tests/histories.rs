//! Random histories of Services and entries: no Service ends on two load balancers, and the last plan has no changes.
//!
//! A history is a list of rounds, one per line: the entries, a bar, and the requests. `lb2:closed,t=a,team=x` is a closed entry with both
//! selectors; `+a:internal,dual,pin=9,t=b,at=lb2/lb3,n=2` requests Service `a` with address 10.0.0.9, `-a` its deletion.

use std::sync::Arc;

use proptest::{prelude::*, test_runner::TestCaseError};

use super::{
    entries::{empty, entry, ips, matcher, named, of, with_label},
    *,
};
use crate::providers::azure::planner::load_balancer::entries::LoadBalancerEntry;

/// Splits the text into a name and the words behind its colon.
fn words(text: &str) -> (&str, Vec<(&str, &str)>) {
    let (name, words) = text.split_once(':').unwrap_or((text, ""));
    (name, words.split(',').filter(|word| !word.is_empty()).map(|word| word.split_once('=').unwrap_or((word, ""))).collect())
}

fn parse_entry(text: &str) -> LoadBalancerEntry {
    let (name, words) = words(text);
    let mut entry = entry(name);
    for (word, value) in words {
        match word {
            "closed" => entry.is_closed = true,
            "t" => entry.service_selector = matcher("t", value),
            "team" => entry.namespace_selector = matcher("team", value),
            other => panic!("{other}"),
        }
    }
    entry
}

fn parse_service(text: &str) -> ServiceSpec {
    let (name, words) = words(text);
    let mut spec = service(name);
    let mut number = 1;
    for (word, value) in words {
        match word {
            "internal" => spec.internal = true,
            "dual" => spec.families = vec![IpFamily::V4, IpFamily::V6],
            "pin" => spec = pinned(&format!("10.0.0.{value}"), spec),
            "t" => spec = with_label(spec, value),
            "at" => spec = named(spec, &value.split('/').collect::<Vec<_>>()),
            "n" => number = value.parse().unwrap(),
            other => panic!("{other}"),
        }
    }
    let number = i32::from(name.as_bytes()[0]) * 10 + number;
    ServiceSpec { ports: vec![port(Protocol::Tcp, number, 30_000 + number)], ..spec }
}

fn parse_ask(text: &str) -> ServiceRequest {
    match text.split_at(1) {
        ("+", spec) => ensure(&parse_service(spec)),
        ("-", spec) => remove(&parse_service(spec)),
        _ => panic!("{text}"),
    }
}

fn parse_round(line: &str) -> (LoadBalancerSettings, Vec<ServiceRequest>) {
    let (entries, asks) = line.split_once('|').unwrap();
    let entries: Vec<_> = entries.split_whitespace().map(parse_entry).collect();
    (of(&entries), asks.split_whitespace().map(parse_ask).collect())
}

fn joined(words: impl IntoIterator<Item = Option<String>>) -> String {
    words.into_iter().flatten().collect::<Vec<_>>().join(",")
}

fn any_entries() -> impl Strategy<Value = String> {
    let one =
        (any::<bool>(), prop::bool::weighted(0.2), prop::option::weighted(0.3, "[ab]"), prop::option::weighted(0.2, "[xy]"));
    prop::collection::vec(one, 3).prop_map(|rows| {
        let entry = |name: &str, is_closed: bool, service: Option<String>, namespace: Option<String>| {
            let words = [
                is_closed.then(|| "closed".to_owned()),
                service.map(|value| format!("t={value}")),
                namespace.map(|value| format!("team={value}")),
            ];
            format!("{name}:{}", joined(words))
        };
        let names = ["kubernetes", "lb2", "lb3"].into_iter().zip(rows);
        let there = names.filter(|(name, (is_there, ..))| *is_there || *name == "kubernetes");
        there
            .map(|(name, (_, is_closed, service, namespace))| entry(name, is_closed, service, namespace))
            .collect::<Vec<_>>()
            .join(" ")
    })
}

fn any_ask() -> impl Strategy<Value = String> {
    let entries = prop_oneof![3 => Just(None), 1 => Just(Some("at=lb2")), 1 => Just(Some("at=lb3/kubernetes"))];
    let address = prop_oneof![8 => Just(None), 2 => Just(Some(9)), 1 => Just(Some(8))];
    let parts = ("[a-f]", any::<bool>(), any::<bool>(), entries, address, "[abc]", 1..4_i32);
    (parts, prop::bool::weighted(0.2)).prop_map(|((name, internal, dual, entries, pin, label, number), goes)| {
        let words = [
            internal.then(|| "internal".to_owned()),
            dual.then(|| "dual".to_owned()),
            pin.map(|address| format!("pin={address}")),
            entries.filter(|_| pin.is_none()).map(str::to_owned),
            Some(format!("t={label}")),
            Some(format!("n={number}")),
        ];
        if goes { format!("-{name}") } else { format!("+{name}:{}", joined(words)) }
    })
}

fn any_round() -> impl Strategy<Value = String> {
    (any_entries(), prop::collection::vec(any_ask(), 0..7)).prop_map(|(entries, asks)| {
        let by_name: BTreeMap<String, String> = asks.into_iter().map(|ask| (ask[1..2].to_owned(), ask)).collect();
        format!("{entries} | {}", by_name.into_values().collect::<Vec<_>>().join(" "))
    })
}

/// Returns the specs of the Services that are served.
fn granted(there: &[Arc<ServiceSpec>], outcome: &LoadBalancerPlan, asks: &[ServiceRequest]) -> Vec<Arc<ServiceSpec>> {
    let is_asked = |spec: &Arc<ServiceSpec>| {
        asks.iter().any(|ask| *ask.identity() == spec.identity && outcome.services[ask.identity()].is_ok())
    };
    let new = asks.iter().filter(|ask| outcome.services[ask.identity()].is_ok()).filter_map(ensured_spec);
    there.iter().filter(|spec| !is_asked(spec)).cloned().chain(new.cloned().map(Arc::new)).collect()
}

/// Inputs that all plans of a round share.
#[derive(Clone, Copy)]
struct Player<'a> {
    settings: &'a LoadBalancerSettings,
    /// Whether the plans contain the public IPs of Services without a request.
    knows_all: bool,
}

impl Player<'_> {
    fn plan(&self, there: &ObservedNetwork, asks: &[ServiceRequest], others: &[Arc<ServiceSpec>]) -> LoadBalancerPlan {
        let known = others.iter().filter(|_| self.knows_all).cloned().map(ServiceRequest::Ensure);
        let public_ips = ips(&asks.iter().cloned().chain(known).collect::<Vec<_>>());
        plan_load_balancers(there, asks, others, &public_ips, self.settings)
    }
}

/// Plays the rounds and checks their results.
///
/// Each Service that is served is on one load balancer that accepts it, or where it was. No address is on two frontends. The next plan has
/// no changes.
fn play(rounds: &[impl AsRef<str>], knows_all: bool) -> Result<(), TestCaseError> {
    let (mut there, mut served) = (empty(), Vec::<Arc<ServiceSpec>>::new());
    there.namespace_labels = [("default".to_owned(), [("team".to_owned(), "x".to_owned())].into())].into();
    for (settings, asks) in rounds.iter().map(|line| parse_round(line.as_ref())) {
        let player = Player { settings: &settings, knows_all };
        let others: Vec<Arc<ServiceSpec>> =
            served.iter().filter(|spec| asks.iter().all(|ask| *ask.identity() != spec.identity)).cloned().collect();
        let outcome = player.plan(&there, &asks, &others);
        there = settle(&there, |there| player.plan(there, &asks, &others));
        served = granted(&served, &outcome, &asks);
        nothing_is_double(&there, &served)?;
        let again: Vec<ServiceRequest> =
            asks.iter().filter(|ask| outcome.services[ask.identity()].is_ok()).cloned().collect();
        let is_again = |spec: &Arc<ServiceSpec>| again.iter().any(|ask| *ask.identity() == spec.identity);
        let refused = asks.iter().filter(|ask| outcome.services[ask.identity()].is_err());
        let refused = refused.filter_map(ensured_spec).cloned().map(Arc::new);
        let rest: Vec<Arc<ServiceSpec>> = others.iter().filter(|spec| !is_again(spec)).cloned().chain(refused).collect();
        let idle = player.plan(&there, &again, &rest);
        let reasons: Vec<_> = idle.changes.iter().map(|change| (change.id.name(), &change.reasons)).collect();
        prop_assert!(reasons.is_empty(), "planned again: {:?}", reasons);
    }
    Ok(())
}

fn nothing_is_double(there: &ObservedNetwork, served: &[Arc<ServiceSpec>]) -> Result<(), TestCaseError> {
    let mut addresses = BTreeSet::new();
    for address in there.load_balancers.iter().flat_map(draft::frontends).filter_map(frontends::frontend_address) {
        prop_assert!(addresses.insert(address.clone()), "{:?} is on two front ends", address);
    }
    for spec in served {
        // A frontend that other Services use may remain.
        let has_rule =
            |document: &&ArmLoadBalancer| rule_names(document).iter().any(|name| naming::owns_rule(&spec.identity, name));
        let own: Vec<_> = there.load_balancers.iter().filter(has_rule).map(|document| document.name.clone()).collect();
        prop_assert!(own.len() <= 1, "{} is on {:?}", spec.identity.key, own);
    }
    Ok(())
}

/// Histories that the property below has found, each with a title.
const FOUND: &str = "
# the owner of a shared front end goes, and nothing is known of it but its name
kubernetes: lb2:t=b | +b:internal,pin=9,t=b,n=1 +c:internal,pin=9,t=b,n=1
kubernetes: | -b +d:internal,t=a,n=1
# the same, external
kubernetes: lb2: | +c:pin=9,t=a,n=1 +d:t=a,n=1 +f:pin=9,t=a,n=1
kubernetes: | +a:t=a,n=1 -c
# who is refused is not where it would have been
kubernetes:t=a lb3: | +a:t=a,n=1 +e:t=b,n=1
kubernetes: lb2:t=a | +a:pin=9,t=a,n=1 +e:pin=9,t=b,n=1
# an address goes from one to another who both move
kubernetes:t=b lb2: | +e:pin=9,t=c,n=1 +f:t=a,n=1
kubernetes: lb3:t=b | +a:t=a,n=1 +e:t=b,n=1 +f:pin=9,t=c,n=1
# a guest's other family goes where its host cannot
kubernetes: lb3: | +a:t=a,n=1 +b:pin=9,t=b,n=1 +f:dual,pin=9,t=a,n=1
kubernetes:t=a | +a:t=a,n=1
# two hosts of two families are spread
kubernetes:team=y lb2: | +a:dual,pin=9,t=a,n=1 +b:dual,pin=9,t=a,n=1
kubernetes: lb3: | +c:t=a,n=1
# a host is refused as internal, its guest leaves
kubernetes:closed lb3: | +b:dual,pin=9,t=a,n=1 +c:pin=9,t=a,n=1
kubernetes: | +b:internal,at=lb2,t=a,n=1 +c:t=a,n=1
# a guest is refused as external, its host stays
kubernetes: lb3: | +a:internal,at=lb3/kubernetes,t=a,n=1 +b:internal,pin=9,t=a,n=1 +d:internal,dual,pin=9,t=a,n=1
kubernetes: | +a:internal,t=a,n=1 +d:at=lb2,t=a,n=1
# two take the addresses of each other on their way
kubernetes:team=y lb2: lb3: | +a:internal,pin=8,n=1 +b:internal,pin=9,n=1
kubernetes: | +a:internal,pin=9,n=1 +b:internal,pin=8,n=1
";

#[test]
fn histories_that_once_failed_end_well() {
    let ends_badly = |history: &str| {
        let (title, rounds) = history.split_once('\n').unwrap();
        let rounds: Vec<&str> = rounds.lines().collect();
        let played = [true, false].map(|knows_all| play(&rounds, knows_all).err().map(|error| format!("{title}: {error}")));
        played.into_iter().flatten().collect::<Vec<_>>()
    };
    let failed: Vec<String> = FOUND.split("# ").skip(1).flat_map(ends_badly).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Services and entries are added, changed and removed.
    #[test]
    fn nobody_is_on_two_load_balancers(rounds in prop::collection::vec(any_round(), 1..4), knows_all: bool) {
        play(&rounds, knows_all)?;
    }
}
