//! Load balancers for Services: from requests and the observed state to the documents that ARM must have.
//!
//! In: a Service with its [`annotations`], read and validated by [`spec`], and ARM's documents, [`observed`]. Out: [`plan`],
//! built from what [`desired`] computes for a set of Services together. [`naming`] defines every name.

pub mod annotations;
pub mod desired;
pub mod drift;
pub mod entries;
pub mod labels;
pub mod naming;
pub mod network_query;
pub mod observed;
pub mod occupancy;
pub mod plan;
pub mod pools;
pub mod rule_memory;
pub mod rule_records;
pub mod settings;
pub mod spec;
mod tag_list;
