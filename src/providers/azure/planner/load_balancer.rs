//! Load balancers for Services: from what is asked and what there is to the documents that bring the one to the other.
//!
//! In: a Service with its [`annotations`], read and validated by [`spec`], and ARM's documents, [`observed`]. Out: [`plan`], made of what
//! [`desired`] says for a set of Services at once. [`naming`] has every name.

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
