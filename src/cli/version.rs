//! Name and version of the program, and how they are printed.

pub use crate::runtime::build_version::VERSION;

/// Name of the program.
pub const NAME: &str = "cloud-controller-manager";

/// Name of the subcommand for one Node, and of the program that is nothing else.
pub const NODE_MANAGER: &str = "cloud-node-manager";

/// The subcommand that does what `--version` does.
pub(super) const VERSION_WORD: &str = "version";

/// What upstream's user agents look like: program, version, platform.
pub(super) fn user_agent(program: &str, version: &str) -> String {
    format!("{program}/{version} ({})", platform())
}

/// Operating system and architecture, under Go's names.
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
