//! Types of values that only flags of this program have, in addition to those of [`crate::flags`].
//!
//! Notations are those of the value types in `k8s.io/component-base/cli/flag`.

use std::net::IpAddr;

use super::logging;
use crate::flags::integer;
pub use crate::flags::{FlagValue, InvalidFlagValue, MapStringBool, parse_all};
use crate::serving::config::SniCertKey;

/// Address to listen on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindIp(pub IpAddr);

impl Default for BindIp {
    fn default() -> Self {
        Self(IpAddr::from([0, 0, 0, 0]))
    }
}

impl FlagValue for BindIp {
    const PLACEHOLDER: &'static str = "ip";

    fn parse(text: &str) -> Result<Self, String> {
        text.trim().parse().map(Self).map_err(|_| "expected an IPv4 or IPv6 address".to_owned())
    }

    fn print(&self) -> String {
        self.0.to_string()
    }
}

impl FlagValue for Vec<SniCertKey> {
    const PLACEHOLDER: &'static str = "cert,key[:pattern,…]";
    const REPEATED: bool = true;

    fn parse(text: &str) -> Result<Self, String> {
        sni_certificate(text).map(|certificate| certificate.into_iter().collect()).map_err(str::to_owned)
    }

    fn merge(&mut self, later: Self) {
        self.extend(later);
    }

    fn print(&self) -> String {
        let print = |sni: &SniCertKey| {
            let pair = format!("{},{}", sni.cert_file.display(), sni.key_file.display());
            if sni.patterns.is_empty() { pair } else { format!("{pair}:{}", sni.patterns.join(",")) }
        };
        self.iter().map(print).collect::<Vec<_>>().join(";")
    }
}

fn sni_certificate(text: &str) -> Result<Option<SniCertKey>, &'static str> {
    const ACCEPTED: &str = "expected certificate file, comma, key file, and optionally a colon and domain patterns";
    if text.is_empty() {
        return Ok(None);
    }
    let (pair, patterns) = match text.split_once(':') {
        Some((pair, names)) => (pair, names.split(',').map(|name| name.trim().to_owned()).collect()),
        None => (text, Vec::new()),
    };
    let (cert, key) = pair.split_once(',').ok_or(ACCEPTED)?;
    let (cert, key) = (cert.trim(), key.trim());
    if cert.is_empty() || key.is_empty() || key.contains(',') || patterns.iter().any(String::is_empty) {
        return Err(ACCEPTED);
    }
    Ok(Some(SniCertKey { cert_file: cert.into(), key_file: key.into(), patterns }))
}

/// Value of `--version`, which selects an output or overrides the version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum VersionRequest {
    #[default]
    No,
    /// Print name and version.
    Short,
    /// Print every field of the version.
    Raw,
    /// Run, and report this version instead of the real one.
    Override(String),
}

impl FlagValue for VersionRequest {
    const PLACEHOLDER: &'static str = "true|raw|false|vX.Y.Z";
    const IMPLIED_VALUE: Option<&'static str> = Some("true");

    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "raw" => Ok(Self::Raw),
            text if text.starts_with('v') && is_version(&text[1..]) => Ok(Self::Override(text.to_owned())),
            text => match bool::parse(text) {
                Ok(true) => Ok(Self::Short),
                Ok(false) => Ok(Self::No),
                Err(_) => Err("expected true, false, raw or a version such as v1.2.3".to_owned()),
            },
        }
    }

    fn print(&self) -> String {
        match self {
            Self::No => "false".to_owned(),
            Self::Short => "true".to_owned(),
            Self::Raw => "raw".to_owned(),
            Self::Override(version) => version.clone(),
        }
    }
}

fn is_version(text: &str) -> bool {
    let core = text.split(['-', '+']).next().unwrap_or_default();
    let numbers: Vec<_> = core.split('.').collect();
    numbers.len() == 3 && numbers.iter().all(|number| number.parse::<u32>().is_ok())
}

impl FlagValue for logging::LogFormat {
    const PLACEHOLDER: &'static str = "text|json";

    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err("expected text or json".to_owned()),
        }
    }

    fn print(&self) -> String {
        match self {
            Self::Text => "text".to_owned(),
            Self::Json => "json".to_owned(),
        }
    }
}

impl FlagValue for Vec<logging::ModuleLevel> {
    const PLACEHOLDER: &'static str = "pattern=N,…";
    const REPEATED: bool = true;

    fn parse(text: &str) -> Result<Self, String> {
        const ACCEPTED: &str = "expected comma-separated pattern=N, such as route*=4";
        let pairs = text.split(',').filter(|pair| !pair.is_empty()).map(|pair| {
            let (pattern, level) = pair.split_once('=').filter(|(pattern, _)| !pattern.is_empty())?;
            let verbosity = u8::try_from(integer(level)?).ok()?;
            Some(logging::ModuleLevel { pattern: pattern.to_owned(), verbosity })
        });
        pairs.collect::<Option<_>>().ok_or_else(|| ACCEPTED.to_owned())
    }

    fn merge(&mut self, later: Self) {
        self.extend(later);
    }

    fn print(&self) -> String {
        self.iter().map(|entry| format!("{}={}", entry.pattern, entry.verbosity)).collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests;
