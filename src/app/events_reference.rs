//! Reference page of events, generated from the controllers' tables.
//!
//! In: every table of events, with the source component that records them. Out: `docs/reference/events.md`, which
//! `tests/reference_docs.rs` compares with the file.

use super::manager_state::COMPONENT;
use crate::{
    cli::controllers::{NODE, NODE_IPAM, NODE_LIFECYCLE, ROUTE, SERVICE},
    controllers::{node, node_ipam, node_lifecycle, route, service},
    runtime::{
        events::{EventDescription, EventType},
        leader_election,
    },
};

/// Heading, source component and events of a recorder.
pub type EventTable = (&'static str, &'static str, &'static [EventDescription]);

/// Tables of this program, without those of providers.
const TABLES: &[EventTable] = &[
    (NODE_IPAM.canonical, NODE_IPAM.event_source, node_ipam::EVENTS),
    (NODE.canonical, NODE.event_source, node::EVENTS),
    (NODE_LIFECYCLE.canonical, NODE_LIFECYCLE.event_source, node_lifecycle::EVENTS),
    (SERVICE.canonical, SERVICE.event_source, service::events::EVENTS),
    (ROUTE.canonical, ROUTE.event_source, route::EVENTS),
    ("Leader election", COMPONENT, leader_election::EVENTS),
];

/// Returns every row of this program's own tables.
pub(super) fn rows() -> impl Iterator<Item = &'static EventDescription> {
    TABLES.iter().flat_map(|(_, _, events)| *events)
}

/// Returns the text of `docs/reference/events.md`, with the tables of providers at the end.
pub fn events_reference(providers: &[EventTable]) -> String {
    let mut page = String::from(
        "# Events\n\n\
         <!-- Generated from the tables of events in src; do not edit. `make docs` writes it again. -->\n\n\
         The program writes core/v1 Events about a Node, a Service or the Lease; `kubectl describe` shows them. It aggregates\n\
         similar events and limits their rate like client-go.\n",
    );
    for (title, component, events) in TABLES.iter().chain(providers) {
        page += &format!("\n## {title}\n\nSource component `{component}`.\n\n| Reason | Type | When |\n|---|---|---|\n");
        page.extend(events.iter().map(row));
    }
    page
}

fn row(event: &EventDescription) -> String {
    let type_ = match event.type_ {
        EventType::Normal => "Normal",
        EventType::Warning => "Warning",
    };
    format!("| `{}` | {type_} | {} |\n", event.reason, event.when.replace('|', "\\|"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::controllers;

    #[test]
    fn every_controller_and_every_event_is_on_the_page() {
        let page = events_reference(&[]);
        for names in controllers::TABLE {
            assert!(page.contains(&format!("\n## {}\n\nSource component `{}`", names.canonical, names.event_source)));
        }
        for event in TABLES.iter().flat_map(|(_, _, events)| *events) {
            assert!(page.contains(&row(event)), "{}", event.reason);
        }
    }
}
