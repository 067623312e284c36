//! Load balancers for Services: what is asked, what there is, and the documents that bring the one to the other.
//!
//! The pure core: [`spec`] (a Service with its [`annotations`], read and validated) and [`observed`] (ARM's documents) go through [`desired`], which changes
//! documents for a set of Services at once and says for each Service whether that was possible. [`naming`] has every name.
//! For those who act: [`lease`] (who may write), [`zones`] (of the region), [`explain`] and [`events`] (what went wrong, for people).
//! Nothing here sends anything yet: the committer that writes the documents, and the provider's `LoadBalancer` part, come on top.

pub mod annotations;
pub mod desired;
pub mod events;
pub mod explain;
pub mod lease;
pub mod naming;
pub mod observed;
pub mod settings;
pub mod spec;
pub mod zones;
