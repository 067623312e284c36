//! The page of the documentation about `azure.json`, derived from the table of fields. Pure.

use super::{
    document::MAX_BYTES,
    environment::VARIABLES,
    fields::{ConfigField, FIELDS},
    rate_limits::RATE_LIMIT_CLIENTS,
    reload::INTERVAL,
    source::ConfigSecretRef,
};

/// The text of `docs/reference/azure-config.md`.
pub fn reference_page() -> String {
    let mut page = introduction();
    for group in groups() {
        page += &format!("\n## {group}\n\n| Field | Value | Default | Meaning |\n|---|---|---|---|\n");
        page.extend(FIELDS.iter().filter(|field| field.group == group).map(field_row));
    }
    page += "\n## Rate limits by client\n\nKeys of `entries`, or of the top level, each an object with the five \
             `cloudProviderRateLimit` fields:\n\n";
    page.extend(RATE_LIMIT_CLIENTS.iter().map(|client| format!("- `{client}`\n")));
    page += "\n## Environment variables\n\nThey count for file and Secret; empty ones count as not set.\n\n\
             | Variable | Effect |\n|---|---|\n";
    page.extend(VARIABLES.iter().map(|variable| row(&[&format!("`{}`", variable.name), variable.doc])));
    page
}

fn introduction() -> String {
    let ConfigSecretRef { namespace, name, key } = ConfigSecretRef::default();
    format!(
        "# Azure configuration\n\n\
         <!-- Generated from the tables in src/providers/azure/config; do not edit. `make docs` writes it again. -->\n\n\
         The file of `--cloud-config`, the Secret of `--cloud-config-secret-name` (namespace `{namespace}` and key `{key}` unless \
         flags say otherwise; other tools call it `{name}`), or both: `cloudConfigType` in the file says `file`, `secret`, or \
         `merge`, the Secret's fields over those of the file. With `--enable-dynamic-reloading` both are read again every {} \
         seconds; a bad change does not count, and `/readyz`, `/statusz` and the log say what is wrong with it.\n\n\
         ## How a text is read\n\n\
         - YAML or JSON, at most {MAX_BYTES} bytes, one document; an empty one has every default.\n\
         - Letter case of keys and of words does not matter. Of a key that is given more than once the last value counts.\n\
         - `null` counts as not given; an empty word or a zero counts as the default, except where the table says otherwise.\n\
         - `yes`, `no`, `on` and `off` are booleans. Where a string is expected, booleans and numbers without quotes are taken \
         for one, except in the groups *Cloud and credentials*, *Requests* and *Caches*, where they are an error.\n\
         - Unknown fields are ignored with a warning that names the nearest known one. In strict mode every warning is an error.\n\
         - All problems are reported at once, with line, field and what is accepted. Values are not repeated.\n\
         - `resourceGroup` is written in lower case.\n",
        INTERVAL.as_secs()
    )
}

fn groups() -> Vec<&'static str> {
    let mut groups: Vec<_> = FIELDS.iter().map(|field| field.group).collect();
    groups.dedup();
    groups
}

fn field_row(field: &ConfigField) -> String {
    let default = if field.default.is_empty() { String::new() } else { format!("`{}`", field.default) };
    let secret = if field.secret { " **Secret:** never shown." } else { "" };
    row(&[&format!("`{}`", field.name), &(field.kind)(), &default, &format!("{}{secret}", field.doc)])
}

fn row(cells: &[&str]) -> String {
    let cells: Vec<_> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_and_variable_has_one_row() {
        let page = reference_page();
        for name in FIELDS.iter().map(|field| field.name).chain(VARIABLES.iter().map(|variable| variable.name)) {
            assert_eq!(page.matches(&format!("| `{name}` |")).count(), 1, "{name}");
        }
        assert_eq!(page.matches("**Secret:**").count(), FIELDS.iter().filter(|field| field.secret).count());
    }

    #[test]
    fn rows_have_four_cells() {
        let bars = |line: &&str| line.replace("\\|", "").matches('|').count();
        let page = reference_page();
        let table: Vec<_> = page.lines().filter(|line| line.starts_with("| `") && !line.contains("AZURE_")).collect();
        assert!(table.len() == FIELDS.len() && table.iter().all(|line| bars(line) == 5));
    }

    #[test]
    fn groups_are_not_split() {
        let mut groups = groups();
        let count = groups.len();
        groups.sort_unstable();
        groups.dedup();
        assert_eq!(groups.len(), count);
    }
}
