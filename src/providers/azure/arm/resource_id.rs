//! Names of ARM resources: parse, build, compare without letter case. Nowhere else in this program is an id taken apart.
//!
//! Shape: `/subscriptions/{s}[/resourceGroups/{g}][/providers/{namespace}/{type}/{name}[/{type}/{name}]…]`.

use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

/// The id of a subscription, a resource group, a resource or a part of one. Keeps its spelling; comparisons ignore letter case.
/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct ResourceId {
    text: Arc<str>,
}

/// Not the id of an ARM resource.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an ARM resource id: {why}")]
pub struct InvalidResourceId {
    /// The text, shortened.
    pub text: String,
    /// What is wrong with it.
    pub why: &'static str,
}

impl ResourceId {
    /// Parses an id. Accepts any letter case of the fixed words; refuses empty segments, odd counts and control characters.
    pub fn parse(text: &str) -> Result<Self, InvalidResourceId> {
        let refuse = |why| Err(InvalidResourceId { text: text.chars().take(200).collect(), why });
        let Some(rest) = text.strip_prefix('/') else { return refuse("it does not begin with /subscriptions/") };
        let segments: Vec<&str> = rest.split('/').collect();
        if segments.iter().any(|segment| segment.is_empty() || segment.chars().any(char::is_control)) {
            return refuse("it has an empty segment or a control character");
        }
        let is = |position: usize, word: &str| segments.get(position).is_some_and(|found| found.eq_ignore_ascii_case(word));
        if !is(0, "subscriptions") || segments.len() < 2 {
            return refuse("it does not begin with /subscriptions/");
        }
        let group = if is(2, "resourceGroups") { 4 } else { 2 };
        match segments.len() {
            length if length == group => Ok(Self { text: text.into() }),
            length if length > group && !is(group, "providers") => refuse("`providers` is missing"),
            length if length < group + 4 || !(length - group).is_multiple_of(2) => refuse("a type or a name is missing"),
            _ => Ok(Self { text: text.into() }),
        }
    }

    /// The id of a subscription.
    pub fn subscription_of(subscription: &str) -> Self {
        Self { text: format!("/subscriptions/{subscription}").into() }
    }

    /// The id of a resource group.
    pub fn group_of(subscription: &str, group: &str) -> Self {
        Self { text: format!("/subscriptions/{subscription}/resourceGroups/{group}").into() }
    }

    /// The id of a resource in this group (or subscription): `resource_type` is `Microsoft.Network/loadBalancers` and may have
    /// several levels, one name each.
    pub fn resource(&self, resource_type: &str, names: &[&str]) -> Self {
        let mut text = self.text.to_string();
        let mut types = resource_type.split('/');
        text.push_str("/providers/");
        text.push_str(types.next().unwrap_or_default());
        for (kind, name) in types.zip(names) {
            text.push('/');
            text.push_str(kind);
            text.push('/');
            text.push_str(name);
        }
        Self { text: text.into() }
    }

    /// The id of a part of this resource.
    pub fn child(&self, kind: &str, name: &str) -> Self {
        Self { text: format!("{}/{kind}/{name}", self.text).into() }
    }

    /// As written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    fn segments(&self) -> impl DoubleEndedIterator<Item = &str> + Clone {
        self.text.get(1..).unwrap_or_default().split('/')
    }

    /// Subscription.
    pub fn subscription(&self) -> &str {
        self.segments().nth(1).unwrap_or_default()
    }

    /// Resource group; `None` for a subscription or a resource directly in one.
    pub fn resource_group(&self) -> Option<&str> {
        self.segments().nth(2).filter(|word| word.eq_ignore_ascii_case("resourceGroups"))?;
        self.segments().nth(3)
    }

    /// Everything behind `/providers/`: the namespace, then types and names in turn.
    fn provider_part(&self) -> impl Iterator<Item = &str> {
        let before = if self.resource_group().is_some() { 5 } else { 3 };
        self.segments().skip(before)
    }

    /// `Microsoft.Network/loadBalancers/frontendIPConfigurations`; empty for a subscription or a group.
    pub fn resource_type(&self) -> String {
        let mut part = self.provider_part();
        let namespace = part.next().unwrap_or_default();
        part.step_by(2).fold(namespace.to_owned(), |kind, level| kind + "/" + level)
    }

    /// Whether the type is this one, ignoring letter case.
    pub fn is_type(&self, resource_type: &str) -> bool {
        self.resource_type().eq_ignore_ascii_case(resource_type)
    }

    /// Last name: the resource's, group's or subscription's own.
    pub fn name(&self) -> &str {
        self.segments().next_back().unwrap_or_default()
    }

    /// The name behind the type level `kind`, e.g. the load balancer's name in the id of one of its rules.
    pub fn name_of(&self, kind: &str) -> Option<&str> {
        let mut part = self.provider_part().skip(1);
        while let (Some(level), Some(name)) = (part.next(), part.next()) {
            if level.eq_ignore_ascii_case(kind) {
                return Some(name);
            }
        }
        None
    }

    /// The resource this one is a part of; for a top-level resource its group or subscription; `None` for a subscription.
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

    /// Lower-cased text, as a key.
    pub fn key(&self) -> String {
        self.text.to_ascii_lowercase()
    }
}

fn folded(text: &str) -> impl Iterator<Item = u8> {
    text.bytes().map(|byte| byte.to_ascii_lowercase())
}

impl PartialEq for ResourceId {
    fn eq(&self, other: &Self) -> bool {
        self.text.eq_ignore_ascii_case(&other.text)
    }
}
impl Eq for ResourceId {}
impl Hash for ResourceId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for part in self.text.as_bytes().chunks(64) {
            let mut folded = [0; 64];
            let folded = &mut folded[..part.len()];
            folded.copy_from_slice(part);
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
        folded(&self.text).cmp(folded(&other.text))
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
