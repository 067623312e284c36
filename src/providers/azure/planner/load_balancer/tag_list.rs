//! Tags as `azure.json` and annotations write them: `k=v,k=v`. Pure.

use std::collections::BTreeMap;

/// `k=v,k=v`. A pair without exactly one `=` or with an empty key counts for nothing.
pub(super) fn parse_tags(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split(',').filter_map(|pair| match pair.split('=').collect::<Vec<_>>()[..] {
        [key, value] if !key.trim().is_empty() => Some((key.trim().to_owned(), tag_value(value))),
        _ => None,
    });
    pairs.collect()
}

/// Trimmed, except for a value that would be `null` then, which ARM takes for none.
pub(super) fn tag_value(value: &str) -> String {
    let trimmed = value.trim();
    if trimmed.eq_ignore_ascii_case("null") { value.to_owned() } else { trimmed.to_owned() }
}
