//! Pod routes: from what the route controller wants to the table that has to be written.
//!
//! In: routes with the machines of their Nodes ([`next_hop`]), the table as ARM sent it, what is remembered of Nodes
//! ([`node_history`]), all by value. Out: [`plan`], the whole table to write; [`writes`], that plan as a write; [`listing`], what the controller is shown of it.
//! [`names`] has every name, [`settings`] what of the configuration counts here.

pub mod listing;
pub mod names;
pub mod next_hop;
pub mod node_history;
pub mod plan;
pub mod settings;
pub mod writes;
