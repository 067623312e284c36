//! What `explain` knows of Azure: error codes, annotations, events.
//!
//! In: the tables that the reference pages are made of. Out: one topic for each row.

use super::{
    load_balancer::{
        events,
        explain::{ArmErrorEntry, CODES, ErrorRecovery},
    },
    out_of_service,
    planner::load_balancer::annotations::{ANNOTATIONS, AnnotationEntry},
};
use crate::cloud_provider::registry::ReferenceTopic;

/// Every topic.
pub fn topics() -> Vec<ReferenceTopic> {
    let events = events::EVENTS.iter().chain(out_of_service::events::EVENTS).map(ReferenceTopic::event);
    CODES.iter().map(error).chain(ANNOTATIONS.iter().map(annotation)).chain(events).collect()
}

fn error(entry: &ArmErrorEntry) -> ReferenceTopic {
    let names = entry.codes.iter().copied().chain([entry.reason]).map(str::to_owned).collect();
    let next = match entry.recovery {
        ErrorRecovery::Mend => "Retried slowly: somebody has to change something first.",
        ErrorRecovery::Retry => "Retried with back-off: it may go away by itself.",
    };
    let codes = format!("ARM's codes: {}", entry.codes.join(", "));
    ReferenceTopic { kind: "Azure error", names, lines: vec![entry.fix.to_owned(), next.to_owned(), codes] }
}

fn annotation(entry: &AnnotationEntry) -> ReferenceTopic {
    let short = entry.key.rsplit('/').next().unwrap_or_default();
    let mut lines = vec![entry.doc.to_owned(), format!("Accepts: {}", (entry.accepts)())];
    lines.extend((!entry.default.is_empty()).then(|| format!("Without it: {}", entry.default)));
    ReferenceTopic { kind: "annotation", names: vec![entry.key.to_owned(), short.to_owned()], lines }
}
