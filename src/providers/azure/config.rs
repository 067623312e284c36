//! `azure.json`: every field once, read from a file, a Secret or both, checked, and read again when it changes.
//!
//! In: text. Out: an [`AzureConfig`] and what is strange about it, or findings that name the field and what it accepts.
//! Knows no ARM and sends nothing to it.
//!
//! The pure part: `document` (text to tree) → `decode` (tree to fields, with `fields`, `values`, `choices`, `objects`) →
//! `environment` → `validate`; `merge` puts them in order. The shell: `source` fetches texts, `reload` fetches them again. `check` and
//! `reference` show what comes out and what may go in.

mod check;
mod choices;
mod decode;
mod document;
mod environment;
mod fields;
mod finding;
mod merge;
mod objects;
mod rate_limits;
mod reader;
mod reference;
mod reload;
mod source;
mod validate;
mod values;

pub use check::{ConfigReport, offline_report};
pub use choices::{BackendPoolType, CloudConfigType, DriftPolicy, HealthProbeMode, LoadBalancerSku, VmType};
pub use decode::{DecodedConfig, decode, decode_over};
pub use environment::{EnvironmentOverrides, EnvironmentVariable, VARIABLES, variables};
pub use fields::{AzureConfig, ConfigField, FIELDS};
pub use finding::{ConfigFinding, FindingSeverity, has_errors, promote_warnings};
pub use merge::{ConfigTexts, merge};
pub use objects::{AuxiliaryTokenProvider, ClientRateLimit, MultipleStandardLoadBalancer};
pub use rate_limits::RATE_LIMIT_CLIENTS;
pub use reference::reference_page;
pub use reload::{INTERVAL, follow};
pub use source::{ConfigLoadError, ConfigLoader, ConfigSource, default_secret, read_text};
pub use validate::{has_credentials, missing_cluster_entry, unusable_cluster_name, validate};
