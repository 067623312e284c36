//! HTML writer. Markup comes from the source of the program only; everything else is escaped by [`HtmlPage::text`].
//!
//! In: literals and untrusted texts. Out: a page in which no text can become markup, and which reports when it is full.
//! Pure.

use crate::runtime::text::{is_disruptive, truncate};

/// Bytes of one text.
const TEXT_LIMIT: usize = 400;
/// Bytes after which no table gets another row.
const FULL: usize = 320 * 1024;

/// HTML page with a size limit.
pub(super) struct HtmlPage {
    pub(super) written: String,
}

impl HtmlPage {
    pub(super) fn new() -> Self {
        Self { written: String::with_capacity(32 * 1024) }
    }

    /// Adds markup, which no caller can make from data.
    pub(super) fn markup(&mut self, markup: &'static str) -> &mut Self {
        self.written.push_str(markup);
        self
    }

    /// Adds an untrusted text, truncated and escaped, for the inside of an element or of an attribute in quotes.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        for letter in truncate(text, TEXT_LIMIT).chars() {
            match letter {
                '&' => self.written.push_str("&amp;"),
                '<' => self.written.push_str("&lt;"),
                '>' => self.written.push_str("&gt;"),
                '"' => self.written.push_str("&quot;"),
                '\'' => self.written.push_str("&#39;"),
                other => self.written.push(visible(other)),
            }
        }
        self
    }

    /// Adds a text between two pieces of markup.
    pub(super) fn element(&mut self, open: &'static str, text: &str, close: &'static str) -> &mut Self {
        self.markup(open).text(text).markup(close)
    }

    /// Returns `true` if tables must end.
    pub(super) fn is_full(&self) -> bool {
        self.written.len() >= FULL
    }
}

/// Characters that would change how the text around them looks become visible.
fn visible(letter: char) -> char {
    match letter {
        '\n' | '\t' => ' ',
        other if is_disruptive(other) => '\u{FFFD}',
        other => other,
    }
}

/// Encodes the text as a value in a query: only letters, digits and `-._~/` are unchanged.
pub(super) fn percent_encoded(text: &str) -> String {
    let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    text.bytes()
        .map(|byte| if is_unreserved(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_cannot_become_markup() {
        let rows = [
            ("", ""),
            ("default/web", "default/web"),
            ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
            ("\" onload=\"x", "&quot; onload=&quot;x"),
            ("' onload='x", "&#39; onload=&#39;x"),
            ("&lt;", "&amp;lt;"),
            ("a\nb\tc\0d\u{7F}", "a b c\u{FFFD}d\u{FFFD}"),
            ("admin\u{202E}nimda\u{200B}", "admin\u{FFFD}nimda\u{FFFD}"),
            ("žluťoučký 服务 🙂", "žluťoučký 服务 🙂"),
        ];
        for (text, expected) in rows {
            let mut page = HtmlPage::new();
            page.text(text);
            assert_eq!(page.written, expected, "{text:?}");
        }
    }

    #[test]
    fn texts_are_cut_and_pages_know_when_they_are_full() {
        let mut page = HtmlPage::new();
        page.text(&"'".repeat(10 * TEXT_LIMIT));
        assert!(page.written.len() <= 5 * TEXT_LIMIT + '…'.len_utf8() && page.written.ends_with('…'));
        assert!(!page.is_full());
        page.written.push_str(&" ".repeat(FULL));
        assert!(page.is_full());
    }

    #[test]
    fn queries() {
        let rows = [("default/web", "default/web"), ("a&b=\"<", "a%26b%3D%22%3C"), ("é#", "%C3%A9%23")];
        for (text, expected) in rows {
            assert_eq!(percent_encoded(text), expected);
        }
    }
}
