//! Spans of traces: how they are told apart from everything else that `tracing` carries.
//!
//! Whoever does a step wraps it in a span of [`TARGET`]. Without an exporter (`app::traces`) nothing asks for these spans, and none is made; with
//! one they go there and never into the log. All have one level, since no verbosity chooses among them.

use tracing::{Level, Metadata, Span, span};

/// Target of every span that may be exported.
pub const TARGET: &str = "trace";
/// Level of every such span: the log's verbosity hides none.
pub const LEVEL: Level = Level::ERROR;

/// Whether this is a span that may be exported.
pub fn is_traced(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && metadata.target() == TARGET
}

/// One Service on its way: `request` says what is done for it.
pub fn service(key: &str, request: &str) -> Span {
    span!(target: TARGET, LEVEL, "service", service = key, request)
}

/// A step of something that has a span.
pub fn step(name: &'static str) -> Span {
    span!(target: TARGET, LEVEL, "step", otel.name = name)
}
