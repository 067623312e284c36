//! Programs with a simulated Azure that is served with TLS: the commands that the demo prints, and the table of assumptions.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, outside of test functions")]

mod demo_shadow;
mod verify;

use std::process::Child;

/// A process that ends with the test.
pub(crate) struct Ended(pub(crate) Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_cloud-controller-manager");
