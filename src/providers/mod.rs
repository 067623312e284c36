//! Providers. Each implements [`crate::cloud_provider`] and knows no controller.

pub mod azure;
pub mod fake;
