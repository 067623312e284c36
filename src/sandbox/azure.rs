//! A simulated Azure: the Resource Manager (ARM), and, on the same listener, Entra's token endpoints ([`entra`]) and the
//! instance metadata service ([`imds`]).
//!
//! [`topology`] describes clusters; [`world`] is a whole cloud with events.
//!
//! ```text
//! transport() or socket ─► server ─► faults (whether it is served) ─► handle (gates) ─► distort ─► read ─► view ──┐
//!           ▲                                                            └─► write ─► complete, validate ─► effects ─► store
//!           └── delivery (whole, slowly, half) ◄── response                                                   history ◄──┘
//! ```
//!
//! Everything right of `server` is pure. [`kinds`] is the only table of the types of documents.

pub mod addresses;
pub mod canonical;
pub mod complete;
pub mod delivery;
pub mod distort;
pub mod effects;
pub mod entra;
pub mod faults;
pub mod handle;
pub mod history;
pub mod imds;
pub mod kinds;
pub mod limits;
pub mod listen;
pub mod log;
pub mod migration;
pub mod operation;
pub mod options;
pub mod private_link;
pub mod read;
pub mod read_only;
pub mod references;
pub mod refusal;
pub mod registry;
pub mod request;
pub mod route;
pub mod server;
pub mod shape;
pub mod store;
pub mod throttle;
pub mod topology;
pub mod validate;
pub mod view;
pub mod world;
pub mod write;

pub use faults::{Crash, Effect, EtagMode, Fault, Omission};
pub use limits::{LoadBalancerLimits, SkuLimits};
pub use listen::Served;
pub use log::RequestRecord;
pub use options::{AsyncStyle, AzureOptions, Busy, Class, Latencies, Latency};
pub use private_link::ConnectionStatus;
pub use server::{Azure, Endpoint, TokenCheck, TokenOwner};
pub use store::{InvalidDocument, Store};
pub use throttle::Quotas;

#[cfg(test)]
mod tests;
