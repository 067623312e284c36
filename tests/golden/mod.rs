//! Golden cases: the results of Go's controller manager in Azure, our results where Go is wrong, and the harness that replays both on a
//! simulated cloud and cluster.
//!
//! ```text
//! *.json ─► corpus ─► case::Case ─► stage (cluster and Azure, actions) ─► replay ◄── replica (manager)
//!                                     tolerance, addresses ─► normal ─► compare ◄──────┘
//! ```
//!
//! `plans` replays the cases with the pure planner alone. `README.md` describes the data and the rules of its comparison.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests outside test functions")]

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
