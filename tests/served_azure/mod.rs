//! Programs beside a simulated Azure that is served with TLS: what the demo says to type, and the table of assumptions.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, outside of test functions")]

mod demo_shadow;
mod verify;

const PROGRAM: &str = env!("CARGO_BIN_EXE_cloud-controller-manager");
