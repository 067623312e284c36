//! In-memory Kubernetes API server and object builders, for tests and for `sandbox_demo`.
//!
//! ```text
//! client() or socket ─► api_server ─► http (parses) ─► faults (decides whether it is served)
//!                                        └─► handler ─► patch, selectors ─► storage ─► strategy, service, validation
//!                        response ◄── render, table ◄──────┘        └─history─► watch
//! ```
//!
//! Everything right of `api_server` is pure. [`kinds`] is the only table of the kinds.

pub mod aks_node;
pub mod allocations;
pub mod api_server;
pub mod azure;
pub mod discovery;
pub mod fault_handle;
pub mod faults;
pub mod handler;
pub mod http;
pub mod kinds;
mod manners;
pub mod objects;
pub mod partitions;
pub mod patch;
pub mod refusal;
pub mod render;
pub mod reviews;
pub mod selectors;
pub mod serve;
pub mod service;
pub mod storage;
pub mod strategy;
pub mod table;
pub mod typed;
pub mod validation;
pub mod verify;
pub mod watch;
