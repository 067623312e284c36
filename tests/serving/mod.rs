//! The secure port as a client sees it: a real TLS server on loopback, and an in-process API server that reviews tokens and access.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests outside test functions")]

use crate::any_server;
mod api_server;
mod authentication;
mod authority;
mod browser;
mod certificates;
mod connections;
mod pages;
mod port;
mod refusals;
mod status_page;
mod webhooks;
