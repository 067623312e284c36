//! Without the feature `otlp`: there are no traces, and whoever asks for them is told.

use crate::cli::logging::SpanLayer;

/// Either of these turns traces on in a binary that has them.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];

/// Nothing; whoever sets an endpoint is told that it has no effect.
pub(super) fn from_environment() -> Result<Option<(SpanLayer, ())>, std::convert::Infallible> {
    if let Some(name) = asking(|name| std::env::var(name).ok()) {
        // The log is not there yet.
        super::process::fail(&format!("{name} has no effect: this binary is built without the feature otlp"));
    }
    Ok(None)
}

/// The variable that asks for traces. As in a binary that has them, an empty one does not.
fn asking(environment: impl Fn(&str) -> Option<String>) -> Option<&'static str> {
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
            assert_eq!(asking(|name| (name == set).then(|| value.to_owned())), expected, "{set}={value}");
        }
    }
}
