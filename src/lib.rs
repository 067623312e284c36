//! Cloud-controller-manager that connects a Kubernetes cluster to its cloud.
//!
//! Data flows one way, and so do imports: `cli → app → controllers → cloud_provider ← providers`.

pub mod app;
pub mod cli;
pub mod cloud_provider;
pub mod controllers;
pub mod flags;
pub mod health_probe_proxy;
pub mod metrics;
pub mod node;
pub mod node_manager;
pub mod providers;
pub mod runtime;
#[cfg(feature = "sandbox")]
pub mod sandbox;
#[cfg(feature = "sandbox")]
pub mod sandbox_demo;
pub mod serving;
pub mod status;
