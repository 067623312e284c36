//! IDs of ARM resources: parse, build, compare without case. No other file of this program takes an ID apart.
//!
//! Form: `/subscriptions/{s}[/resourceGroups/{g}][/providers/{namespace}/{type}/{name}[/{type}/{name}]…]`.
//!
//! IDs become parts of URLs, and names come from users. So a segment contains only the characters of a path segment (RFC 3986 `pchar`,
//! and letters and digits of any script, which resource groups allow), and does not consist of dots. Parsing refuses other segments.
//! Building escapes them, which yields an ID that does not exist in ARM instead of one with another meaning.

use std::{
    borrow::Cow,
    cmp::Ordering,
    fmt,
    fmt::Write as _,
    hash::{Hash, Hasher},
    sync::Arc,
};

use super::spelling::same_id;

/// ID of a subscription, a resource group, a resource or a part of one. Preserves its spelling; comparisons ignore ASCII letter case.
/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct ResourceId {
    text: Arc<str>,
}

/// Maximum length of an ID, in bytes. Azure documents none; with names of 90 letters, IDs have less than a third of this.
const MAX_LENGTH: usize = 2048;

/// Text that is not the ID of an ARM resource.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an ARM resource id: {reason}")]
pub struct InvalidResourceId {
    /// Text, truncated, with escapes for unprintable characters.
    pub text: String,
    /// Description of the error.
    pub reason: &'static str,
}

/// Returns `true` if a character may be used in a segment unescaped.
fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || "-._~!$&'()*+,;=:@".contains(c)
}

/// Returns `true` if a URL library may interpret the segment as `.` or `..`.
fn is_dots(segment: &str) -> bool {
    let without = |text: &str, dot: &str| text.replace(dot, "");
    matches!(segment.len(), 1..=6) && without(&without(&without(segment, "%2e"), "%2E"), ".").is_empty()
}

fn is_escape(rest: &str) -> bool {
    matches!(rest.as_bytes(), [b'%', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit())
}

fn is_segment(segment: &str) -> bool {
    let fits = |(position, c): (usize, char)| is_plain(c) || is_escape(segment.get(position..).unwrap_or_default());
    !segment.is_empty() && !is_dots(segment) && segment.char_indices().all(fits)
}

/// Escapes a name as a segment.
///
/// An empty name becomes `%00`: without a segment, a request for one resource would be a request for all. Dots are escaped
/// twice, because URL libraries also resolve escaped dots.
fn segment_of(name: &str) -> Cow<'_, str> {
    if is_segment(name) && !name.contains('%') {
        return name.into();
    }
    if name.is_empty() {
        return "%00".into();
    }
    let dots_only = is_dots(name);
    let mut segment = String::with_capacity(name.len() * 3);
    for c in name.chars() {
        match c {
            '.' if dots_only => segment.push_str("%252E"),
            c if is_plain(c) => segment.push(c),
            c => escape(c, &mut segment),
        }
    }
    segment.into()
}

fn escape(c: char, into: &mut String) {
    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
        // Writing into a string does not fail.
        let _ = write!(into, "%{byte:02X}");
    }
}

/// Checks that `text` is an ID, in one pass.
fn check(text: &str) -> Result<(), &'static str> {
    const START: &str = "it does not begin with /subscriptions/";
    if text.len() > MAX_LENGTH {
        return Err("it is longer than any id");
    }
    let rest = text.strip_prefix('/').ok_or(START)?;
    let (mut count, mut has_group, mut has_provider) = (0_usize, false, true);
    for segment in rest.split('/') {
        if !is_segment(segment) {
            return Err("a segment is empty, consists of dots, or contains a character that names do not allow");
        }
        match count {
            0 if !segment.eq_ignore_ascii_case("subscriptions") => return Err(START),
            2 if segment.eq_ignore_ascii_case("resourceGroups") => has_group = true,
            2 | 4 if count == if has_group { 4 } else { 2 } => has_provider = segment.eq_ignore_ascii_case("providers"),
            _ => {}
        }
        count += 1;
    }
    let group = if has_group { 4 } else { 2 };
    match count {
        0 | 1 => Err(START),
        _ if !has_provider => Err("`providers` is missing"),
        _ if count == group => Ok(()),
        _ if count < group + 4 || !(count - group).is_multiple_of(2) => Err("a type or a name is missing"),
        _ => Ok(()),
    }
}

impl ResourceId {
    /// Parses an ID. Accepts any letter case of the fixed words.
    pub fn parse(text: &str) -> Result<Self, InvalidResourceId> {
        match check(text) {
            Ok(()) => Ok(Self { text: text.into() }),
            Err(reason) => {
                Err(InvalidResourceId { text: text.chars().take(200).flat_map(char::escape_debug).collect(), reason })
            }
        }
    }

    /// Returns the ID of a subscription.
    pub fn subscription_of(subscription: &str) -> Self {
        Self { text: format!("/subscriptions/{}", segment_of(subscription)).into() }
    }

    /// Returns the ID of a resource group.
    pub fn group_of(subscription: &str, group: &str) -> Self {
        Self { text: format!("/subscriptions/{}/resourceGroups/{}", segment_of(subscription), segment_of(group)).into() }
    }

    /// Returns the ID of a resource in this group or subscription. `resource_type` is, for example,
    /// `Microsoft.Network/loadBalancers`; each of its levels needs a name in `names`.
    pub fn resource(&self, resource_type: &str, names: &[&str]) -> Self {
        let mut types = resource_type.split('/');
        let mut text = format!("{}/providers/{}", self.text, segment_of(types.next().unwrap_or_default()));
        for (kind, name) in types.zip(names) {
            // Writing into a string does not fail.
            let _ = write!(text, "/{}/{}", segment_of(kind), segment_of(name));
        }
        Self { text: text.into() }
    }

    /// Returns the ID of a part of this resource.
    pub fn child(&self, kind: &str, name: &str) -> Self {
        Self { text: format!("{}/{}/{}", self.text, segment_of(kind), segment_of(name)).into() }
    }

    /// Returns the ID as the path of a URL: letters outside ASCII are escaped.
    pub fn url_path(&self) -> Cow<'_, str> {
        if self.text.is_ascii() {
            return Cow::Borrowed(&self.text);
        }
        let mut path = String::with_capacity(self.text.len() * 2);
        for c in self.text.chars() {
            if c.is_ascii() { path.push(c) } else { escape(c, &mut path) }
        }
        path.into()
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    fn segments(&self) -> impl DoubleEndedIterator<Item = &str> + Clone {
        self.text.get(1..).unwrap_or_default().split('/')
    }

    pub fn subscription(&self) -> &str {
        self.segments().nth(1).unwrap_or_default()
    }

    /// Returns the resource group; `None` for a subscription, or a resource that is directly in one.
    pub fn resource_group(&self) -> Option<&str> {
        self.segments().nth(2).filter(|word| word.eq_ignore_ascii_case("resourceGroups"))?;
        self.segments().nth(3)
    }

    /// Returns the segments after `/providers/`: the namespace, then alternating types and names.
    fn provider_part(&self) -> impl Iterator<Item = &str> {
        let before = if self.resource_group().is_some() { 5 } else { 3 };
        self.segments().skip(before)
    }

    /// Returns the type, such as `Microsoft.Network/loadBalancers/frontendIPConfigurations`; empty for a subscription or a
    /// group.
    pub fn resource_type(&self) -> String {
        let mut part = self.provider_part();
        let namespace = part.next().unwrap_or_default();
        part.step_by(2).fold(namespace.to_owned(), |kind, level| kind + "/" + level)
    }

    /// Returns `true` if the type is `resource_type`, ignoring case.
    pub fn is_type(&self, resource_type: &str) -> bool {
        let mut part = self.provider_part();
        let namespace = part.next().unwrap_or_default();
        let (mut own, mut requested) = (std::iter::once(namespace).chain(part.step_by(2)), resource_type.split('/'));
        loop {
            match (own.next(), requested.next()) {
                (None, None) => return true,
                (Some(own), Some(requested)) if own.eq_ignore_ascii_case(requested) => {}
                _ => return false,
            }
        }
    }

    /// Returns `true` if `text` is this ID, ignoring case.
    pub fn same_as(&self, text: &str) -> bool {
        same_id(&self.text, text)
    }

    /// Returns the last name: that of the resource, group or subscription itself.
    pub fn name(&self) -> &str {
        self.segments().next_back().unwrap_or_default()
    }

    /// Returns the name at the type level `kind`, for example the load balancer's name in the ID of one of its rules.
    pub fn name_of(&self, kind: &str) -> Option<&str> {
        let mut part = self.provider_part().skip(1);
        while let (Some(level), Some(name)) = (part.next(), part.next()) {
            if level.eq_ignore_ascii_case(kind) {
                return Some(name);
            }
        }
        None
    }

    /// Returns the resource that contains this one; for a top-level resource its group or subscription; `None` for a
    /// subscription.
    pub fn parent(&self) -> Option<Self> {
        let count = self.segments().count();
        let levels = self.provider_part().count();
        let keep = match levels {
            0 if count == 4 => 2,
            0 => return None,
            3 => count - 4,
            _ => count - 2,
        };
        let text: String = self.segments().take(keep).flat_map(|segment| ["/", segment]).collect();
        Some(Self { text: text.into() })
    }

    /// Returns the text in lower case, as a key of maps.
    pub fn key(&self) -> String {
        self.text.to_ascii_lowercase()
    }
}

fn folded(text: &[u8]) -> impl Iterator<Item = u8> {
    text.iter().map(u8::to_ascii_lowercase)
}

impl PartialEq for ResourceId {
    fn eq(&self, other: &Self) -> bool {
        self.same_as(&other.text)
    }
}
impl Eq for ResourceId {}
impl Hash for ResourceId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut folded = [0; 64];
        for chunk in self.text.as_bytes().chunks(folded.len()) {
            let folded = &mut folded[..chunk.len()];
            folded.copy_from_slice(chunk);
            folded.make_ascii_lowercase();
            state.write(folded);
        }
        state.write_u8(0xff);
    }
}
impl PartialOrd for ResourceId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for ResourceId {
    fn cmp(&self, other: &Self) -> Ordering {
        // IDs of one cluster have a common prefix, mostly in the same letter case: skip it without folding.
        let bytes = self.text.bytes().zip(other.text.bytes());
        let same = bytes.take_while(|(own, other)| own == other).count();
        folded(&self.text.as_bytes()[same..]).cmp(folded(&other.text.as_bytes()[same..]))
    }
}
impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
impl serde::Serialize for ResourceId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}
impl<'de> serde::Deserialize<'de> for ResourceId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
