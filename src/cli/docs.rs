//! Reference pages that are generated from the tables of the command line. Pure: a table in, Markdown out. `tests/reference_docs.rs`
//! compares them with the files.

use std::collections::BTreeSet;

use super::{
    controllers,
    feature_gates::{self, FeatureSpec},
    flags::{FlagSection, FlagSpec, FlagTable, acr_credential_provider, health_probe_proxy, node_manager},
    version::{NAME, NODE_MANAGER},
};

const GENERATED: &str = "<!-- Generated from the tables in src/cli; do not edit. `make docs` writes it again. -->";

/// Start of the page of flags: its columns, and how flags are written.
const FLAGS_INTRO: &str = "Flags of `cloud-controller-manager` and of its subcommands `cloud-node-manager`, `health-probe-proxy` and \
     `acr-credential-provider`, which are also programs under these names. Names, types and defaults are the same as in the Go \
     programs of these names unless a row says otherwise. In the column of a program, `yes` means that it has the flag with the \
     default of the row; another value is its own default, `\"\"` an empty one. A program with an empty cell lacks the flag.\n\n\
     `_` and `-` are equivalent in names. Write a value after `=` or, except for switches, as the next argument. \
     Durations use Go's syntax, for example `1m30s`. Lists are comma-separated, and you can repeat the flag to add to them; of any \
     other flag the last value applies. A bad value or an unknown flag ends the program with exit code 1. `health-probe-proxy` accepts \
     its ports with one dash, too. The one argument of `acr-credential-provider` in addition to its flags is the path of `azure.json`.\n";

/// Name of a program, with its flags.
type ProgramFlags<'a> = (&'static str, &'a [FlagSection]);

/// Returns the text of `docs/reference/flags.md`, for a binary with these flags.
pub fn flags(table: &FlagTable) -> String {
    let of_nodes = node_manager::sections();
    let programs: [ProgramFlags<'_>; 4] = [
        (NAME, table.sections()),
        (NODE_MANAGER, &of_nodes),
        (super::health_probe_proxy::NAME, health_probe_proxy::SECTIONS),
        (super::acr_credential_provider::NAME, acr_credential_provider::SECTIONS),
    ];
    let columns = programs.map(|(program, _)| program).join(" | ");
    let head = format!("| Flag | Value | Default | {columns} | Meaning |\n|---|---|---|---|---|---|---|---|\n");
    let mut page = format!("# Flags\n\n{GENERATED}\n\n{FLAGS_INTRO}");
    let mut described = BTreeSet::new();
    for section in programs.iter().flat_map(|(_, sections)| *sections) {
        let specs = section.flags.iter().filter(|spec| described.insert(spec.name));
        let rows: String = specs.map(|spec| flag_row(spec, &programs)).collect();
        if !rows.is_empty() {
            page += &format!("\n## {}\n\n{head}{rows}", section.title);
        }
    }
    page
}

/// Returns one table of the flags of a program, without the other programs.
pub fn flag_table(sections: &[FlagSection]) -> String {
    let specs = sections.iter().flat_map(|section| section.flags.iter());
    let rows: String = specs.map(|spec| row(&flag_cells(spec).each_ref().map(String::as_str))).collect();
    format!("| Flag | Value | Default | Meaning |\n|---|---|---|---|\n{rows}")
}

fn flag_row(spec: &FlagSpec, programs: &[ProgramFlags<'_>]) -> String {
    let [names, value, default, mut meaning] = flag_cells(spec);
    let mut cells = vec![names, value, default];
    for (program, sections) in programs {
        let of_program = sections.iter().flat_map(|section| section.flags.iter()).find(|it| it.name == spec.name);
        cells.push(of_program.map_or_else(String::new, |it| match it.default {
            default if default == spec.default => "yes".to_owned(),
            "" => "`\"\"`".to_owned(),
            default => format!("`{default}`"),
        }));
        let reason = of_program.and_then(|it| it.ignored).filter(|_| spec.ignored.is_none());
        meaning.extend(reason.map(|reason| format!(" **Accepted without effect** by {program}: {reason}.")));
    }
    cells.push(meaning);
    row(&cells.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Returns names, value, default and meaning of a flag.
fn flag_cells(spec: &FlagSpec) -> [String; 4] {
    let mut names = vec![format!("`--{}`", spec.name)];
    names.extend(spec.short.map(|letter| format!("`-{letter}`")));
    names.extend(spec.aliases.iter().map(|alias| format!("`--{alias}`")));
    let default = if spec.default.is_empty() { String::new() } else { format!("`{}`", spec.default) };
    let mut meaning = spec.help.to_owned();
    meaning.extend(spec.ignored.map(|reason| format!(" **Accepted without effect:** {reason}.")));
    meaning.extend(spec.deprecated.map(|advice| format!(" **Deprecated:** {advice}.")));
    [names.join(", "), format!("`{}`", spec.placeholder), default, meaning]
}

/// Returns the text of `docs/reference/feature-gates.md`.
pub fn feature_gates() -> String {
    let mut page = format!(
        "# Feature gates\n\n{GENERATED}\n\n\
         Set gates with `--feature-gates=Name=true,Other=false`. Gates for an API server or a Go library are accepted \
         without effect, so that the flags of a Go deployment work; the log says so at start. So is an unknown gate, which a newer Kubernetes may have.\n\n\
         ## Gates with an effect\n\n| Gate | Default | Stage | Effect |\n|---|---|---|---|\n"
    );
    let cells = |gate: &FeatureSpec| [format!("`{}`", gate.name), gate.default.to_string(), gate.stage.name().to_owned()];
    for (gate, effect) in feature_gates::TABLE.iter().filter_map(|gate| gate.effect.map(|effect| (gate, effect))) {
        let [name, default, stage] = cells(gate);
        page += &row(&[&name, &default, &stage, effect]);
    }
    page += "\n## Gates without effect\n\n| Gate | Default | Stage |\n|---|---|---|\n";
    for gate in feature_gates::TABLE.iter().filter(|gate| gate.effect.is_none()) {
        let [name, default, stage] = cells(gate);
        page += &row(&[&name, &default, &stage]);
    }
    page += "\n## Retired gates\n\nReleases of Kubernetes up to the named one had these gates. They are accepted without effect, with any value.\n\n\
             | Gate | Last release |\n|---|---|\n";
    for gate in feature_gates::RETIRED {
        page += &row(&[&format!("`{}`", gate.name), &format!("1.{}", gate.last_minor)]);
    }
    page
}

/// Returns the text of `docs/reference/controllers.md`.
pub fn controllers() -> String {
    let mut page = format!(
        "# Controllers\n\n{GENERATED}\n\n\
         | Name in `--controllers` | Alias | Client and ServiceAccount | Metric label | Event source |\n\
         |---|---|---|---|---|\n"
    );
    for names in controllers::TABLE {
        let cells = [names.canonical, names.alias, names.client, names.metric, names.event_source];
        let cells = cells.map(|name| format!("`{name}`"));
        page += &row(&cells.each_ref().map(String::as_str));
    }
    page
}

fn row(cells: &[&str]) -> String {
    let cells: Vec<_> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_in_cells_are_escaped() {
        assert_eq!(row(&["a|b", "c"]), "| a\\|b | c |\n");
    }
}
