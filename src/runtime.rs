//! Shared controller machinery. Depends on Kubernetes, but on no cloud and no controller.
//!
//! The path of an event, from watch to reconcile:
//!
//! ```text
//! API server ─watch─► informer ─► store          (state of the cluster; read by all)
//!                        └─handlers─► work_queue  (due keys; never objects)
//!                                        └─► worker ─► a controller's reconcile(key)
//!                                               reads the store, calls the provider, plans, then writes:
//!                                               patch::ObjectWriter (objects) and events::EventRecorder,
//!                                               both checking leader_election::Leadership first
//! ```

pub mod access_review;
pub mod admission;
pub mod backoff;
mod bearer;
pub mod build_version;
pub mod client;
pub mod clock;
pub mod events;
pub mod host_name;
pub mod informer;
pub mod leader_election;
pub(crate) mod listen_socket;
pub(crate) mod log_rate_limit;
pub(crate) mod new_file;
pub mod patch;
pub mod service_account;
pub mod shutdown;
pub mod single_flight;
pub mod store;
pub mod text;
pub mod token_bucket;
pub mod watch;
pub mod watched;
pub mod work_queue;
pub mod worker;
pub mod yaml;
