//! What ARM last said about machines, and how old it is.
//!
//! In: the ARM client. Out: [`Machine`]s by node name or ARM id, as fresh as the caller asks. Built from lists; one refresh answers
//! all who wait for it; writes and direct reads update it.

mod machine;

pub use machine::{Interface, IpConfiguration, Machine, MachineKind};
