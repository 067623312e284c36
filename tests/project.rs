//! Documentation, manifests, chart, monitoring, releases, and the structure of the sources.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, outside of test functions")]

#[path = "support/chart_values.rs"]
mod chart_values;
#[path = "support/promtool.rs"]
mod promtool;
#[path = "support/shipped.rs"]
mod shipped;

mod chart;
mod contract;
mod guides;
mod layering;
mod manifests;
mod metrics_of_upstream;
mod monitoring;
mod reference_docs;
mod release;
mod structure;
