//! `make verify-azure`: plays the table of assumptions about Azure (`tests/assumptions`) against an ARM endpoint, through the ARM client and
//! the credentials of the Azure provider.
//!
//! ```text
//! tests/assumptions/*.yaml ─► table ─► play (one row: requests, responses) ─► compare ─► report (Markdown, JSON)
//!                                        │        └─► wire (interruption, scope of writes) ─► ARM, login, metadata service
//!                                        └─► cleanup: deletes what the row created, also after an interruption
//! ```
//!
//! In: a configuration (`azure.json`) and a resource group, or a simulated Azure of its own. Out: a report that names wrong
//! beliefs. [`table`], [`values`], [`compare`], [`estimate`], [`report`] and [`page`] are pure.

pub mod arguments;
pub mod cleanup;
pub mod cloud;
pub mod compare;
pub mod estimate;
pub mod page;
pub mod play;
pub mod prepare;
pub mod program;
pub mod report;
pub mod run;
pub mod simulated;
pub mod table;
pub mod values;
pub mod wire;

pub use program::run;

#[cfg(test)]
mod tests;
