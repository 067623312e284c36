//! Digest of annotations that are not kept, so that a change of them is still a change of the object. Pure.
//!
//! In: keys and values, decoded or as JSON text. Out: a number that does not depend on the order, and is the same for both
//! spellings.

/// The annotation that carries the digest of those that are not kept.
pub const UNREAD_ANNOTATIONS: &str = "cloud-controller-manager/unread-annotations";

/// Offset basis of FNV-1a.
const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;
/// Separates a key from its value: no byte of UTF-8.
const SEPARATOR: u8 = 0xff;

/// Position within an escape of JSON text.
#[derive(Debug, Default, Clone, Copy)]
enum JsonEscape {
    #[default]
    None,
    Begun,
    /// Digits of `\u` so far, and their value.
    Unicode(u8, u32),
}

/// Sum of the hashes of members.
#[derive(Debug, Default, Clone, Copy)]
pub struct AnnotationDigest {
    sum: u64,
    member: u64,
    escape: JsonEscape,
}

impl AnnotationDigest {
    /// Continues from what [`UNREAD_ANNOTATIONS`] says.
    pub fn resume(text: Option<&str>) -> Self {
        Self { sum: text.and_then(|text| u64::from_str_radix(text, 16).ok()).unwrap_or_default(), ..Self::default() }
    }

    /// Adds a decoded member.
    pub fn add(&mut self, key: &str, value: &str) {
        self.begin(key.as_bytes());
        value.bytes().for_each(|byte| self.hash(byte));
        self.end();
    }

    /// Begins a member whose value follows as JSON text.
    pub(super) fn begin(&mut self, key: &[u8]) {
        (self.member, self.escape) = (OFFSET, JsonEscape::None);
        key.iter().for_each(|byte| self.hash(*byte));
        self.hash(SEPARATOR);
    }

    /// Takes in JSON text of a value, without its quotes.
    pub(super) fn json(&mut self, text: &[u8]) {
        text.iter().for_each(|byte| self.json_byte(*byte));
    }

    /// Adds the current member to the sum.
    pub(super) fn end(&mut self) {
        self.sum = self.sum.wrapping_add(self.member);
    }

    /// Returns the text of [`UNREAD_ANNOTATIONS`]; `None` if no member was added.
    pub fn text(&self) -> Option<String> {
        (self.sum != 0).then(|| format!("{:016x}", self.sum))
    }

    fn hash(&mut self, byte: u8) {
        self.member = (self.member ^ u64::from(byte)).wrapping_mul(PRIME);
    }

    fn json_byte(&mut self, byte: u8) {
        self.escape = match (self.escape, byte) {
            (JsonEscape::None, b'\\') => JsonEscape::Begun,
            (JsonEscape::None, _) => {
                self.hash(byte);
                JsonEscape::None
            }
            (JsonEscape::Begun, b'u') => JsonEscape::Unicode(0, 0),
            (JsonEscape::Begun, _) => {
                self.hash(unescaped(byte));
                JsonEscape::None
            }
            (JsonEscape::Unicode(digits, value), _) => self.digit(digits, value * 16 + hex(byte)),
        };
    }

    fn digit(&mut self, digits: u8, value: u32) -> JsonEscape {
        if digits < 3 {
            return JsonEscape::Unicode(digits + 1, value);
        }
        let mut utf8 = [0; 4];
        // The API server does not write surrogates.
        let letter = char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER);
        letter.encode_utf8(&mut utf8).bytes().for_each(|byte| self.hash(byte));
        JsonEscape::None
    }
}

fn unescaped(letter: u8) -> u8 {
    match letter {
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'b' => 8,
        b'f' => 12,
        other => other,
    }
}

fn hex(digit: u8) -> u32 {
    char::from(digit).to_digit(16).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of_json(members: &[(String, String)]) -> Option<String> {
        let mut digest = AnnotationDigest::default();
        for (key, value) in members {
            // As Go writes it.
            let text = serde_json::to_string(value).unwrap().replace('<', "\\u003c").replace('&', "\\u0026");
            digest.begin(key.as_bytes());
            digest.json(&text.as_bytes()[1..text.len() - 1]);
            digest.end();
        }
        digest.text()
    }

    proptest! {
        #[test]
        fn both_spellings_and_any_order_have_one_digest(members in proptest::collection::vec(("[a-z]{1,4}", "[<&\"\\\\a-zé\n\t\u{1}]{0,9}"), 0..6)) {
            let mut decoded = AnnotationDigest::default();
            members.iter().rev().for_each(|(key, value)| decoded.add(key, value));
            prop_assert_eq!(of_json(&members), decoded.text());
        }
    }

    #[test]
    fn every_change_changes_it() {
        let of = |members: &[(&str, &str)]| {
            let mut digest = AnnotationDigest::default();
            members.iter().for_each(|(key, value)| digest.add(key, value));
            digest.text()
        };
        let all = [
            of(&[]),
            of(&[("a", "")]),
            of(&[("a", "b")]),
            of(&[("ab", "")]),
            of(&[("a", "b"), ("c", "")]),
            of(&[("c", "b")]),
        ];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len(), "{all:?}");
        let mut resumed = AnnotationDigest::resume(of(&[("a", "b")]).as_deref());
        resumed.add("c", "");
        assert_eq!(resumed.text(), all[4]);
    }
}
