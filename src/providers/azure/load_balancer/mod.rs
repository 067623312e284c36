//! Load balancers for Services: what is asked, what there is, and the documents that bring the one to the other.
//!
//! The pure core: [`spec`] (a Service with its [`annotations`], read and validated) and [`observed`] (ARM's documents) go through [`desired`], which changes
//! documents for a set of Services at once and says for each Service whether that was possible. [`naming`] has every name.
//! Nothing here sends anything yet: the committer that writes the documents, and the provider's `LoadBalancer` part, come on top.

pub mod annotations;
pub mod commit;
pub mod desired;
pub mod naming;
pub mod observed;
pub mod plan;
mod roster;
pub mod settings;
pub mod spec;
