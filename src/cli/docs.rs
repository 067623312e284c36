//! The reference pages that derive from the tables here. Pure: a table in, Markdown out. `tests/reference_docs.rs` compares them
//! with the files.

use super::{
    controllers,
    feature_gates::{self, FeatureSpec},
    flags::{FlagSection, FlagSpec, FlagTable, acr_credential_provider, health_probe_proxy, node_manager},
};

const GENERATED: &str = "<!-- Generated from the tables in src/cli; do not edit. `make docs` writes it again. -->";

/// How flags are written, on every page of them.
const WRITING: &str = "`_` and `-` are equivalent in names. Write a value after `=` or, except for switches, as the next argument. \
     Durations use Go's syntax, for example `1m30s`. Lists are comma-separated, and you can repeat the flag to add to them; of any \
     other flag the last value applies. A bad value or an unknown flag ends the program with exit code 1.\n";

/// `docs/reference/flags.md`, for a binary with these flags.
pub fn flags(table: &FlagTable) -> String {
    let intro = "Names, types and defaults are the same as in the Go cloud-controller-manager unless a row says otherwise.";
    flag_page("Flags", intro, table.sections())
}

/// `docs/reference/cloud-node-manager.md`.
pub fn node_manager() -> String {
    let intro = "Flags of `cloud-controller-manager cloud-node-manager`, and of the program when it is called `cloud-node-manager`. Names, \
         types and defaults are the same as in Azure's Go cloud-node-manager unless a row says otherwise.";
    flag_page("Flags of cloud-node-manager", intro, &node_manager::sections())
}

/// `docs/reference/health-probe-proxy.md`.
pub fn health_probe_proxy() -> String {
    let intro = "Flags of `cloud-controller-manager health-probe-proxy`, and of the program when it is called `health-probe-proxy`. Those for \
         ports have the names and defaults of Azure's Go health-probe-proxy, and one dash will do.";
    flag_page("Flags of health-probe-proxy", intro, health_probe_proxy::SECTIONS)
}

/// `docs/reference/acr-credential-provider.md`.
pub fn acr_credential_provider() -> String {
    let intro = "Flags of `cloud-controller-manager acr-credential-provider`, and of the program when it is called `acr-credential-provider`. \
         The one argument beside them is the path of `azure.json`. Names and defaults are the same as in Azure's Go \
         acr-credential-provider unless a row says otherwise.";
    flag_page("Flags of acr-credential-provider", intro, acr_credential_provider::SECTIONS)
}

fn flag_page(title: &str, intro: &str, sections: &[FlagSection]) -> String {
    let page = format!("# {title}\n\n{GENERATED}\n\n{intro} {WRITING}");
    page + &sections.iter().map(flag_table).collect::<String>()
}

fn flag_table(section: &FlagSection) -> String {
    let head = format!("\n## {}\n\n| Flag | Value | Default | Meaning |\n|---|---|---|---|\n", section.title);
    head + &section.flags.iter().map(flag_row).collect::<String>()
}

fn flag_row(spec: &FlagSpec) -> String {
    let mut names = vec![format!("`--{}`", spec.name)];
    names.extend(spec.short.map(|letter| format!("`-{letter}`")));
    names.extend(spec.aliases.iter().map(|alias| format!("`--{alias}`")));
    let default = if spec.default.is_empty() { String::new() } else { format!("`{}`", spec.default) };
    let mut meaning = spec.help.to_owned();
    meaning.extend(spec.ignored.map(|reason| format!(" **Accepted without effect:** {reason}.")));
    meaning.extend(spec.deprecated.map(|advice| format!(" **Deprecated:** {advice}.")));
    row(&[&names.join(", "), &format!("`{}`", spec.placeholder), &default, &meaning])
}

/// `docs/reference/feature-gates.md`.
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

/// `docs/reference/controllers.md`.
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
