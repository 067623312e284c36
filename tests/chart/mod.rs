//! The Helm chart: it takes the values of Go's chart, adopts its objects in place, and installs what the kustomize base installs.
//!
//! In: the chart (`manifests/chart`), values (`values/*.yaml`, `refused/*.yaml`), names and selectors of Go's chart (`go.json`).
//! What Helm renders is kept in `rendered/`, so that all tests but those in `helm.rs` need no Helm; one of these proves that it is
//! current. `UPDATE_DOCS=1` writes it anew.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, outside of test functions")]

mod adoption;
mod base;
mod helm;
mod monitoring;
pub(crate) mod objects;
pub(crate) mod programs;
use crate::shipped;
mod webhooks;
mod windows;
