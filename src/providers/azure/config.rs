//! `azure.json`: every field once, decoded, overridden by the environment, merged and checked. Pure.
//!
//! In: text. Out: an [`AzureConfig`] and warnings, or findings that name the field and the accepted values.
//!
//! `document` (text to tree) → `decode` (tree to fields, with `fields`, `values`, `choices`, `objects`) → `environment` → `validate`;
//! `merge` puts them in order, and `check` shows the result. Texts come from [`super::config_source`].

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
mod validate;
mod values;

pub use check::{ConfigReport, offline_report};
pub use choices::{BackendPoolType, CloudConfigType, DriftPolicy, HealthProbeMode, LoadBalancerSku, VmType};
pub use decode::{DecodedConfig, decode, decode_over};
pub use document::MAX_BYTES;
pub use environment::{EnvironmentOverrides, EnvironmentVariable, VARIABLES, variables};
pub use fields::{AzureConfig, ConfigField, FIELDS};
pub use finding::{ConfigFinding, FindingSeverity, has_errors, promote_warnings};
pub use merge::{ConfigTexts, merge, sources_to_read};
pub use objects::{AuxiliaryTokenProvider, ClientRateLimit, MultipleStandardLoadBalancer};
pub use rate_limits::RATE_LIMIT_CLIENTS;
pub use validate::{has_credentials, missing_cluster_entry, unusable_cluster_name, validate};
