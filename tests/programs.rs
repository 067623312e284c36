//! The programs as processes: ports, signals, input, and parsers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, outside of test functions")]

#[path = "support/any_server.rs"]
mod any_server;

mod acr_credential_provider;
mod bad_input;
mod fuzz;
mod health_probe_proxy;
mod ipv6_only;
mod process;
mod secrets;
mod secure_port_flood;
mod serving;
