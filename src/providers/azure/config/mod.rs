//! `azure.json`: every field once, read from a file, a Secret or both, checked, and read again when it changes.
//!
//! In: text. Out: an [`AzureConfig`] and what is strange about it, or an error that names the field and what it accepts.
//! Knows no ARM and sends nothing.

mod fields;
mod values;

pub use fields::{AzureConfig, FIELDS, Field};
pub use values::{
    AuxiliaryTokenProvider, BackendPoolType, CloudConfigType, HealthProbeMode, LoadBalancerSku,
    MultipleStandardLoadBalancer, RateLimit, VmType,
};
