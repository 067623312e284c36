//! Checks of comments and string literals.

use super::{
    lexer::{Piece, PieceKind, pieces},
    report::{Finding, Source},
    words::{BRITISH_PARTS, IDIOMS, SECOND_SPELLINGS, SOFT_IDIOMS, TEXT_IDIOMS, find_phrases},
};

/// Proper names that an error text may start with.
const PROPER_NAMES: &[&str] = &["ARM", "Azure", "HTTP", "IMDS", "Kubernetes", "Lease", "Node", "Service", "TLS"];

/// Returns the findings of C1, C2, M1, M3, S1 and S2.
pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut code = String::new();
    for piece in pieces(&source.text) {
        match piece.kind {
            PieceKind::Comment => check_comment(source, &piece, &mut findings),
            PieceKind::Literal => check_literal(source, &piece, code.ends_with("#[error("), &mut findings),
            PieceKind::Code => {}
        }
        check_spelling(source, &piece, &mut findings);
        if piece.kind == PieceKind::Code {
            code = piece.text.trim_end().to_owned();
        }
    }
    findings
}

fn line_of(piece: &Piece<'_>, position: usize) -> usize {
    piece.line + piece.text[..position].matches('\n').count()
}

fn check_comment(source: &Source, piece: &Piece<'_>, findings: &mut Vec<Finding>) {
    for (check, table) in [("C1", IDIOMS), ("C2", SOFT_IDIOMS)] {
        for (_, (idiom, instead)) in find_phrases(piece.text, table) {
            findings.push(source.finding(check, piece.line, *idiom, *instead));
        }
    }
}

fn check_literal(source: &Source, piece: &Piece<'_>, is_error: bool, findings: &mut Vec<Finding>) {
    let is_product = source.area_at(piece.line) == "product" && !source.is_sandbox();
    if !is_product || !piece.text.trim_matches('"').contains(' ') {
        return;
    }
    for (position, (idiom, instead)) in [IDIOMS, TEXT_IDIOMS].into_iter().flat_map(|table| find_phrases(piece.text, table)) {
        findings.push(source.finding("M1", line_of(piece, position), *idiom, *instead));
    }
    let text = piece.text.trim_matches('"');
    let first = text.split([' ', ':']).next().unwrap_or_default();
    let starts_well = !first.starts_with(|it: char| it.is_ascii_uppercase()) || PROPER_NAMES.contains(&first);
    if is_error && (!starts_well || text.ends_with('.')) {
        findings.push(source.finding("M3", piece.line, text, "lowercase, without a final period"));
    }
}

/// Checks S1 everywhere, and S2 outside of code.
fn check_spelling(source: &Source, piece: &Piece<'_>, findings: &mut Vec<Finding>) {
    for (position, word) in british(piece.text) {
        findings.push(source.finding("S1", line_of(piece, position), word, "American spelling"));
    }
    if piece.kind != PieceKind::Code {
        for (position, (spelling, instead)) in find_phrases(piece.text, SECOND_SPELLINGS) {
            findings.push(source.finding("S2", line_of(piece, position), *spelling, *instead));
        }
    }
}

/// Returns the British words of `text` with their positions.
pub(crate) fn british(text: &str) -> Vec<(usize, &'static str)> {
    let lower = text.to_ascii_lowercase();
    let mut found: Vec<_> = BRITISH_PARTS
        .split_whitespace()
        .flat_map(|part| lower.match_indices(part).map(|(at, _)| (at, part)).collect::<Vec<_>>())
        .collect();
    found.sort_unstable();
    found
}
