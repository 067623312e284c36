//! Load balancers for Services: what is asked, what there is, and the documents that bring the one to the other.
//!
//! The pure core: [`spec`] (a Service with its [`annotations`], read and validated) and [`observed`] (ARM's documents) go through [`desired`], which changes
//! documents for a set of Services at once and says for each Service whether that was possible. [`naming`] has every name.
//! [`members`] writes who is in the back-end pools. The committer that writes the other documents, and the provider's `LoadBalancer`
//! part, come on top.

pub mod annotations;
pub mod desired;
pub mod members;
pub mod naming;
pub mod observed;
pub mod settings;
pub mod spec;
