//! What the program should do.

use super::{
    check_config::CheckConfigOptions,
    config::{ManagerConfig, NodeManagerConfig},
};

/// What the program should do.
#[derive(Debug, Clone, PartialEq)]
pub enum CliCommand {
    /// Run the controllers.
    Run(Box<ManagerConfig>),
    /// Look after the Node of this machine.
    ManageNode(Box<NodeManagerConfig>),
    /// Check the provider's configuration.
    Check(Box<CheckConfigOptions>),
    /// Print this to stdout and end with exit code 0.
    Print(String),
}
