//! Regular expressions (RE2) of the values of annotations. Pure.
//!
//! Every text with a meaning for its format matches. Texts that only a parser can recognize as invalid, such as impossible addresses, match
//! too. Unknown words that a format reads as another word do not match, so that their author is warned.

/// Blanks that `str::trim` removes and that the reader of annotations accepts.
macro_rules! blanks {
    () => {
        r"[\s\p{Z}]*"
    };
}

/// Words for no, or an empty text.
macro_rules! no {
    () => {
        r"(?i:false|no|off|n|f|0)?"
    };
}

/// Characters of addresses and ranges.
macro_rules! address {
    () => {
        r"[0-9A-Fa-f:.]+"
    };
}

pub(super) const WHOLE_NUMBER: &str = concat!("^", blanks!(), r"\+?[0-9]+", blanks!(), "$");
pub(super) const EXACT_TRUE: &str = concat!("^(true|", blanks!(), no!(), blanks!(), ")$");
pub(super) const ANY_CASE_TRUE: &str = concat!("^((?i:true)|", blanks!(), no!(), blanks!(), ")$");
pub(super) const YES_OR_NO: &str = concat!("^", blanks!(), "((?i:true)|", no!(), ")", blanks!(), "$");
pub(super) const RESOURCE_GROUP: &str =
    concat!("^", blanks!(), r"([^\s\p{Z}/?&=%#<>:*|,;]{0,89}[^\s\p{Z}/?&=%#<>:*|,;.])?", blanks!(), "$");
pub(super) const RESOURCE_NAME: &str =
    concat!("^", blanks!(), "([0-9A-Za-z]([0-9A-Za-z_.-]{0,78}[0-9A-Za-z_])?)?", blanks!(), "$");
pub(super) const SUBNET: &str = concat!("^(", blanks!(), "|[0-9A-Za-z]([0-9A-Za-z_.-]{0,78}[0-9A-Za-z_])?)$");
pub(super) const VM_SET: &str = concat!("^", blanks!(), "[0-9A-Za-z_.-]{0,80}", blanks!(), "$");
pub(super) const DNS_LABEL: &str = "^([a-z][0-9a-z-]{1,61}[0-9a-z])?$";
pub(super) const PROBE_PATH: &str = concat!("^", blanks!(), "[!-~]*", blanks!(), "$");
pub(super) const ADDRESS: &str = concat!("^", blanks!(), "(", address!(), ")?", blanks!(), "$");
pub(super) const ADDRESSES: &str =
    concat!("^(", blanks!(), "|", blanks!(), address!(), blanks!(), "(,", blanks!(), address!(), blanks!(), ")*)$");
pub(super) const RANGES: &str = r"^[0-9A-Fa-f:./,\s\p{Z}]*$";
pub(super) const SERVICE_TAGS: &str = r"^([0-9A-Za-z_.:/*,\s\p{Z}-]*)$";
pub(super) const PROBE_PORT: &str = concat!("^", blanks!(), r"(\+?[0-9]+|[0-9a-z-]{1,63})?", blanks!(), "$");
pub(super) const PROBE_PROTOCOL: &str = concat!("^", blanks!(), "(?i:tcp|http|https)?", blanks!(), "$");
pub(super) const PREFIX_ID: &str = concat!("^", blanks!(), "((?i:/?subscriptions/.*/publicIPPrefixes/.*))?", blanks!(), "$");
