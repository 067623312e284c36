//! The page of the documentation about the table. Pure.

use std::fmt::Write;

use super::table::{Assumption, AssumptionTable};

/// Path of the page, from the root of the repository.
pub const PATH: &str = "docs/explanation/azure-assumptions.md";

/// Returns the page, generated from the table.
pub fn page() -> Result<String, String> {
    let table = AssumptionTable::built_in()?;
    let count = |kind: &str| table.rows.iter().filter(|row| row.source.parts().0 == kind).count();
    let mut text = format!(
        "# Assumptions about Azure\n\n\
         This page is generated from [`tests/assumptions`](../../tests/assumptions); `make docs` writes it again.\n\n\
         The program has {} beliefs about Azure Resource Manager, Microsoft Entra ID and the instance metadata service, which the simulated \
         Azure shares. Each belief is a row of the table: requests, the expected answers, and the evidence. The tests play all rows against \
         the simulated Azure. [`make verify-azure`](../guides/verify-azure.md) plays them against yours and reports which belief is wrong.\n\n\
         | Evidence | Rows |\n| --- | --- |\n\
         | Recorded answers of Azure: test data of cloud-provider-azure, or a public issue that quotes the answer | {} |\n\
         | Azure's documentation | {} |\n| Source code of cloud-provider-azure that relies on it | {} |\n| None: a guess | {} |\n",
        table.rows.len(),
        count("recording"),
        count("documentation"),
        count("go-source"),
        count("guess")
    );
    text.push_str("\n## What has not been verified on Azure\n\nThese rows are guesses. Where Azure behaves otherwise, the program may need a change.\n\n");
    text.push_str("| Row | Belief | Reason for the guess |\n| --- | --- | --- |\n");
    for row in table.rows.iter().filter(|row| row.source.is_guess()) {
        let _ = writeln!(text, "| `{}` | {} | {} |", row.id, row.belief, row.source.parts().1);
    }
    text.push_str("\n## What has evidence\n\n| Row | Belief | Evidence |\n| --- | --- | --- |\n");
    for row in table.rows.iter().filter(|row| !row.source.is_guess()) {
        let _ = writeln!(text, "| `{}` | {} | {} |", row.id, row.belief, evidence(row));
    }
    Ok(text)
}

fn evidence(row: &Assumption) -> String {
    let (kind, text) = row.source.parts();
    match kind {
        "documentation" => format!("[documentation]({text})"),
        _ if text.starts_with("https://") => format!("[{kind}]({text})"),
        _ => format!("{kind}: `{text}`"),
    }
}
