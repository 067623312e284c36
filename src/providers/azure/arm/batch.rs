//! Batches: one document, one write at a time, for all waiting callers. Load balancers and routes share this code, which
//! depends on neither.
//!
//! In: requests, each from a caller that waits. Out: the batches, and their times. [`batcher`] gathers, [`delay`] decides
//! how long, [`bisect`] splits a rejected batch, [`quarantine`] records requests that were rejected alone. The content of a
//! write, and the number of attempts, are up to the callers.

pub mod batcher;
pub mod bisect;
pub mod delay;
pub mod quarantine;
