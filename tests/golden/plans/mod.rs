//! Plans of the recorded steps by the pure core of load balancing alone: without controllers and requests.
//!
//! ```text
//! case ─► cluster (actions to requests) ─► cloud (documents to Observed) ─► printed (whole plans as text)
//! ```
//!
//! Every step begins with the recorded documents of the step before.

mod cloud;
mod cluster;
mod printed;
