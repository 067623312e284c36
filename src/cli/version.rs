//! Name and version of the program, and their output formats.

pub use crate::runtime::build_version::VERSION;

/// Name of the program.
pub const NAME: &str = "cloud-controller-manager";

/// Name of the subcommand for one Node, and of the program that runs only this subcommand.
pub const NODE_MANAGER: &str = "cloud-node-manager";

/// Name of the subcommand with the same effect as `--version`.
pub(super) const VERSION_WORD: &str = "version";

/// Returns the user agent in upstream's format: program, version, platform.
pub(super) fn user_agent(program: &str, version: &str) -> String {
    format!("{program}/{version} ({})", platform())
}

/// Returns operating system and architecture by Go's names.
pub fn platform() -> String {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{}/{arch}", std::env::consts::OS)
}

pub(super) fn short_version() -> String {
    format!("{NAME} {VERSION}\n")
}

pub(super) fn raw_version() -> String {
    let mut numbers = VERSION.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
    format!("version.Info{{Major:{major:?}, Minor:{minor:?}, GitVersion:{VERSION:?}, Platform:{platform:?}}}\n")
}
