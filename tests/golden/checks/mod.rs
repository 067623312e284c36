//! Tests of the harness: the differences that it must find.

mod comparison;
mod corpus;
mod playing;
