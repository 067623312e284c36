//! The command line of `verify-azure`.

use std::path::PathBuf;

use clap::Parser;

/// Play the table of assumptions about Azure against an ARM endpoint
#[derive(Debug, Clone, Parser)]
#[command(name = "cloud-controller-manager verify-azure")]
pub struct VerifyArguments {
    /// Configuration of the Azure provider: cloud, subscription and credentials.
    #[arg(long, required_unless_present = "sandbox")]
    pub cloud_config: Option<PathBuf>,
    /// Name of an empty resource group; nothing is created elsewhere.
    #[arg(long, required_unless_present = "sandbox")]
    pub resource_group: Option<String>,
    /// Play against a simulated Azure, which is served with TLS on loopback.
    #[arg(long, conflicts_with_all = ["cloud_config", "resource_group"])]
    pub sandbox: bool,
    /// Start without asking for confirmation.
    #[arg(long)]
    pub yes: bool,
    /// Rows to play, by ID or topic; `*` matches any text. Empty selects all.
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// Needs whose rows are left out: `metadata` outside of an Azure machine, `secret` without aadClientSecret.
    #[arg(long, value_delimiter = ',')]
    pub without: Vec<String>,
    /// Rows that are played at the same time.
    #[arg(long, default_value_t = 4)]
    pub parallel: usize,
    /// Reports: this path with `.md` and `.json` after it.
    #[arg(long, default_value = "azure-assumptions")]
    pub report: PathBuf,
    /// A file with other rows, in place of the program's own.
    #[arg(long)]
    pub table: Option<PathBuf>,
}
