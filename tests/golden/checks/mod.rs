//! The harness tried on itself: what it must notice.

mod comparison;
mod corpus;
mod playing;
