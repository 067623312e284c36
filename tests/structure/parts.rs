//! Parts import one way: those of the azure provider along the architecture's arrows, and no two neighbours in any folder each other.
//!
//! In: which file names which, re-exports followed. Out: failures that name the two files.

use std::collections::{BTreeMap, BTreeSet};

use crate::structure::source::{ModulePath, Sources};

/// Parts of the azure provider, and those that each may name.
const AZURE: &[(&str, &str)] = &[
    ("acr", "auth config provider transport"),
    ("local", "auth metadata provider"),
    ("topics", "config load_balancer metadata node out_of_service planner"),
    ("diagnostics", "arm arm::documents auth check config inventory load_balancer node planner provider session transport"),
    ("check", "arm::documents config inventory load_balancer planner"),
    (
        "provider",
        "admission arm auth config gauges load_balancer \
         metrics node out_of_service session session_proxy transport",
    ),
    ("gauges", "auth metrics session"),
    ("admission", "arm arm::documents config planner session session_proxy"),
    ("session_proxy", "load_balancer session"),
    ("session", "arm auth config instances inventory load_balancer planner pod_cidr_masks routes transport"),
    ("pod_cidr_masks", "arm arm::documents instances inventory"),
    ("routes", "arm arm::documents instances inventory node operation_metrics planner"),
    ("load_balancer", "arm arm::documents config inventory metrics node operation_metrics planner"),
    ("metadata", "arm::documents config instances inventory node transport"),
    ("planner", "arm arm::documents config instances inventory node"),
    ("instances", "arm arm::documents config inventory node"),
    ("out_of_service", "node"),
    ("inventory", "arm arm::documents config"),
    ("arm", "arm::documents auth config metrics transport"),
    ("auth", "arm::documents config transport"),
    ("config", "arm::documents"),
    ("arm::documents", ""),
    ("node", ""),
    ("operation_metrics", "metrics"),
    ("metrics", ""),
    ("transport", ""),
];

/// Folders that their folder's neighbours may name although it names them: the vocabulary that everything around it speaks.
const VOCABULARIES: &[(&str, &str)] =
    &[("providers::azure::arm::documents", "ARM's ids and documents; names nothing else of the crate")];

/// Neighbours that name each other, and why they stay.
const MUTUAL: &[(&str, &str, &str)] = &[
    (
        "planner::load_balancer::annotations",
        "planner::load_balancer::spec",
        "the table's formats make refusals and ranges of the spec, whose reader looks into the table",
    ),
    (
        "planner::load_balancer::naming",
        "planner::load_balancer::spec",
        "names are made of a Service's identity and families, which the spec declares and its parser names",
    ),
    (
        "planner::load_balancer::settings",
        "planner::load_balancer::spec",
        "one setting is a policy about a field of the spec, whose parser heeds the settings",
    ),
    ("runtime::leader_election", "runtime::patch", "patches ask `Leadership`; the elector writes the Lease through them"),
];

/// The part of the azure provider that a file belongs to.
fn part_of(module: &ModulePath) -> Option<&'static str> {
    let inside = module.join("::").strip_prefix("providers::azure::")?.to_owned();
    let is_inside = |part: &str| inside == part || inside.starts_with(&format!("{part}::"));
    let fitting = AZURE.iter().map(|(part, _)| *part).filter(|part| is_inside(part));
    fitting.max_by_key(|part| part.len())
}

#[test]
fn parts_of_azure_follow_the_arrows() {
    let sources = Sources::read();
    let is_lost = |module: &&ModulePath| module.starts_with(&["providers".to_owned(), "azure".to_owned()]);
    let lost = sources.files.keys().filter(is_lost).filter(|module| module.len() > 2 && part_of(module).is_none());
    let lost: Vec<_> = lost.collect();
    assert!(lost.is_empty(), "files without a row in AZURE: {lost:?}");
    let mut used = BTreeSet::new();
    let mut wrong = Vec::new();
    for (from, targets) in sources.edges() {
        let Some(part) = part_of(from) else { continue };
        for (to, other) in targets.into_iter().filter_map(|to| Some((to, part_of(to)?))).filter(|(_, other)| *other != part)
        {
            used.insert((part, other));
            if !AZURE.iter().any(|(name, others)| *name == part && others.split_whitespace().any(|it| it == other)) {
                wrong.push(format!("{} must not name {}", from.join("::"), to.join("::")));
            }
        }
    }
    assert!(wrong.is_empty(), "`{}`", wrong.join("\n"));
    let rows = AZURE.iter().flat_map(|(part, others)| others.split_whitespace().map(move |other| (*part, other)));
    let unused: Vec<_> = rows.filter(|row| !used.contains(row)).collect();
    assert!(unused.is_empty(), "arrows that nobody needs any more: {unused:?}");
}

#[test]
fn the_arrows_of_azure_lead_downwards() {
    for (place, (part, others)) in AZURE.iter().enumerate() {
        let is_below = |other: &&str| AZURE[place + 1..].iter().any(|(name, _)| name == other);
        let upwards: Vec<_> = others.split_whitespace().filter(|other| !is_below(other)).collect();
        assert!(upwards.is_empty(), "`{part}` names what stands above it, or nowhere: {upwards:?}");
    }
}

/// Of two files the folders or files in their first common folder, by their full names.
fn neighbours(from: &ModulePath, to: &ModulePath) -> Option<(String, String)> {
    let common = from.iter().zip(to).take_while(|(one, other)| one == other).count();
    Some((from.get(..=common)?.join("::"), to.get(..=common)?.join("::")))
}

#[test]
fn no_two_neighbours_name_each_other() {
    let sources = Sources::read();
    let mut named: BTreeMap<(String, String), String> = BTreeMap::new();
    for (from, targets) in sources.edges() {
        let is_word = |to: &ModulePath| VOCABULARIES.iter().any(|(folder, _)| to.join("::").starts_with(folder));
        for (to, pair) in targets.into_iter().filter(|to| !is_word(to)).filter_map(|to| Some((to, neighbours(from, to)?))) {
            named.insert(pair, format!("{} names {}", from.join("::"), to.join("::")));
        }
    }
    let back = |(one, other): &(String, String)| named.get(&(other.clone(), one.clone()));
    let mutual: Vec<_> = named.iter().filter(|(pair, _)| pair.0 < pair.1).filter_map(|it| Some((it, back(it.0)?))).collect();
    let is_known = |pair: &(String, String), row: &(&str, &str, &str)| pair.0.ends_with(row.0) && pair.1.ends_with(row.1);
    let new: Vec<_> = mutual.iter().filter(|((pair, _), _)| !MUTUAL.iter().any(|row| is_known(pair, row))).collect();
    assert!(new.is_empty(), "neighbours that name each other: {new:#?}");
    let gone: Vec<_> = MUTUAL.iter().filter(|row| !mutual.iter().any(|((pair, _), _)| is_known(pair, row))).collect();
    assert!(gone.is_empty(), "they no longer name each other: {gone:?}");
}
