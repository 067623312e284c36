//! Topics of `explain` about Azure: error codes, annotations, events, fields of `azure.json`, labels and taints of Nodes.
//!
//! In: the tables that the reference pages are made of. Out: one topic for each row.

use super::{
    arm::{ArmErrorEntry, CODES, ErrorRecovery},
    config::{ConfigField, FIELDS},
    load_balancer::events,
    metadata::describe::{LABEL_INTERCONNECT_GROUP, LABEL_SUB_FAULT_DOMAIN},
    node::{LABEL_FAULT_DOMAIN, LABEL_MANAGED, LABEL_RESOURCE_GROUP},
    out_of_service::{self, decide::OUT_OF_SERVICE},
    planner::load_balancer::annotations::{ANNOTATIONS, AnnotationEntry},
};
use crate::cloud_provider::registry::ReferenceTopic;

/// Returns the topics of all tables.
pub fn topics() -> Vec<ReferenceTopic> {
    let events = events::EVENTS.iter().chain(out_of_service::events::EVENTS).map(ReferenceTopic::event);
    let names = NODE_NAMES.iter().map(|(kind, name, meaning)| ReferenceTopic::object_name(kind, name, meaning));
    let tables = CODES.iter().map(error).chain(ANNOTATIONS.iter().map(annotation)).chain(FIELDS.iter().map(field));
    tables.chain(events).chain(names).collect()
}

/// Kind, name and meaning of what this provider reads or writes on Nodes.
const NODE_NAMES: &[(&str, &str, &str)] = &[
    (
        "label",
        LABEL_MANAGED,
        "false: the machine is not in Azure. Its Node loses the uninitialized taint, and nothing else is written.",
    ),
    ("label", LABEL_RESOURCE_GROUP, "Resource group of the machine, if it is not the cluster's."),
    ("label", LABEL_FAULT_DOMAIN, "Fault domain of the machine, whether or not it is in an availability zone."),
    ("label", LABEL_SUB_FAULT_DOMAIN, "Part of a fault domain. Written by cloud-node-manager from the instance metadata."),
    (
        "label",
        LABEL_INTERCONNECT_GROUP,
        "Group of machines with a fast interconnect. Written by cloud-node-manager from the instance metadata.",
    ),
    (
        "taint",
        OUT_OF_SERVICE.0,
        "The machine is shut down, so that its disks can move to other Nodes. Removed when the machine runs again.",
    ),
];

fn field(field: &ConfigField) -> ReferenceTopic {
    let mut lines = vec![field.doc.to_owned(), format!("Field of azure.json ({}); value: {}", field.group, (field.kind)())];
    lines.extend((!field.default.is_empty()).then(|| format!("Default: {}", field.default)));
    ReferenceTopic { kind: "field of azure.json", names: vec![field.name.to_owned()], lines }
}

fn error(entry: &ArmErrorEntry) -> ReferenceTopic {
    let names = entry.names().chain([entry.reason]).map(str::to_owned).collect();
    let next = match entry.recovery {
        ErrorRecovery::Mend => "Retried slowly: somebody has to change something first.",
        ErrorRecovery::Retry => "Retried with back-off: it may go away by itself.",
    };
    let codes = format!("ARM's codes: {}", entry.names().collect::<Vec<_>>().join(", "));
    ReferenceTopic { kind: "Azure error", names, lines: vec![entry.fix.to_owned(), next.to_owned(), codes] }
}

fn annotation(entry: &AnnotationEntry) -> ReferenceTopic {
    let short = entry.key.rsplit('/').next().unwrap_or_default();
    let mut lines = vec![entry.doc.to_owned(), format!("Accepts: {}", (entry.accepts)())];
    lines.extend((!entry.default.is_empty()).then(|| format!("Without it: {}", entry.default)));
    ReferenceTopic { kind: "annotation", names: vec![entry.key.to_owned(), short.to_owned()], lines }
}
