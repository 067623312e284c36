//! The page of the documentation about ARM's errors, derived from the table. Pure.

use super::codes::{ArmErrorEntry, CODES, ErrorRecovery};

/// The text of `docs/reference/azure-errors.md`.
pub fn reference_page() -> String {
    let mut page = String::from(
        "# Errors of Azure\n\n\
         <!-- Generated from the table in src/providers/azure/load_balancer/explain/codes.rs; do not edit. `make docs` writes it again. -->\n\n\
         When Azure Resource Manager refuses what a Service needs, the Service's events and its condition \
         `cloud-controller-manager.io/LoadBalancer` show one of these reasons, the request, Azure's own words, what to do, and the correlation id, which Azure's support asks for. \
         Errors that somebody has to mend are tried again every five minutes, or at once when the Service changes; \
         the others with a growing pause.\n\n\
         Sources: [Azure Load Balancer error codes](https://learn.microsoft.com/en-us/troubleshoot/azure/load-balancer/load-balancer-common-deployment-errors), \
         [common Azure deployment errors](https://learn.microsoft.com/en-us/azure/azure-resource-manager/troubleshooting/common-deployment-errors), \
         and what cloud-provider-azure and its users have met.\n\n\
         | Reason | Azure's codes | Tried again | What to do |\n|---|---|---|---|\n",
    );
    page.extend(CODES.iter().map(row));
    page
}

fn row(code: &ArmErrorEntry) -> String {
    let codes: Vec<_> = code.codes.iter().map(|code| format!("`{code}`")).collect();
    let next = match code.recovery {
        ErrorRecovery::Mend => "slowly",
        ErrorRecovery::Retry => "soon",
    };
    format!("| `{}` | {} | {next} | {} |\n", code.reason, codes.join(", "), code.fix.replace('|', "\\|"))
}
