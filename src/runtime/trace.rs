//! Spans of traces, and their distinction from other `tracing` data.
//!
//! Each step runs in a span of [`TARGET`]. Without an exporter (`app::traces`) these spans have no subscriber, and none is
//! created; with one they are exported and never logged. All have one level, because no verbosity selects among them.

use tracing::{Level, Metadata, Span, span};

/// Target of every span that may be exported.
pub const TARGET: &str = "trace";
/// Level of every such span: the log's verbosity hides none.
pub const LEVEL: Level = Level::ERROR;

/// Returns `true` for a span that may be exported.
pub fn is_traced(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && metadata.target() == TARGET
}

/// Creates the span of one Service; `request` names the operation.
pub fn service(key: &str, request: &str) -> Span {
    span!(target: TARGET, LEVEL, "service", service = key, request)
}

/// Creates the span of a step of something that has a span.
pub fn step(name: &'static str) -> Span {
    span!(target: TARGET, LEVEL, "step", otel.name = name)
}
