//! Reference page of ARM's errors, derived from the table. Pure.

use crate::providers::azure::arm::{ArmErrorEntry, CODES, ErrorRecovery};

/// Returns the text of `docs/reference/azure-errors.md`.
pub fn reference_page() -> String {
    let mut page = String::from(
        "# Errors of Azure\n\n\
         <!-- Generated from the table in src/providers/azure/arm/error_codes.rs; do not edit. `make docs` writes it again. -->\n\n\
         When Azure Resource Manager refuses a request for a Service, the Service's events and its condition \
         `cloud-controller-manager.io/LoadBalancer` show one of these reasons, the request, Azure's message, what to do, and the \
         correlation id for Azure's support. Errors that you must fix are retried slowly: after 15 s, then less often, up to every \
         five minutes, or at once when the Service changes. Other errors are retried soon, with increasing delays.\n\n\
         Sources: [Azure Load Balancer error codes](https://learn.microsoft.com/en-us/troubleshoot/azure/load-balancer/load-balancer-common-deployment-errors), \
         [common Azure deployment errors](https://learn.microsoft.com/en-us/azure/azure-resource-manager/troubleshooting/common-deployment-errors), \
         and reports from cloud-provider-azure and its users.\n\n\
         | Reason | Azure's codes | Tried again | What to do |\n|---|---|---|---|\n",
    );
    page.extend(CODES.iter().map(row));
    page
}

fn row(code: &ArmErrorEntry) -> String {
    let codes: Vec<_> = code.names().map(|code| format!("`{code}`")).collect();
    let next = match code.recovery {
        ErrorRecovery::Fix => "slowly",
        ErrorRecovery::Retry => "soon",
    };
    format!("| `{}` | {} | {next} | {} |\n", code.reason, codes.join(", "), code.fix.replace('|', "\\|"))
}
