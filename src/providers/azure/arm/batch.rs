//! Batches: one document, one write at a time, for everybody who waits. Load balancers and routes share it; it knows neither.
//!
//! In: requests, each from a caller that waits. Out: which of them are written together, and when. [`batcher`] gathers, [`delay`] says
//! how long, [`bisect`] takes a rejected batch apart, [`quarantine`] remembers who was rejected alone. What is written, and how often at
//! most, is up to the callers.

pub mod batcher;
pub mod bisect;
pub mod delay;
pub mod quarantine;
