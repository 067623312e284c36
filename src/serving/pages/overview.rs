//! Page `/`: status of this replica for browsers.
//!
//! In: the value of `/statusz` and the results of `/readyz`. Out: one HTML document without scripts, images or further
//! requests, so that it can be saved and sent. Pure. The size is bounded for all values.

mod facts;
mod html;
mod sections;

pub(super) use self::facts::OverviewInput;
use self::html::HtmlPage;

/// Only style sheet, whose hash is in both policies.
const STYLE: &str = include_str!("overview/style.css");

/// Returns the content security policy in the document, which also applies to a saved copy.
macro_rules! document_policy {
    () => {
        "default-src 'none'; style-src 'sha256-NTIypiSjFA602MYwypvbjvGrYSXXLn0zpjcoTb/NZqE='; base-uri 'none'; form-action 'none'"
    };
}

/// Content security policy of the response.
pub(super) const POLICY: &str = concat!(document_policy!(), "; frame-ancestors 'none'");

/// Renders the whole document.
pub(super) fn render(input: &OverviewInput<'_>) -> String {
    let mut page = HtmlPage::new();
    page.markup("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta http-equiv=\"Content-Security-Policy\" content=\"")
        .markup(document_policy!())
        .markup("\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>cloud-controller-manager</title>")
        .markup("<style>")
        .markup(STYLE)
        .markup("</style></head><body>");
    sections::all(&mut page, input);
    page.markup("</body></html>\n");
    page.written
}

#[cfg(test)]
mod tests;
