//! The recorded steps planned by the pure core of load balancing alone: no controllers, no requests.
//!
//! ```text
//! case ─► cluster (actions to asks) ─► cloud (documents to Observed) ─► printed (whole plans as text)
//! ```
//!
//! Every step begins with the recorded documents of the step before.

mod cloud;
mod cluster;
mod printed;
