//! Golden cases: what Go's controller manager leaves in Azure, what this one leaves where Go is wrong, and the harness that replays both
//! on a simulated cloud and cluster.
//!
//! ```text
//! *.json ─► corpus ─► case::Case ─► stage (cluster and Azure, actions) ─► replay ◄── replica (manager)
//!                                     tolerance, addresses ─► normal ─► compare ◄──────┘
//! ```
//!
//! `plans` does the same with the pure planner alone. The data and the rules by which it is compared are
//! described in `README.md` beside this file.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests, outside of test functions")]

mod addresses;
mod case;
mod checks;
mod cluster_plans;
mod cluster_plans_random;
pub(crate) mod compare;
mod corpus;
mod deviations;
mod documents;
mod normal;
mod plans;
mod provider;
mod replay;
pub(crate) mod replica;
mod route_plans;
use crate::seeds;
mod shadow;
mod stage;
mod tolerance;
