//! The page of the documentation about `azure.json`, derived from the table of fields. Pure.

use super::{INTERVAL, default_secret};
use crate::{
    cloud_provider::config::SecretRef,
    providers::azure::config::{ConfigField, FIELDS, MAX_BYTES, RATE_LIMIT_CLIENTS, VARIABLES},
};

/// Returns the text of `docs/reference/azure-config.md`.
pub fn reference_page() -> String {
    let mut page = introduction();
    for group in groups() {
        page += &format!("\n## {group}\n\n| Field | Value | Default | Meaning |\n|---|---|---|---|\n");
        page.extend(FIELDS.iter().filter(|field| field.group == group).map(field_row));
    }
    page += "\n## Rate limits by client\n\nKeys of `entries`, or of the top level, each an object with the five \
             `cloudProviderRateLimit` fields:\n\n";
    page.extend(RATE_LIMIT_CLIENTS.iter().map(|client| format!("- `{client}`\n")));
    page += "\n## Environment variables\n\nThey override the file and the Secret. An empty variable counts as not set.\n\n\
             | Variable | Effect |\n|---|---|\n";
    page.extend(VARIABLES.iter().map(|variable| row(&[&format!("`{}`", variable.name), variable.doc])));
    page
}

fn introduction() -> String {
    let SecretRef { namespace, name, key } = default_secret();
    format!(
        "# Azure configuration\n\n\
         <!-- Generated from the tables in src/providers/azure/config; do not edit. `make docs` writes it again. -->\n\n\
         The configuration comes from the file of `--cloud-config`, from the Secret of `--cloud-config-secret-name`, or from both. \
         The Secret's default namespace is `{namespace}`, its default key is `{key}`, and other tools call it `{name}`. With both, \
         `cloudConfigType` in the file selects `file`, `secret`, or `merge`, in which fields of the Secret override those of the \
         file. With `--enable-dynamic-reloading` the program reads both again every {} seconds. It does not apply an invalid change; \
         `/readyz`, `/statusz` and the log report the error.\n\n\
         ## Syntax\n\n\
         - YAML or JSON, at most {MAX_BYTES} bytes, one document. An empty document means all defaults.\n\
         - Keys and enumerated values are case-insensitive. If a key occurs more than once, the last value applies.\n\
         - `null` means not set. An empty string or a zero means the default, except where the table says otherwise.\n\
         - `yes`, `no`, `on` and `off` are booleans. Where a string is expected, unquoted booleans and numbers are read as \
         strings, except in the groups *Cloud and credentials*, *Requests* and *Caches*, where they are an error.\n\
         - Unknown fields are ignored with a warning that names the nearest known field. In strict mode every warning is an error.\n\
         - All problems are reported at once, with line, field and the accepted values. The report never repeats values.\n\
         - `resourceGroup` is converted to lower case.\n",
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
    fn every_field_and_variable_has_one_row_of_four_cells() {
        let page = reference_page();
        for name in FIELDS.iter().map(|field| field.name).chain(VARIABLES.iter().map(|variable| variable.name)) {
            assert_eq!(page.matches(&format!("| `{name}` |")).count(), 1, "{name}");
        }
        let table: Vec<_> = page.lines().filter(|line| line.starts_with("| `") && !line.contains("AZURE_")).collect();
        let has_four_cells = |line: &&str| line.replace("\\|", "").matches('|').count() == 5;
        assert!(table.len() == FIELDS.len() && table.iter().all(has_four_cells));
        assert_eq!(page.matches("**Secret:**").count(), FIELDS.iter().filter(|field| field.secret).count());
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
