//! Registry of an image, and its mirror. Pure.
//!
//! In: the image that the kubelet names, the mirrors, the cloud's suffix of registries. Out: the server to log in to, if it
//! is a registry of Azure. Only the host decides: the part after the first slash is opaque.

/// Suffixes of registries in Azure's clouds.
const WELL_KNOWN: &[&str] = &["azurecr.io", "azurecr.cn", "azurecr.de", "azurecr.us"];
/// Label in the regional host of a registry: `name.region.geo.azurecr.io`.
const REGIONAL: &str = "geo";

/// Mirror: images of `source` are pulled from `target`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryMirror {
    pub source: String,
    pub target: String,
}

impl RegistryMirror {
    /// Parses `source:target`, ignoring spaces.
    pub fn parse(text: &str) -> Option<Self> {
        let text: String = text.split_whitespace().collect();
        match text.split(':').collect::<Vec<_>>()[..] {
            [source, target] if !source.is_empty() && !target.is_empty() => {
                Some(Self { source: source.to_owned(), target: target.to_owned() })
            }
            _ => None,
        }
    }

    /// Returns the rest of `image` after the source, which must end at a `/` or at the end of the name.
    fn rest<'a>(&self, image: &'a str) -> Option<&'a str> {
        image
            .strip_prefix(&self.source)
            .filter(|rest| rest.is_empty() || rest.starts_with('/') || self.source.ends_with('/'))
    }
}

/// Registry of Azure that an image is pulled from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageRegistry {
    pub server: String,
    /// Source of the mirror, if the image names a mirrored registry.
    pub source: Option<String>,
}

/// Returns the registry of `image`, or `None` if it is not in Azure. `suffix` is the suffix of the cloud's registries; empty if the
/// cloud has none.
pub fn registry_of(image: &str, mirrors: &[RegistryMirror], suffix: &str) -> Option<ImageRegistry> {
    let matching = mirrors.iter().filter_map(|mirror| Some((mirror, mirror.rest(image)?)));
    let (target, source) = match matching.max_by_key(|(mirror, _)| mirror.source.len()) {
        Some((mirror, rest)) => (format!("{}{rest}", mirror.target), Some(mirror.source.clone())),
        None => (image.to_owned(), None),
    };
    let server = target.split('/').next().unwrap_or_default();
    is_registry(server, suffix).then(|| ImageRegistry { server: server.to_owned(), source })
}

/// Returns the patterns of registries for the kubelet: those of Azure's clouds, and `suffix`.
pub(super) fn patterns(suffix: &str) -> Vec<String> {
    let custom = (is_suffix(suffix) && !WELL_KNOWN.contains(&suffix)).then_some(suffix);
    WELL_KNOWN.iter().copied().chain(custom).map(|suffix| format!("*.{suffix}")).collect()
}

/// Returns the global host of the registry in lower case, also for a regional host.
pub(super) fn global_host(server: &str) -> String {
    let host = server.to_ascii_lowercase();
    let labels: Vec<&str> = host.splitn(4, '.').collect();
    if let [name, _, REGIONAL, suffix] = labels[..] { format!("{name}.{suffix}") } else { host }
}

fn is_registry(server: &str, suffix: &str) -> bool {
    let host = server.to_ascii_lowercase();
    let is_below = |suffix: &str| host.strip_suffix(suffix).and_then(|rest| rest.strip_suffix('.'));
    let is_well_known = WELL_KNOWN.iter().filter_map(|suffix| is_below(suffix)).any(is_login_server);
    is_well_known || (is_suffix(suffix) && is_below(suffix).is_some_and(|rest| rest.split('.').all(is_label)))
}

/// Returns `true` for a valid suffix of registries. A top-level domain is not valid, because other hosts are below it, too.
fn is_suffix(suffix: &str) -> bool {
    suffix.contains('.')
}

/// Returns `true` for `name` and `name.region.geo`. A hyphen and a hash may follow the name. Upstream: `acrRE`.
fn is_login_server(rest: &str) -> bool {
    let is_name = |label: &str| is_label(label) && label.bytes().filter(|byte| *byte == b'-').count() <= 1;
    match rest.split('.').collect::<Vec<_>>()[..] {
        [name] => is_name(name),
        [name, region, REGIONAL] => is_name(name) && is_label(region),
        _ => false,
    }
}

/// Returns `true` for a valid label of a DNS name.
fn is_label(label: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    !label.is_empty() && label.len() <= 63 && label.bytes().all(is_inner) && !label.starts_with('-') && !label.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirrors(list: &[&str]) -> Vec<RegistryMirror> {
        list.iter().filter_map(|text| RegistryMirror::parse(text)).collect()
    }

    /// Upstream: `TestParseACRLoginServerFromImage`, with the same cases in other clouds. Names with hyphens are registries whose
    /// names are unique within a tenant only.
    #[test]
    fn only_the_host_decides() {
        let custom = "azurecr.my.cloud";
        for (image, suffix, server) in [
            ("foo.azurecr.io/bar/image:version", "azurecr.io", Some("foo.azurecr.io")),
            ("foo.azurecr.cn/bar/image:version", "azurecr.io", Some("foo.azurecr.cn")),
            ("foo.azurecr.de/bar/image@sha256:00", custom, Some("foo.azurecr.de")),
            ("foo.azurecr.us/bar", "", Some("foo.azurecr.us")),
            ("foo.azurecr.us/foo.azurecr.io/bar/image:version", custom, Some("foo.azurecr.us")),
            ("foo.azurecr.io", "", Some("foo.azurecr.io")),
            ("Foo.AzureCR.io/x", "", Some("Foo.AzureCR.io")),
            ("my-registry-a1b2.azurecr.io/x", "azurecr.io", Some("my-registry-a1b2.azurecr.io")),
            ("my-registry.azurecr.io/x", "azurecr.cn", Some("my-registry.azurecr.io")),
            ("my-registry-a1b2.azurecr.io/x", "azurecr.cn", None),
            ("foo-bar.azurecr.io/x", "io", Some("foo-bar.azurecr.io")),
            ("demo.eastus2.geo.azurecr.io/app:1", "azurecr.io", Some("demo.eastus2.geo.azurecr.io")),
            ("demo.chinaeast2.geo.azurecr.cn/app:1", "azurecr.io", Some("demo.chinaeast2.geo.azurecr.cn")),
            ("demo-a1b2.eastus2.geo.azurecr.us/app:1", custom, Some("demo-a1b2.eastus2.geo.azurecr.us")),
            ("Demo.germanycentral.GEO.azurecr.de/app:1", "", Some("Demo.germanycentral.GEO.azurecr.de")),
            ("demo.eastus2.data.azurecr.io/app:1", "azurecr.cn", None),
            ("a.demo.eastus2.geo.azurecr.io/app:1", "azurecr.cn", None),
            ("eastus2.geo.azurecr.io/app:1", "azurecr.cn", None),
            ("geo.azurecr.io/app:1", "azurecr.cn", Some("geo.azurecr.io")),
            ("demo..geo.azurecr.io/app:1", "azurecr.cn", None),
            ("demo.eastus2.geo.azurecr.io.evil.example/app:1", "azurecr.io", None),
            ("foo.azurecr.my.cloud/bar/image:version", custom, Some("foo.azurecr.my.cloud")),
            ("a.b.azurecr.my.cloud/x", custom, Some("a.b.azurecr.my.cloud")),
            ("azurecr.my.cloud/x", custom, None),
            ("foo.azurecr.my.cloud.example/bar", custom, None),
            ("docker/foo.azurecr.my.cloud/bar", custom, None),
            ("foo.azurecr.io.azurecr.cn", "azurecr.cn", Some("foo.azurecr.io.azurecr.cn")),
            ("foo.azurecr.io.azurecr.cn", "azurecr.io", None),
            ("foo-azurecr-io.azurecr.cn", "azurecr.cn", Some("foo-azurecr-io.azurecr.cn")),
            ("foo-azurecr-io.azurecr.cn", custom, None),
            ("azurecr.io/x", "azurecr.io", None),
            (".azurecr.io/x", "azurecr.io", None),
            ("evilazurecr.io/x", "azurecr.io", None),
            ("evil.example/azurecr.io/x", "azurecr.io", None),
            ("evil.example/foo.azurecr.io/x", "azurecr.io", None),
            ("foo.azurecr.io.evil.example/x", "azurecr.io", None),
            ("foo.azurecr.io:8443/x", "azurecr.io", None),
            ("foo.azurecr.io@evil.example/x", "azurecr.io", None),
            ("foo@evil.azurecr.io/x", "azurecr.io", None),
            ("foo.azurecr.io\\evil/x", "azurecr.io", None),
            ("-foo.azurecr.io/x", "azurecr.io", None),
            ("foo..azurecr.io/x", "azurecr.io", None),
            ("föö.azurecr.io/x", "azurecr.io", None),
            ("docker.io/library/busybox:latest", "io", None),
            ("mcr.microsoft.com/x", "azurecr.io", None),
            ("invalidImage", custom, None),
            ("", "azurecr.io", None),
        ] {
            let expected = server.map(|server| ImageRegistry { server: server.into(), source: None });
            assert_eq!(registry_of(image, &[], suffix), expected, "{image} {suffix}");
        }
    }

    #[test]
    fn hosts_of_all_regions_are_of_one_registry() {
        for (server, expected) in [
            ("Demo.EastUS2.geo.AzureCR.io", "demo.azurecr.io"),
            ("demo-a1b2.chinaeast2.geo.azurecr.cn", "demo-a1b2.azurecr.cn"),
            ("demo.eastus2.geo.azurecr.my.cloud", "demo.azurecr.my.cloud"),
            ("Demo.azurecr.io", "demo.azurecr.io"),
            ("demo.eastus2.data.azurecr.io", "demo.eastus2.data.azurecr.io"),
            ("geo.azurecr.io", "geo.azurecr.io"),
            ("", ""),
        ] {
            assert_eq!(global_host(server), expected, "{server}");
        }
    }

    #[test]
    fn mirrors_replace_whole_parts_and_the_longest_is_used() {
        let mirrors = mirrors(&[
            "mcr.microsoft.com:abc.azurecr.io",
            " mcr.microsoft.com/oss : oss.azurecr.io/cache ",
            "quay.io:mirror.example",
        ]);
        for (image, server, source) in [
            ("mcr.microsoft.com/bar/image:version", Some("abc.azurecr.io"), Some("mcr.microsoft.com")),
            ("mcr.microsoft.com/oss/image:version", Some("oss.azurecr.io"), Some("mcr.microsoft.com/oss")),
            ("mcr.microsoft.com/ossx/image", Some("abc.azurecr.io"), Some("mcr.microsoft.com")),
            ("mcr.microsoft.com.evil.example/x", None, None),
            ("mcr.microsoft.comx", None, None),
            ("quay.io/x", None, None),
            ("foo.azurecr.io/mcr.microsoft.com/x", Some("foo.azurecr.io"), None),
        ] {
            let found = registry_of(image, &mirrors, "azurecr.io");
            let expected = server.map(|server| ImageRegistry { server: server.into(), source: source.map(str::to_owned) });
            assert_eq!(found, expected, "{image}");
        }
    }

    #[test]
    fn malformed_mirrors_are_refused() {
        for text in ["", "a", "a:", ":b", ":", "a:b:c", "localhost:5000:a.azurecr.io"] {
            assert_eq!(RegistryMirror::parse(text), None, "{text}");
        }
    }

    #[test]
    fn each_suffix_has_one_pattern() {
        let usual = ["*.azurecr.io", "*.azurecr.cn", "*.azurecr.de", "*.azurecr.us"];
        assert_eq!(patterns("azurecr.us"), usual);
        assert_eq!(patterns(""), usual);
        assert_eq!(patterns("io"), usual, "a top-level domain");
        assert_eq!(patterns("azurecr.local"), [&usual[..], &["*.azurecr.local"]].concat());
    }
}
