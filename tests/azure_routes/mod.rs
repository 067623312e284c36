//! Pod routes on the simulated Azure, with the whole manager in this process and a paused clock: costs of bursts, and the final table after
//! crashes and faults.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests, outside of test functions")]

mod cluster;
mod costs;
mod disturbances;
mod migration;
use crate::seeds;
mod tables;
