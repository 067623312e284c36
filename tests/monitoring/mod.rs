//! What operators watch: alerts, dashboards, runbooks.
//!
//! In: the files of the chart (`manifests/chart/files`), the cases of each alert (`alerts.test.yaml`), `docs/runbooks`, and the table of
//! metrics. promtool reads the queries; their names and labels are compared with the table.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, outside of test functions")]

mod alerts;
mod dashboards;
mod known;
use crate::promtool;
mod query;
mod runbooks;

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A path of the tree.
fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}
