//! Group commit: one document, one write at a time, for everybody who waits.
//!
//! [`batch`] gathers, [`hold`] says how long, [`split`] takes a rejected batch apart.

pub mod batch;
pub mod hold;
pub mod split;
