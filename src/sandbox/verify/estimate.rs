//! Estimate of a run: requests, minutes and money, roughly. Pure.

use std::fmt::Write;

use super::{
    prepare,
    table::{Assumption, AssumptionStep, AssumptionTable, StepVerb},
    values::Variables,
};

/// Typical seconds to create and to delete, and US dollars an hour, by the type's last word. Other types are free. Prices:
/// Azure's public list, 2026.
const TYPES: &[(&str, f64, f64, f64)] = &[
    ("publicIPAddresses", 4.0, 12.0, 0.005),
    ("publicIPPrefixes", 5.0, 12.0, 0.012),
    ("loadBalancers", 4.0, 12.0, 0.025),
    ("networkInterfaces", 2.0, 12.0, 0.0),
    ("virtualNetworks", 5.0, 12.0, 0.0),
    ("networkSecurityGroups", 4.0, 4.0, 0.0),
    ("routeTables", 4.0, 4.0, 0.0),
    ("privateLinkServices", 20.0, 20.0, 0.0),
    ("privateEndpoints", 45.0, 30.0, 0.01),
    ("virtualMachineScaleSets", 10.0, 15.0, 0.0),
];
/// Seconds of a request without an operation.
const REQUEST: f64 = 0.3;

/// An estimate of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RunEstimate {
    pub rows: usize,
    pub requests: usize,
    pub writes: usize,
    pub seconds: f64,
    pub dollars: f64,
}

impl RunEstimate {
    /// Returns the estimate for rows that are played `parallel` at a time.
    pub fn of(table: &AssumptionTable, parallel: usize) -> Self {
        let rows: Vec<Self> = table.rows.iter().map(|row| of_row(table, row)).collect();
        let sum = |value: fn(&Self) -> f64| rows.iter().map(value).sum::<f64>();
        let longest = rows.iter().map(|row| row.seconds).fold(0.0, f64::max);
        let lanes = u32::try_from(parallel.max(1)).map_or(1.0, f64::from);
        Self {
            rows: rows.len(),
            requests: rows.iter().map(|row| row.requests).sum(),
            writes: rows.iter().map(|row| row.writes).sum(),
            seconds: (sum(|row| row.seconds) / lanes).max(longest),
            dollars: sum(|row| row.dollars),
        }
    }

    /// Returns the estimate as a sentence.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let minutes = (self.seconds / 60.0).ceil().max(1.0);
        let cents = (self.dollars * 100.0).ceil().max(1.0);
        let _ = write!(
            text,
            "{} rows, about {} requests ({} of them writes); about {minutes} minutes; about {cents} US cents on Azure's public list",
            self.rows, self.requests, self.writes
        );
        text
    }
}

fn of_row(table: &AssumptionTable, row: &Assumption) -> RunEstimate {
    let preparations =
        row.prerequisites.iter().map(|name| AssumptionStep { put: Some(name.clone()), ..AssumptionStep::default() });
    let preparations: Vec<AssumptionStep> = preparations.collect();
    let steps: Vec<&AssumptionStep> = preparations.iter().chain(row.steps.iter().flat_map(AssumptionStep::all)).collect();
    let mut estimate = RunEstimate { rows: 1, ..RunEstimate::default() };
    let mut per_hour = 0.0;
    for step in steps {
        let Ok((verb, target)) = step.verb() else { continue };
        estimate.requests += 1;
        estimate.seconds += REQUEST;
        if !matches!(verb, StepVerb::Put | StepVerb::Patch | StepVerb::Delete | StepVerb::Post) {
            continue;
        }
        estimate.writes += 1;
        let is_refused = step.expect.code.is_some();
        let Some((_, create, delete, price)) = costs(table, step.at.as_deref().unwrap_or(target)).filter(|_| !is_refused)
        else {
            continue;
        };
        // Polls, the document afterwards, the deletion with its polls.
        estimate.requests += 6;
        estimate.seconds += create + delete;
        per_hour += price;
    }
    estimate.dollars = per_hour * estimate.seconds / 3600.0;
    estimate
}

fn costs(table: &AssumptionTable, target: &str) -> Option<&'static (&'static str, f64, f64, f64)> {
    let path = prepare::resolve(table, target, &Variables::placeholders()).ok()?;
    let kind = prepare::kind_of(&path).ok()?.resource_type;
    TYPES.iter().find(|(name, ..)| kind.split('/').nth(1) == Some(name))
}
