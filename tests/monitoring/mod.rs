//! Alerts, dashboards and runbooks.
//!
//! Input: the files of the chart (`manifests/chart/files`), the cases of each alert (`alerts.test.yaml`), `docs/runbooks`, and the table of
//! metrics. promtool reads the queries; their names and labels are compared with the table.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests outside test functions")]

mod alerts;
mod dashboards;
mod metric_names;
use crate::promtool;
mod query;
mod runbooks;

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Returns a path in the repository.
fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}
