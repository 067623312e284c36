//! Replacement of `traces` without the feature `otlp`, which reports that requests for traces have no effect.

use crate::cli::logging::SpanLayer;

/// Either of these turns traces on in a binary that has them.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];

/// Returns no exporter, and warns if an endpoint is set.
pub(super) fn from_environment() -> Result<Option<(SpanLayer, ())>, std::convert::Infallible> {
    if let Some(name) = requested_exporter(|name| std::env::var(name).ok()) {
        // The log is not there yet.
        super::process::fail(&format!("{name} has no effect: this binary is built without the feature otlp"));
    }
    Ok(None)
}

/// Returns the variable that requests traces. As in a binary that has them, an empty one does not.
fn requested_exporter(environment: impl Fn(&str) -> Option<String>) -> Option<&'static str> {
    ENDPOINTS.into_iter().find(|name| environment(name).is_some_and(|value| !value.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_endpoint_asks_for_traces() {
        for (set, value, expected) in [
            (ENDPOINTS[0], "http://collector", Some(ENDPOINTS[0])),
            (ENDPOINTS[1], "http://collector", Some(ENDPOINTS[1])),
            (ENDPOINTS[1], "", None),
            ("OTEL_SERVICE_NAME", "x", None),
        ] {
            assert_eq!(requested_exporter(|name| (name == set).then(|| value.to_owned())), expected, "{set}={value}");
        }
    }
}
