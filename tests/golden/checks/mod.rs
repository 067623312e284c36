//! The harness tried on itself: what it must notice, and what it must let pass.

mod comparison;
mod corpus;
mod playing;
