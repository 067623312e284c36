//! A simulated Azure: Resource Manager, Entra token endpoints and the instance metadata service, with memory.
