//! The documentation follows the code: generated pages match their tables, and links have targets.
//!
//! `UPDATE_DOCS=1` (`make docs`) writes the generated pages instead of failing.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, outside of test functions")]

mod status;

use std::{collections::BTreeSet, env, fs};

use cloud_controller_manager::{
    app, cli,
    providers::{self, azure},
    sandbox::verify,
    serving,
};

use crate::{
    chart_values,
    guides::blocks::{pages, root},
};

type Page = (&'static str, fn() -> String);

/// Every generated page.
const PAGES: &[Page] = &[
    ("flags.md", flags),
    ("feature-gates.md", cli::docs::feature_gates),
    ("controllers.md", cli::docs::controllers),
    ("metrics.md", metrics),
    ("doctor.md", doctor),
    ("events.md", events),
    ("status.md", status::page),
    ("chart-values.md", chart_values::page),
    ("azure-config.md", azure::config_source::reference_page),
    ("azure-errors.md", azure::load_balancer::explain::reference_page),
    ("azure-service-annotations.md", azure::planner::load_balancer::annotations::reference_page),
];

/// Generated files in other folders, by path from the root.
const ELSEWHERE: &[Page] = &[
    ("manifests/azure/admission/policy.yaml", azure::planner::load_balancer::annotations::admission_policy),
    (verify::page::PATH, assumptions),
];

fn assumptions() -> String {
    verify::page::page().unwrap()
}

fn flags() -> String {
    cli::docs::flags(&cli::flags::FlagTable::new(providers::registry().flags()))
}

fn metrics() -> String {
    serving::metrics_reference(&providers::registry().metrics())
}

fn doctor() -> String {
    let azure = providers::registry().diagnostics(azure::NAME).unwrap();
    app::doctor::reference_page(&[("Azure", azure.checks())])
}

fn events() -> String {
    use azure::{
        load_balancer::events::{COMPONENT, EVENTS},
        out_of_service,
    };
    let nodes = ("Azure nodes", COMPONENT, out_of_service::events::EVENTS);
    app::events_reference(&[("Azure load balancers", COMPONENT, EVENTS), nodes])
}

#[test]
fn generated_pages_are_up_to_date() {
    let update = env::var_os("UPDATE_DOCS").is_some();
    let mut stale = Vec::new();
    let pages = PAGES.iter().map(|(name, generate)| (root().join("docs/reference").join(name), generate()));
    for (path, page) in pages.chain(ELSEWHERE.iter().map(|(name, generate)| (root().join(name), generate()))) {
        if update {
            fs::write(&path, &page).unwrap();
        }
        if fs::read_to_string(&path).unwrap_or_default() != page {
            stale.push(path);
        }
    }
    assert!(stale.is_empty(), "out of date: {stale:?}; `make docs` writes them again");
}

#[test]
fn folder_of_generated_pages_has_no_other_pages() {
    for (path, _) in pages() {
        let is_known = |name: &str| PAGES.iter().any(|(page, _)| *page == name);
        assert!(path.strip_prefix("docs/reference/").is_none_or(is_known), "{path} is not a generated page");
    }
}

#[test]
fn relative_links_point_to_files_and_headings() {
    let broken: Vec<_> = pages().iter().flat_map(|(page, text)| broken_targets(page, text)).collect();
    assert!(broken.is_empty(), "links to files or headings that do not exist:\n{}", broken.join("\n"));
}

#[test]
fn links_outside_of_code_are_found() {
    let text =
        "[a](b.md), ![c](d.png#e \"f\")\n```sh\n[g](h)\n```\n`[i](j)` [k](<l.md>) [m](https://n) [o](#p)\n[q]: r.md\n";
    assert_eq!(relative_targets(text), ["b.md", "d.png#e", "l.md", "#p", "r.md"]);
}

fn broken_targets(page: &str, text: &str) -> Vec<String> {
    let page = root().join(page);
    let is_broken = |target: &String| {
        let (file, fragment) = target.split_once('#').unwrap_or((target, ""));
        let target_path = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
        let has_headings = target_path.extension().is_some_and(|ending| ending == "md") && !fragment.is_empty();
        !target_path.exists() || (has_headings && !fragments(&fs::read_to_string(&target_path).unwrap()).contains(fragment))
    };
    let broken = relative_targets(text).into_iter().filter(is_broken);
    broken.map(|target| format!("{}: {target}", page.display())).collect()
}

/// Returns the fragments that GitHub derives from the headings of a Markdown text.
fn fragments(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let is_retained = |letter: &char| letter.is_alphanumeric() || ['-', '_', ' '].contains(letter);
    headings
        .map(|heading| heading.to_lowercase().chars().filter(is_retained).collect::<String>().replace(' ', "-"))
        .collect()
}

/// Returns the targets of the relative links in a Markdown text.
fn relative_targets(text: &str) -> Vec<String> {
    let mut is_code = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            found.extend(targets(line));
        }
    }
    let relative = |target: &String| !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:");
    found.into_iter().filter(relative).collect()
}

fn targets(line: &str) -> Vec<String> {
    // Every other piece between backticks is code.
    let prose: String = line.split('`').step_by(2).collect();
    let inline = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    let definition = prose.strip_prefix('[').and_then(|line| line.split_once("]: ")).map(|(_, target)| target);
    let target = |text: &str| text.split_whitespace().next().unwrap_or_default().trim_matches(['<', '>']).to_owned();
    inline.chain(definition).map(target).collect()
}
