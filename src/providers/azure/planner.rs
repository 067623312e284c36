//! What decides what Azure has to look like. Pure: no `async`, no clock, no client, no lock; the rule holds for the folder.
//!
//! In: what a user asks for, what ARM sent, what is remembered, all by value. Out: documents and plans. Whoever acts on them stands
//! outside: `load_balancer` and `routes`.

pub mod load_balancer;
pub mod routes;
pub mod tags;
