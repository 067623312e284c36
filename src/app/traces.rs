//! Traces over OTLP (feature `otlp`): the spans of [`trace`], as protobuf over HTTP to a collector.
//!
//! In: the standard variables `OTEL_EXPORTER_OTLP_…`. Out: a layer for the log's registry, and the handle that ends it.
//! Without an endpoint there is neither. A span that ends is added to a bounded queue (2,048, `OTEL_BSP_MAX_QUEUE_SIZE`),
//! which drops the excess; one thread takes batches from it, another sends them to the collector. So a slow or missing
//! collector blocks no other component.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use opentelemetry::{KeyValue, trace::TracerProvider as _};
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{ExporterBuildError, Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
use tracing_subscriber::{Layer, filter::filter_fn};

use crate::{cli::logging::SpanLayer, runtime::trace};

/// Service name of the spans, unless `OTEL_SERVICE_NAME` overrides it.
const SERVICE: &str = "cloud-controller-manager";
/// Either of these turns traces on.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];
/// Longest that one request to the collector takes, and that the end of the process waits for the last spans.
const REQUEST: Duration = Duration::from_secs(10);
const LAST_SPANS: Duration = Duration::from_secs(2);

/// Traces cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    #[error("traces: {0}")]
    Exporter(#[from] ExporterBuildError),
    #[error("traces: {0}")]
    Client(#[from] reqwest::Error),
    #[error("traces: {0}")]
    Thread(#[from] std::io::Error),
}

/// Sends what is left when it is dropped.
pub struct TraceExport {
    provider: SdkTracerProvider,
    /// Ends the thread that speaks to the collector.
    _stop: tokio::sync::oneshot::Sender<()>,
}

impl Drop for TraceExport {
    fn drop(&mut self) {
        if let Err(error) = self.provider.shutdown_with_timeout(LAST_SPANS) {
            tracing::debug!(%error, "the last spans were not sent");
        }
    }
}

/// Returns the exporter, if the environment of the process requests it.
pub(super) fn from_environment() -> Result<Option<(SpanLayer, TraceExport)>, TracesError> {
    exporter(|name| std::env::var(name).ok())
}

/// Returns the exporter, if `environment` requests it.
pub fn exporter(environment: impl Fn(&str) -> Option<String>) -> Result<Option<(SpanLayer, TraceExport)>, TracesError> {
    let is_off = environment("OTEL_SDK_DISABLED").is_some_and(|value| matches!(value.as_str(), "true" | "True" | "TRUE"));
    if is_off || ENDPOINTS.iter().all(|name| environment(name).is_none_or(|value| value.is_empty())) {
        return Ok(None);
    }
    let exporter = SpanExporter::builder().with_http().with_protocol(Protocol::HttpBinary);
    start(|client| exporter.with_http_client(client).build()).map(Some)
}

/// Returns an exporter to this collector.
pub fn exporter_to(url: &str) -> Result<(SpanLayer, TraceExport), TracesError> {
    let exporter = SpanExporter::builder().with_http().with_protocol(Protocol::HttpBinary).with_endpoint(url);
    start(|client| exporter.with_http_client(client).build())
}

fn start(
    build: impl FnOnce(CollectorClient) -> Result<SpanExporter, ExporterBuildError>,
) -> Result<(SpanLayer, TraceExport), TracesError> {
    let (runtime, stop) = collector_thread()?;
    let client = reqwest::Client::builder().timeout(REQUEST).redirect(reqwest::redirect::Policy::none()).build()?;
    let exporter = build(CollectorClient { client, runtime })?;
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let mut resource = Resource::builder().with_attribute(version);
    if std::env::var_os("OTEL_SERVICE_NAME").is_none() {
        resource = resource.with_service_name(SERVICE);
    }
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.build()).build();
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer(SERVICE))
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_filter(filter_fn(trace::is_traced));
    Ok((Box::new(layer), TraceExport { provider, _stop: stop }))
}

/// Starts a runtime of its own: the exporter's thread has none, and that of the program must not wait for a collector.
fn collector_thread() -> std::io::Result<(tokio::runtime::Handle, tokio::sync::oneshot::Sender<()>)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    std::thread::Builder::new().name("otlp".to_owned()).spawn(move || {
        let _ = runtime.block_on(stopped);
    })?;
    Ok((handle, stop))
}

/// The HTTP client of the program, for the exporter.
#[derive(Debug)]
struct CollectorClient {
    client: reqwest::Client,
    runtime: tokio::runtime::Handle,
}

#[async_trait]
impl HttpClient for CollectorClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.client.clone();
        let exchange = async move {
            let mut collector_response = client.execute(request.try_into()?).await?.error_for_status()?;
            let mut response = Response::builder().status(collector_response.status());
            if let Some(headers) = response.headers_mut() {
                std::mem::swap(headers, collector_response.headers_mut());
            }
            Ok::<_, HttpError>(response.body(collector_response.bytes().await?)?)
        };
        self.runtime.spawn(exchange).await?
    }
}
