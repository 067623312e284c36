//! A simulated Azure: Resource Manager, Entra token endpoints and the instance metadata service, with memory.

pub mod entra;
pub mod imds;
pub mod topology;
pub mod world;
