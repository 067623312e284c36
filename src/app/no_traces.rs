//! Without the feature `otlp`: there are no traces, and whoever asks for them is told.

use crate::cli::logging::SpanLayer;

/// Nothing; whoever sets an endpoint is told that it has no effect.
pub(super) fn from_environment() -> Result<Option<(SpanLayer, ())>, std::convert::Infallible> {
    if std::env::var_os("OTEL_EXPORTER_OTLP_ENDPOINT").is_some() {
        // The log is not there yet.
        super::process::fail(&"OTEL_EXPORTER_OTLP_ENDPOINT has no effect: this binary is built without the feature otlp");
    }
    Ok(None)
}
