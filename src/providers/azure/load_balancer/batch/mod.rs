//! Group commit: one document, one write at a time, for everybody who waits.
//!
//! [`batcher`] gathers, [`delay`] says how long, [`split`] takes a rejected batch apart.

pub mod batcher;
pub mod delay;
pub mod split;
