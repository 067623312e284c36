//! Pod routes: from the requests of the route controller to the table to write.
//!
//! In: routes with the machines of their Nodes ([`next_hop`]), the table as ARM sent it, and remembered facts about Nodes
//! ([`node_history`]), all by value. Out: [`plan`], the whole table to write; [`writes`], that plan as a write; [`listing`],
//! the routes for the controller. [`names`] defines every name, [`settings`] has the relevant part of the configuration.

pub mod listing;
pub mod names;
pub mod next_hop;
pub mod node_history;
pub mod plan;
pub mod settings;
pub mod writes;
