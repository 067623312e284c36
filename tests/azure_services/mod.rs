//! Services of type LoadBalancer on Azure, accepted as a whole: the manager (service and node controllers, azure provider) over an
//! in-process API server and a simulated Resource Manager, on a paused clock.
//!
//! ```text
//! Service ─► ApiServer ─► Wire ─► manager ─► Wire ─► simulated ARM ─► documents
//! ```
//!
//! [`cluster`] has the cluster and its managers, [`wire`] the connections of a process, [`documents`] the comparison of two clouds. The
//! other modules are scenarios. Counts are asserted; times are simulated, and printed where they show how close a run came to the request
//! budget.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests, outside of test functions"
)]

mod cluster;
mod documents;
use crate::scraped;
use crate::seeds;
mod services;
mod wire;

mod absence;
mod alerts;
mod classes;
mod counts;
mod crash;
mod dns_labels;
mod drift;
mod forbidden;
mod frontends;
mod growth;
mod growth_over_balancers;
mod hang;
mod hostile;
mod isolation;
mod joins;
mod last_frontends;
mod lease;
mod leftovers;
mod lifecycle;
mod local_services;
mod machines;
mod membership;
mod migration;
mod order;
mod order_on_the_wire;
mod private_link_heirs;
mod private_links;
mod public_ip_lists;
mod quotas;
mod refusals;
mod reload;
mod replays;
mod rights;
mod rule_records;
mod scale;
mod sequences;
mod several;
mod several_histories;
mod stand_ins;
mod storm;
mod together;
mod unread_changes;
mod upheavals;
