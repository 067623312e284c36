//! Selection of the proxy for the API server. Pure.
//!
//! In: the server's URL, the kubeconfig's `proxy-url`, the environment. Out: the proxy, if any. As client-go does it
//! (`rest/config.go`, `net/http.ProxyFromEnvironment`): `proxy-url` always counts, the environment only for servers that
//! `NO_PROXY` does not name, and never for this machine.

use std::net::IpAddr;

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use ipnet::IpNet;
use kube::config::{Cluster, Kubeconfig};

/// Hosts that are never reached through a proxy from the environment.
const DIRECT: &str = "localhost,127.0.0.0/8,::1";

/// Returns the proxy for `server`.
///
/// # Errors
///
/// The variable or field whose value is not the URL of a proxy.
pub(super) fn of(
    server: &Uri,
    kubeconfig: &Kubeconfig,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Uri>, &'static str> {
    if let Some(url) = cluster(kubeconfig).and_then(|cluster| cluster.proxy_url.as_deref()).filter(|url| !url.is_empty()) {
        return parse(url).map(Some).ok_or("proxy-url");
    }
    let name = if server.scheme_str() == Some("http") { "HTTP_PROXY" } else { "HTTPS_PROXY" };
    let read = |name: &str| {
        let non_empty = |name: &str| variable(name).filter(|value| !value.is_empty());
        non_empty(name).or_else(|| non_empty(&name.to_ascii_lowercase()))
    };
    match read(name) {
        Some(url) if !is_direct(server, &read("NO_PROXY").unwrap_or_default()) => parse(&url).map(Some).ok_or(name),
        _ => Ok(None),
    }
}

/// Returns the cluster of the current context.
pub(super) fn cluster(kubeconfig: &Kubeconfig) -> Option<&Cluster> {
    let name = kubeconfig.current_context.as_ref()?;
    let context = kubeconfig.contexts.iter().find(|context| context.name == *name)?.context.as_ref()?;
    kubeconfig.clusters.iter().find(|cluster| cluster.name == context.cluster)?.cluster.as_ref()
}

/// Parses a URL. The default scheme is `http`.
fn parse(url: &str) -> Option<Uri> {
    let url = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    url.parse().ok()
}

fn is_direct(server: &Uri, no_proxy: &str) -> bool {
    let port = server.port_u16().unwrap_or(if server.scheme_str() == Some("http") { 80 } else { 443 });
    let entries: Vec<_> =
        no_proxy.split(',').chain(DIRECT.split(',')).filter_map(|entry| of_port(entry.trim(), port)).collect();
    Matcher::builder().all("http://proxy").no(entries.join(",")).build().intercept(server).is_none()
}

/// Returns the host of an entry of `NO_PROXY`, unless its port is another one; `*.` means the same as the dot alone.
fn of_port(entry: &str, port: u16) -> Option<&str> {
    let is_address = entry.parse::<IpAddr>().is_ok() || entry.parse::<IpNet>().is_ok();
    let host = match entry.rsplit_once(':') {
        Some((host, number)) if !is_address && number.parse::<u16>().is_ok() => {
            (number.parse() == Ok(port)).then_some(host)?
        }
        _ => entry,
    };
    Some(host.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(host).trim_matches(['[', ']']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(server: &str, variables: &[(&str, &str)]) -> Option<String> {
        with_field(None, server, variables).unwrap().map(|url| url.to_string())
    }

    fn with_field(field: Option<&str>, server: &str, variables: &[(&str, &str)]) -> Result<Option<Uri>, &'static str> {
        let field = field.map(|url| format!(", proxy-url: '{url}'")).unwrap_or_default();
        let text = format!(
            "current-context: c\ncontexts: [{{name: c, context: {{cluster: k}}}}]\n\
             clusters: [{{name: other, cluster: {{proxy-url: 'http://wrong'}}}}, {{name: k, cluster: {{server: 'https://x'{field}}}}}]\n"
        );
        let variable = |name: &str| variables.iter().find(|(it, _)| *it == name).map(|(_, value)| (*value).to_owned());
        of(&server.parse().unwrap(), &Kubeconfig::from_yaml(&text).unwrap(), variable)
    }

    #[test]
    fn the_environment_applies_by_scheme_except_to_localhost() {
        let both = [("HTTPS_PROXY", "http://u:p@tls:1"), ("http_proxy", "plain:2"), ("https_proxy", "http://ignored")];
        assert_eq!(proxy("https://api:6443", &both).as_deref(), Some("http://u:p@tls:1/"));
        assert_eq!(proxy("http://api", &both).as_deref(), Some("http://plain:2/"));
        for server in ["https://localhost:6443", "https://127.0.0.1:6443", "http://127.8.9.1", "https://[::1]:6443"] {
            assert_eq!(proxy(server, &both), None, "{server}");
        }
        assert_eq!(proxy("https://api", &[("HTTPS_PROXY", ""), ("HTTP_PROXY", "http://plain")]), None);
    }

    #[test]
    fn no_proxy_lists_servers_without_proxy() {
        for (list, server, direct) in [
            ("api.example.com", "https://api.example.com:6443", true),
            ("example.com", "https://api.example.com", true),
            ("*.example.com, b", "https://api.example.com", true),
            ("api.example.com:6443", "https://api.example.com:6443", true),
            ("api.example.com:6443", "https://api.example.com", false),
            ("10.0.0.0/8", "https://10.1.2.3", true),
            ("10.0.0.1", "https://10.1.2.3", false),
            ("[fd00::1]:443", "https://[fd00::1]", true),
            ("fd00::/64", "https://[fd00::1]", true),
            ("*", "https://anything", true),
            ("proxy", "https://api", false),
        ] {
            let found = proxy(server, &[("HTTPS_PROXY", "http://proxy"), ("no_proxy", list)]);
            assert_eq!(found.is_none(), direct, "NO_PROXY={list} {server}");
        }
    }

    #[test]
    fn the_field_applies_to_every_server() {
        let found =
            with_field(Some("http://field"), "https://127.0.0.1", &[("NO_PROXY", "*"), ("HTTPS_PROXY", "http://other")]);
        assert_eq!(found.unwrap().unwrap().host(), Some("field"));
    }

    #[test]
    fn errors_name_the_variable_or_field() {
        assert_eq!(with_field(None, "https://api", &[("HTTPS_PROXY", "http://a b")]), Err("HTTPS_PROXY"));
        assert_eq!(with_field(Some("http://a b"), "https://api", &[]), Err("proxy-url"));
    }
}
