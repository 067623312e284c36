//! Version of this build. Pure.
//!
//! In: `CCM_VERSION` at build time, which `make static` takes from the tag of the commit; without it, the version in
//! `Cargo.toml`. Out: the version in `--version`, user agents and `kubernetes_build_info`.

/// Version of this build, with a leading `v`.
pub const VERSION: &str = of(option_env!("CCM_VERSION"), concat!("v", env!("CARGO_PKG_VERSION")));

/// Build-time check that the tag is a valid version.
const _: () =
    assert!(is_version(VERSION), "CCM_VERSION has to be v, two numbers with a dot between them, and the rest of a version");

/// Returns the tag, or the version of the package if there is no tag or an empty one.
const fn of(tag: Option<&'static str>, package: &'static str) -> &'static str {
    match tag {
        Some(tag) if !tag.is_empty() => tag,
        _ => package,
    }
}

/// Returns `true` for `v`, digits, a dot, a digit, followed only by characters of versions.
const fn is_version(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.len() < 4 || bytes[0] != b'v' || !bytes[1].is_ascii_digit() {
        return false;
    }
    let (mut at, mut dot) = (1, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'.' if dot == 0 => dot = at,
            byte if dot == 0 && !byte.is_ascii_digit() => return false,
            byte if !byte.is_ascii_alphanumeric() && byte != b'.' && byte != b'-' && byte != b'+' => return false,
            _ => {}
        }
        at += 1;
    }
    dot != 0 && dot + 1 < bytes.len() && bytes[dot + 1].is_ascii_digit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_counts_before_the_package() {
        assert_eq!(of(Some("v1.36.5-rc.1"), "v0.1.0"), "v1.36.5-rc.1");
        assert_eq!(of(Some(""), "v0.1.0"), "v0.1.0");
        assert_eq!(of(None, "v0.1.0"), "v0.1.0");
    }

    #[test]
    fn only_versions_are_versions() {
        for text in ["v0.1.0", "v1.36.5-rc.1", "v12.0", "v1.2.3+build.5"] {
            assert!(is_version(text), "{text}");
        }
        for text in ["", "v", "v1", "v1.", "1.2.3", "v.1", "v1x.2", "v1.x", "v1.2 3", "v1.2\n", "dev", "vv1.2"] {
            assert!(!is_version(text), "{text}");
        }
    }
}
