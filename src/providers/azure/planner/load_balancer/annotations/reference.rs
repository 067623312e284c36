//! Documentation page about annotations of Services, derived from the table. Pure.

use super::{ANNOTATIONS, AnnotationEntry, PREFIX};

/// Returns the text of `docs/reference/azure-service-annotations.md`.
pub fn reference_page() -> String {
    let mut page = introduction();
    for group in groups() {
        page += &format!("\n## {group}\n\n| Annotation | Value | Default | Meaning |\n|---|---|---|---|\n");
        page.extend(ANNOTATIONS.iter().filter(|row| row.group == group).map(row));
    }
    page
}

fn introduction() -> String {
    format!(
        "# Service annotations on Azure\n\n\
         <!-- Generated from the table in src/providers/azure/planner/load_balancer/annotations.rs; do not edit. `make docs` writes it again. -->\n\n\
         Annotations of Services of type `LoadBalancer`. Every key begins with `{PREFIX}`, which the tables omit. Keys are case-sensitive.\n\n\
         - All problems of a Service are reported at once, each with its annotation or field and the accepted values. Until you fix \
         them, the program changes nothing of the Service in Azure. You can always delete the Service.\n\
         - Unknown keys that begin with `azure-` or `port_` are ignored with a warning that names the nearest known key.\n\
         - `{{p}}` is the number of a port of the Service.\n"
    )
}

fn groups() -> Vec<&'static str> {
    let mut groups: Vec<_> = ANNOTATIONS.iter().map(|row| row.group).collect();
    groups.dedup();
    groups
}

fn row(row: &AnnotationEntry) -> String {
    let name = row.key.trim_start_matches(PREFIX);
    let cells = [format!("`{name}`"), (row.accepts)(), row.default.to_owned(), row.doc.to_owned()];
    format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | "))
}
