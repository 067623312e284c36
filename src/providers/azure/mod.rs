//! The Azure provider. Reads go down this list and never come back: `load_balancer, routes, instances → inventory → arm → auth`;
//! `config`, `node` and `arm::ResourceId` are below all of them.

pub mod arm;
pub mod auth;
pub mod check;
pub mod config;
pub mod instances;
pub mod inventory;
pub mod node;
pub mod out_of_service;
