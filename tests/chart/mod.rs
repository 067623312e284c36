//! The Helm chart: it accepts the values of Go's chart, adopts its objects in place, and installs the same objects as the kustomize base.
//!
//! Input: the chart (`manifests/chart`), values (`values/*.yaml`, `refused/*.yaml`), names and selectors of Go's chart (`go.json`).
//! `rendered/` contains the results of Helm, so only the tests in `helm.rs` need Helm. One of them checks that the results are current.
//! `UPDATE_DOCS=1` rewrites them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests outside test functions")]

mod adoption;
mod base;
mod helm;
mod monitoring;
pub(crate) mod objects;
pub(crate) mod programs;
use crate::shipped;
mod webhooks;
mod windows;
