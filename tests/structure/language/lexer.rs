//! Separates the comments, string literals and code of a source text.

/// Kind of a [`Piece`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PieceKind {
    Comment,
    Literal,
    Code,
}

/// Part of a source text.
pub(crate) struct Piece<'a> {
    pub(crate) kind: PieceKind,
    /// Line of the first character, from 1.
    pub(crate) line: usize,
    pub(crate) text: &'a str,
}

/// Returns the pieces of `text` in order. Character literals count as code.
pub(crate) fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces: Vec<Piece<'_>> = Vec::new();
    let (mut start, mut line, mut position) = (0, 1, 0);
    while position < text.len() {
        let rest = &text[position..];
        let (kind, length) = match rest.as_bytes()[0] {
            b'/' if rest.starts_with("//") => (PieceKind::Comment, rest.find('\n').unwrap_or(rest.len())),
            b'"' | b'r' | b'b' if is_literal(rest) && !ends_in_word(&text[start..position]) => {
                (PieceKind::Literal, literal_length(rest))
            }
            b'\'' => (PieceKind::Code, character_length(rest)),
            _ => (PieceKind::Code, rest.chars().next().map_or(1, char::len_utf8)),
        };
        if kind != PieceKind::Code {
            pieces.push(Piece { kind: PieceKind::Code, line, text: &text[start..position] });
            line += text[start..position].matches('\n').count();
            pieces.push(Piece { kind, line, text: &rest[..length] });
            line += rest[..length].matches('\n').count();
            start = position + length;
        }
        position += length;
    }
    pieces.push(Piece { kind: PieceKind::Code, line, text: &text[start..] });
    pieces.retain(|piece| !piece.text.is_empty());
    pieces
}

fn ends_in_word(code: &str) -> bool {
    code.ends_with(|last: char| last.is_alphanumeric() || last == '_')
}

/// Returns the number of `#` of a raw string that starts at `text`, and the length up to its opening quote.
fn raw_prefix(text: &str) -> Option<(usize, usize)> {
    let after = text.strip_prefix("br").or_else(|| text.strip_prefix('r'))?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    after[hashes..].starts_with('"').then(|| (hashes, text.len() - after.len() + hashes))
}

fn is_literal(text: &str) -> bool {
    text.starts_with('"') || text.starts_with("b\"") || raw_prefix(text).is_some()
}

fn literal_length(text: &str) -> usize {
    if let Some((hashes, prefix)) = raw_prefix(text) {
        let close = format!("\"{}", "#".repeat(hashes));
        return text[prefix + 1..].find(&close).map_or(text.len(), |found| prefix + 1 + found + close.len());
    }
    let mut is_escaped = false;
    let open = text.find('"').unwrap_or_default() + 1;
    for (index, byte) in text.bytes().enumerate().skip(open) {
        match byte {
            b'"' if !is_escaped => return index + 1,
            b'\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    text.len()
}

/// Returns the length of a character literal, or 1 for the quote of a lifetime.
fn character_length(text: &str) -> usize {
    if text[1..].starts_with('\\') {
        return text[3..].find('\'').map_or(text.len(), |found| found + 4);
    }
    let character = text[1..].chars().next().map_or(0, char::len_utf8);
    if text[1 + character..].starts_with('\'') { character + 2 } else { 1 }
}

#[test]
fn lexer_separates_comments_literals_and_code() {
    let source = "let c = '\"'; // \"no\"\nf(r#\"a \"quoted\" // text\"#, \"b\\\"\"); fn g<'a>() {}";
    let of = |kind| pieces(source).into_iter().filter(|it| it.kind == kind).map(|it| (it.line, it.text)).collect::<Vec<_>>();
    assert_eq!(of(PieceKind::Comment), [(1, "// \"no\"")]);
    assert_eq!(of(PieceKind::Literal), [(2, "r#\"a \"quoted\" // text\"#"), (2, "\"b\\\"\"")]);
}
