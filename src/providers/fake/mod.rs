//! A cloud with memory.
