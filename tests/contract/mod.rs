//! The contract: flags, defaults, fields, metrics, events, annotations and JSON keys that users and their programs rely on.
//!
//! In: the lists next to this file, with the state of commit c89ec783, and the current names from generated pages, help texts and the code
//! that builds JSON. Out: an error for each line without a current name. Lists may grow. A line that leaves one moves to `removed.txt`
//! with its reason, which the changelog gives, too; its name may not return.

mod source_keys;

use std::{collections::BTreeSet, ffi::OsString, fs};

use cloud_controller_manager::{cli, providers};

use crate::guides::blocks::root;

/// Derives the lines of a list from code or from a generated page.
type Derive = fn() -> Vec<String>;

/// Lists with the functions that derive their current lines.
const LISTS: [(&str, Derive); 7] = [
    ("flags", flags),
    ("defaults", defaults),
    ("fields", fields),
    ("metrics", metrics),
    ("events", events),
    ("annotations", annotations),
    ("json_keys", || source_keys::read("json_keys")),
];
/// Programs in the order of their columns on the page of flags, from index 4 on.
const PROGRAMS: [&str; 4] =
    ["cloud-controller-manager", "cloud-node-manager", "health-probe-proxy", "acr-credential-provider"];
/// Commands that have flags in their help only.
const COMMANDS: [&str; 7] = ["check-config", "doctor", "explain", "orphans", "plan", "status", "support-bundle"];
/// Files that define annotations without a page.
const ANNOTATION_FILES: [&str; 2] = ["src/node/well_known.rs", "src/providers/azure/acr/identity.rs"];

/// Lines of all lists, including the removed ones. May only grow.
const LINES: usize = 1194;

#[test]
fn contract_loses_no_line_without_a_reason() {
    let current: BTreeSet<String> = LISTS.iter().flat_map(|(list, derive)| named(list, derive())).collect();
    let listed: Vec<String> = LISTS.iter().flat_map(|(list, _)| named(list, lines(&format!("{list}.txt")))).collect();
    let count = listed.len() + lines("removed.txt").len();
    assert!(count >= LINES, "{count} of {LINES} lines: move removed lines to removed.txt");
    let missing: Vec<String> = listed.into_iter().filter(|line| !current.contains(line)).collect();
    assert!(missing.is_empty(), "missing, as `LIST: LINE` of tests/contract/LIST.txt:\n{}", missing.join("\n"));
    let has_reason =
        |row: &String| row.split_once(" — ").is_some_and(|(line, reason)| !reason.is_empty() && !current.contains(line));
    let invalid: Vec<String> = lines("removed.txt").into_iter().filter(|row| !has_reason(row)).collect();
    assert!(invalid.is_empty(), "no ` — REASON` in tests/contract/removed.txt, or in use:\n{}", invalid.join("\n"));
}

/// Returns the lines with the name of their list in front.
fn named(list: &str, lines: Vec<String>) -> Vec<String> {
    lines.into_iter().map(|line| format!("{list}: {line}")).collect()
}

/// Returns the lines of a file next to this one, without comments.
fn lines(name: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join("tests/contract").join(name)).unwrap();
    text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join("docs/reference").join(name)).unwrap()
}

/// Returns the cells of the rows whose first cell is code. Index 0 is the text before the first cell.
fn rows(page: &str) -> Vec<Vec<String>> {
    let text = page.replace("\\|", "/");
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    text.lines().filter(|line| line.starts_with("| `")).map(cells).collect()
}

/// Returns the pieces of code in a cell.
fn code(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Returns each program with the names of its flags and their defaults there.
fn program_flags() -> impl Iterator<Item = (&'static str, Vec<String>, String)> {
    rows(&page("flags.md")).into_iter().flat_map(|row| {
        let programs = PROGRAMS.into_iter().zip(row[4..].to_vec()).filter(|(_, cell)| !cell.is_empty());
        programs.map(move |(program, cell)| {
            let default = if cell == "yes" { &row[3] } else { &cell };
            (program, code(&row[1]), default.trim_matches(['`', '"']).to_owned())
        })
    })
}

fn flags() -> Vec<String> {
    let names =
        program_flags().flat_map(|(program, names, _)| names.into_iter().map(move |flag| format!("{program} {flag}")));
    names.chain(COMMANDS.into_iter().flat_map(flags_in_help)).collect()
}

/// Returns each flag under its first name, with its default.
fn defaults() -> Vec<String> {
    program_flags().map(|(program, names, default)| format!("{program} {}={default}", names[0])).collect()
}

fn flags_in_help(command: &str) -> Vec<String> {
    let registry = providers::registry();
    let registered = cli::RegisteredProviders { flags: registry.flags(), ..cli::RegisteredProviders::default() };
    let words = [cli::NAME, command, "--help"].map(OsString::from);
    let Ok(cli::CliCommand::Print(help)) = cli::parse_for(words, registered) else { panic!("{command} has no help") };
    let flags = help.lines().flat_map(|line| line.split_whitespace().take_while(|word| word.starts_with('-')));
    flags.filter_map(|flag| flag.split([',', '[', '=']).next()).map(|flag| format!("{command} {flag}")).collect()
}

fn fields() -> Vec<String> {
    let mut found = source_keys::read("fields");
    found.extend(providers::fake::CallName::TABLE.iter().map(|(call, _)| format!("fake: calls.{}", call.name())));
    let page = page("azure-config.md");
    let clients = page.lines().filter_map(|line| line.strip_prefix("- `")?.strip_suffix("RateLimit`"));
    found.extend(clients.map(|client| format!("azure.json: {client}RateLimit")));
    for row in rows(&page) {
        let source = if row[1].starts_with("`AZURE_") { "environment" } else { "azure.json" };
        let name = format!("{source}: {}", row[1].trim_matches('`'));
        if let Some((container, members)) = row[2].split_once("object with ") {
            let step = match container {
                "list of " => "[]",
                "map of " => ".*",
                _ => "",
            };
            found.extend(members.split(", ").map(|member| format!("{name}{step}.{member}")));
        }
        found.push(name);
    }
    found
}

/// Returns each metric, and each with one of its labels. Rows of the second table have buckets instead of labels.
fn metrics() -> Vec<String> {
    let lines_of = |row: Vec<String>| {
        let name = row[1].trim_matches('`');
        let labels = row.get(4).map(|labels| code(labels)).unwrap_or_default();
        let mut lines: Vec<String> = labels.iter().map(|label| format!("{name}{{{label}}}")).collect();
        lines.push(name.to_owned());
        lines
    };
    rows(&page("metrics.md")).into_iter().flat_map(lines_of).collect()
}

fn events() -> Vec<String> {
    let page = page("events.md");
    let sections = page.split("\nSource component `").skip(1).filter_map(|section| section.split_once("`."));
    let lines_of = |(component, section): (&str, &str)| {
        let events = rows(section).into_iter().map(|row| format!("{component} {} {}", row[2], row[1].trim_matches('`')));
        events.collect::<Vec<_>>()
    };
    sections.flat_map(lines_of).collect()
}

fn annotations() -> Vec<String> {
    let of_services = rows(&page("azure-service-annotations.md")).into_iter();
    let of_services = of_services.map(|row| format!("service.beta.kubernetes.io/{}", row[1].trim_matches('`')));
    let is_constant = |line: &&str| line.contains("ANNOTATION") && line.contains(": &str = \"");
    let constants = |path: &str| {
        let text = fs::read_to_string(root().join(path)).unwrap();
        text.lines().filter(is_constant).map(|line| line.split('"').nth(1).unwrap().to_owned()).collect::<Vec<_>>()
    };
    of_services.chain(ANNOTATION_FILES.into_iter().flat_map(constants)).collect()
}
