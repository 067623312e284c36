//! The language of the sources: names, comments, texts and pages use standard terms and plain technical English.
//!
//! In: the sources of product, sandbox and tests, and the pages. Out: failures with file, line and what to write instead. Each check has
//! one number for the product, one for the tests and one for the pages in `language/bars.txt`, which may only fall.

pub(crate) mod docs;
mod lexer;
mod names;
mod pages;
mod report;
mod texts;
mod words;

use report::{Finding, Source, assert_bars};

fn in_sources(check: impl Fn(&Source) -> Vec<Finding>) -> Vec<Finding> {
    Source::read_all().iter().flat_map(check).collect()
}

/// Names are standard terms (I1: parts, I2: whole names); tests are named `subject_condition_outcome` (T1).
#[test]
fn names_are_standard_terms() {
    assert_bars(&["I1", "I2", "T1 length", "T1 words"], &in_sources(names::check));
}

/// Functions start with a verb (D1), other items with a noun (D2), and none with a reference (D4). No doc is of three words (D3), or has a
/// first paragraph of more than 30 (D5), and quoted names exist (D6).
#[test]
fn docs_say_what_signatures_cannot() {
    assert_bars(&["D1", "D2", "D3", "D4", "D5", "D6"], &in_sources(docs::check));
}

/// Comments (C1, C2) and texts for users (M1) are free of idioms, errors have one form (M3), and words and terms one spelling (S1, S2).
#[test]
fn texts_are_plain_technical_english() {
    let mut findings = in_sources(texts::check);
    findings.extend(pages::check_pages().into_iter().filter(|it| it.check.starts_with('S')));
    assert_bars(&["C1", "C2", "M1", "M3", "S1", "S2"], &findings);
}

/// Flags and commands describe themselves in one form (M2).
#[test]
fn help_has_one_form() {
    let mut findings = in_sources(pages::check_help);
    findings.extend(pages::check_flags());
    assert_bars(&["M2 flags", "M2 help"], &findings);
}

/// Sentences of hand-written pages are short (W1), and quoted log texts exist (W2).
#[test]
fn pages_are_short_and_true() {
    let mut findings = pages::check_pages();
    findings.retain(|it| it.check.starts_with('W'));
    findings.extend(pages::check_log_quotes(&Source::read_all()));
    assert_bars(&["W1 over 25", "W1 over 40", "W2"], &findings);
}
