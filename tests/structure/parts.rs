//! Parts import one way: those of the azure provider follow the arrows of the architecture, and no two neighbors in a folder import each
//! other.
//!
//! In: the files that each file names, through re-exports. Out: failures that name the two files.

use std::collections::{BTreeMap, BTreeSet};

use crate::structure::source::{ModulePath, Sources};

/// Parts, each with the parts that it may name. These have later rows.
type Arrows = [(&'static str, &'static str)];

/// Folders and files of the azure provider: one row each, so that their graph has no cycle.
const AZURE: &Arrows = &[
    ("acr", "auth config config_source provider transport"),
    ("local", "auth metadata provider"),
    ("topics", "config_source load_balancer metadata node out_of_service planner"),
    (
        "diagnostics",
        "arm auth check config config_source inventory load_balancer model node planner provider session transport",
    ),
    ("check", "config inventory load_balancer model planner"),
    (
        "provider",
        "admission arm auth config config_source gauges load_balancer \
         metrics node out_of_service session session_proxy transport",
    ),
    ("gauges", "auth metrics session"),
    ("admission", "arm config model planner session session_proxy"),
    ("session_proxy", "load_balancer session"),
    ("session", "arm auth config instances inventory load_balancer planner pod_cidr_masks routes transport"),
    ("pod_cidr_masks", "arm instances inventory model"),
    ("routes", "arm instances inventory model node operation_metrics planner"),
    ("load_balancer", "arm config inventory metrics model node operation_metrics planner"),
    ("metadata", "config instances model node transport"),
    ("instances", "config inventory model node"),
    ("out_of_service", "node"),
    ("inventory", "arm config model"),
    ("arm", "auth config metrics model transport"),
    ("auth", "config model transport"),
    ("planner", "config model node"),
    ("config_source", "config"),
    ("config", "model"),
    ("operation_metrics", "metrics model"),
    ("model", ""),
    ("node", ""),
    ("metrics", ""),
    ("transport", ""),
];

/// Neighbors that name each other, with the reasons.
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
        "one setting is a policy about a field of the spec, whose parser reads the settings",
    ),
    ("runtime::leader_election", "runtime::patch", "patches check `Leadership`; the elector writes the Lease through them"),
];

/// Returns the part to which a file below `prefix` belongs.
fn part_of(prefix: &str, arrows: &'static Arrows, module: &ModulePath) -> Option<&'static str> {
    let inside = module.join("::").strip_prefix(prefix)?.to_owned();
    let is_inside = |part: &str| inside == part || inside.starts_with(&format!("{part}::"));
    let fitting = arrows.iter().map(|(part, _)| *part).filter(|part| is_inside(part));
    fitting.max_by_key(|part| part.len())
}

/// Fails unless each file below `prefix` is in a part, and parts name exactly what their rows say: parts below them. `is_free` allows single
/// edges.
pub(crate) fn assert_arrows(prefix: &str, arrows: &'static Arrows, is_free: impl Fn(&ModulePath, &ModulePath) -> bool) {
    let sources = Sources::with_sandbox();
    let part = |module: &ModulePath| part_of(prefix, arrows, module);
    let is_lost = |module: &&ModulePath| module.join("::").starts_with(prefix) && part(module).is_none();
    let lost: Vec<_> = sources.files.keys().filter(is_lost).collect();
    assert!(lost.is_empty(), "files without a row: {lost:?}");
    let rows = || arrows.iter().flat_map(|(part, others)| others.split_whitespace().map(move |other| (*part, other)));
    let (mut used, mut violations) = (BTreeSet::new(), Vec::new());
    for (from, targets) in sources.edges() {
        for to in targets.into_iter().filter(|to| !is_free(from, to)) {
            let (Some(source), Some(target)) = (part(from), part(to)) else { continue };
            used.insert((source, target));
            if source != target && !rows().any(|row| row == (source, target)) {
                violations.push(format!("{} must not name {}", from.join("::"), to.join("::")));
            }
        }
    }
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    let unused: Vec<_> = rows().filter(|row| !used.contains(row)).collect();
    assert!(unused.is_empty(), "arrows without an import: {unused:?}");
    let position = |part: &str| arrows.iter().position(|(name, _)| *name == part);
    let upwards: Vec<_> = rows().filter(|(part, other)| position(other) <= position(part)).collect();
    assert!(upwards.is_empty(), "parts that name a part above them, or one without a row: {upwards:?}");
}

#[test]
fn parts_of_azure_follow_the_arrows() {
    assert_arrows("providers::azure::", AZURE, |_, _| false);
}

/// Returns the entries of the first common folder that lead to two files, by their full names.
fn neighbors(from: &ModulePath, to: &ModulePath) -> Option<(String, String)> {
    let common = from.iter().zip(to).take_while(|(left, right)| left == right).count();
    Some((from.get(..=common)?.join("::"), to.get(..=common)?.join("::")))
}

#[test]
fn neighbors_never_import_each_other() {
    let sources = Sources::read();
    let mut named: BTreeMap<(String, String), String> = BTreeMap::new();
    for (from, targets) in sources.edges() {
        for (to, pair) in targets.into_iter().filter_map(|to| Some((to, neighbors(from, to)?))) {
            named.insert(pair, format!("{} names {}", from.join("::"), to.join("::")));
        }
    }
    let back = |(from, to): &(String, String)| named.get(&(to.clone(), from.clone()));
    let mutual: Vec<_> = named.iter().filter(|(pair, _)| pair.0 < pair.1).filter_map(|it| Some((it, back(it.0)?))).collect();
    let is_known = |pair: &(String, String), row: &(&str, &str, &str)| pair.0.ends_with(row.0) && pair.1.ends_with(row.1);
    let new: Vec<_> = mutual.iter().filter(|((pair, _), _)| !MUTUAL.iter().any(|row| is_known(pair, row))).collect();
    assert!(new.is_empty(), "neighbors that name each other: {new:#?}");
    let obsolete: Vec<_> = MUTUAL.iter().filter(|row| !mutual.iter().any(|((pair, _), _)| is_known(pair, row))).collect();
    assert!(obsolete.is_empty(), "rows of parts that do not name each other: {obsolete:?}");
}
