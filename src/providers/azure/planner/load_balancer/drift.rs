//! Drift: what somebody else changed in Azure of what this process had found or made right. Pure.
//!
//! [`findings`] reads out of a plan which documents of which Services differ; [`repairs`] says when they are put right, so that two programs
//! that want different things do not write in turns without end.

pub mod findings;
pub mod repairs;
