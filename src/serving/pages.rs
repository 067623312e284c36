//! Pages of the secure port, and the checks before them.
//!
//! In: requests with their peers. Out: responses. Every request is validated, authenticated and authorized, including
//! requests for pages that do not exist. Paths are those of the Go binaries plus `/livez`, `/`, `/statusz`, `/flagz`,
//! `/planz` and `/reportz`.

mod overview;
mod responses;
mod zpages;

use std::{sync::Arc, time::Duration};

use axum::{
    Extension, Router,
    body::{Body, to_bytes},
    extract::{Path, Query, Request, State},
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{
            ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
        },
        request::Parts as Head,
    },
    middleware::{Next, from_fn, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::{any, get, put},
};
use futures::stream;
use serde_json::json;
use tokio::time::{Instant, timeout};
use tower_http::{CompressionLevel, compression::CompressionLayer};

use self::responses::{plain, refuse, status_response, too_many_requests};
use super::{
    authentication::{AuthenticationError, RequestAuthenticator, RequestUser},
    authorization::{AuthorizationDecision, RequestAuthorizer},
    authorized_networks::AuthorizedNetworks,
    config::SecureServingConfig,
    deps::{PlanError, PlanKind, PlanRequest, Planner, ServingDeps},
    health::{self, HealthEndpoint},
    listener::ConnectionPeer,
    peer_network::{NetworkLimits, NetworkSemaphore},
    request_validation::{self, METHODS},
    review_client::ReviewError,
    slis,
};
use crate::runtime::{log_rate_limit::LogRateLimit, text::truncate};

/// Callers that may read this page may read `/`, which shows the same.
const STATUS_PATH: &str = "/statusz";
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
const CONFIGZ_KEY: &str = "cloudcontrollermanager.config.k8s.io";
const WHICH_SERVICE: &str = "say which Service: /planz?service=NAMESPACE/NAME\n";
const WHICH_KIND: &str = "say which kind: /planz?kind=nodes, routes or services\n";
const NO_PROFILES: &str = "profiles of the Go runtime do not exist here; see /metrics for process_* and /statusz\n";
/// Maximum size of the body of a log verbosity, in bytes.
const VERBOSITY_LIMIT: usize = 64;
/// Time within which a client must send a log verbosity.
const VERBOSITY_BODY: Duration = Duration::from_secs(10);
/// Limits of concurrent responses, each of which can have a megabyte. Health and refusals are exempt.
const RESPONSE_LIMITS: NetworkLimits = NetworkLimits { total: 16, per_network: 4, new_networks: 0 };
/// Maximum length of a logged error, in bytes.
const LOGGED_ERROR: usize = 512;

#[derive(Clone)]
struct PagesState {
    deps: Arc<ServingDeps>,
    authenticator: Arc<RequestAuthenticator>,
    authorizer: Arc<RequestAuthorizer>,
    authorized_networks: Arc<AuthorizedNetworks>,
    response_slots: NetworkSemaphore,
    log: Arc<LogRateLimit>,
}

/// Returns the router of the secure port.
pub(super) fn router(
    config: &SecureServingConfig,
    parts: ServingDeps,
    authenticator: Arc<RequestAuthenticator>,
    authorizer: Arc<RequestAuthorizer>,
    familiar: Arc<AuthorizedNetworks>,
) -> Router {
    let (response_slots, log) = (NetworkSemaphore::new(RESPONSE_LIMITS), Arc::default());
    let process = zpages::ProcessDescription::new(config.pair_name, parts.clock);
    let deps = Arc::new(parts);
    let app = PagesState { deps, authenticator, authorizer, authorized_networks: familiar, response_slots, log };
    let mut router = Router::new();
    for endpoint in HealthEndpoint::ALL {
        let path = format!("/{}", endpoint.name());
        router = router
            .route(&format!("{path}/{{check}}"), get(health_check).layer(Extension(endpoint)))
            .route(&path, get(health_endpoint).layer(Extension(endpoint)));
    }
    let mut pages = Router::new();
    if config.flagz {
        let deps = Arc::clone(&app.deps);
        pages = pages.route("/flagz", get(move |query, headers| zpages::flagz(deps, process, query, headers)));
    }
    if config.statusz {
        let deps = Arc::clone(&app.deps);
        let statusz = get(move |query, headers| zpages::statusz(deps, process, query, headers));
        pages = pages.route(STATUS_PATH, statusz).route("/", get(overview_page));
    }
    if let Some(planner) = app.deps.planner.clone() {
        let reporter = Arc::clone(&planner);
        pages = pages.route("/planz", get(move |query| planz(planner, query)));
        pages = pages.route("/reportz", get(move |query, headers| reportz(reporter, query, headers)));
    }
    if config.profiling {
        pages = pages
            .route("/debug/flags/v", put(set_verbosity).fallback(verbosity_not_acceptable))
            .route("/debug/pprof", any(profiles))
            .route("/debug/pprof/", any(profiles))
            .route("/debug/pprof/{*profile}", any(profiles));
    }
    let pages =
        pages.merge(scrapes()).route("/configz", get(configz)).route_layer(from_fn_with_state(app.clone(), mark_authorized));
    router
        .merge(pages)
        .fallback(not_found)
        .layer(from_fn_with_state(app.clone(), guard))
        .layer(from_fn(common_headers))
        .with_state(app)
}

/// Returns the pages for Prometheus, compressed for clients that accept it. Compression reduces the text of metrics to a
/// tenth.
fn scrapes() -> Router<PagesState> {
    let compression = CompressionLayer::new().quality(CompressionLevel::Fastest);
    let pages = Router::new().route("/metrics", get(metrics)).route("/metrics/v2", get(metrics));
    pages.route("/metrics/slis", get(metrics_slis)).layer(compression)
}

async fn common_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// Passes a request on with its [`RequestUser`], or responds with a Status.
async fn guard(
    State(app): State<PagesState>,
    Extension(peer): Extension<ConnectionPeer>,
    request: Request,
    next: Next,
) -> Response {
    let (mut head, body) = request.into_parts();
    match app.admit(&peer, &head).await {
        Ok(user) => head.extensions.insert(user),
        Err(refusal) => return refusal,
    };
    let request = Request::from_parts(head, body);
    if app.authorizer.is_open(authorized_path(request.uri().path())) {
        return next.run(request).await;
    }
    let Some(share) = app.response_slots.try_acquire(peer.slot.peer) else {
        app.count("answers");
        return too_many_requests("too many answers are being sent");
    };
    let mut response = next.run(request).await;
    response.extensions_mut().insert(Arc::new(share));
    response
}

/// Records the network of a caller that may read a page of the program.
///
/// Health, `/api/*` and paths without a page do not count, because the cluster's default roles permit them to every
/// ServiceAccount.
async fn mark_authorized(
    State(app): State<PagesState>,
    Extension(peer): Extension<ConnectionPeer>,
    Extension(user): Extension<RequestUser>,
    request: Request,
    next: Next,
) -> Response {
    if !user.is_anonymous() && !app.authorizer.is_open(authorized_path(request.uri().path())) {
        peer.slot.set_authorized();
        app.authorized_networks.add(peer.slot.peer, Instant::now());
    }
    next.run(request).await
}

impl PagesState {
    /// Returns the caller if it is permitted, or else the response.
    async fn admit(&self, peer: &ConnectionPeer, head: &Head) -> Result<RequestUser, Response> {
        if let Err(malformed) = request_validation::check(&head.method, &head.uri) {
            self.count("malformed");
            let mut response = refuse(malformed.code, malformed.reason, malformed.message);
            if malformed.code == StatusCode::METHOD_NOT_ALLOWED {
                response.headers_mut().insert(ALLOW, HeaderValue::from_static(METHODS));
            }
            return Err(response);
        }
        let user = self.user(peer, &head.headers).await?;
        self.authorized(&user, peer, head).await.map(|()| user)
    }

    async fn user(&self, peer: &ConnectionPeer, headers: &HeaderMap) -> Result<RequestUser, Response> {
        let identity = self.authenticator.authenticate(headers, &peer.certificates, peer.slot.peer).await;
        identity.map_err(|error| match error {
            AuthenticationError::TooMany => {
                self.count("reviews");
                too_many_requests(&error.to_string())
            }
            AuthenticationError::Rejected(error) => {
                if let Some(hidden) = self.log.permit() {
                    tracing::warn!(error = %truncate(&error, LOGGED_ERROR), hidden, "Unable to authenticate the request");
                }
                refuse(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
            }
        })
    }

    async fn authorized(&self, user: &RequestUser, peer: &ConnectionPeer, head: &Head) -> Result<(), Response> {
        let (verb, path) = (head.method.as_str().to_ascii_lowercase(), authorized_path(head.uri.path()));
        match self.authorizer.authorize(user, peer.slot.peer, &verb, path).await {
            Ok(AuthorizationDecision::Allow) => Ok(()),
            Ok(AuthorizationDecision::Deny(reason) | AuthorizationDecision::NoOpinion(reason)) => {
                Err(refuse(StatusCode::FORBIDDEN, "Forbidden", &forbidden(user, &verb, path, &reason)))
            }
            Err(error @ ReviewError::TooMany) => {
                self.count("reviews");
                Err(too_many_requests(&error.to_string()))
            }
            Err(ReviewError::Failed(error)) => {
                if let Some(hidden) = self.log.permit() {
                    let error = truncate(&error.to_string(), LOGGED_ERROR);
                    tracing::error!(%error, %path, hidden, "Cannot create a SubjectAccessReview");
                }
                let message = format!("Internal Server Error: {path:?}: cannot ask the API server whether this is allowed");
                Err(refuse(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", &message))
            }
        }
    }

    fn count(&self, reason: &str) {
        self.deps.metrics.serving_requests_refused_total.with_label_values(&[reason]).inc();
    }
}

/// Returns the path whose permission is required.
fn authorized_path(path: &str) -> &str {
    if path == "/" { STATUS_PATH } else { path }
}

/// Returns upstream's message (`responsewriters.Forbidden`).
fn forbidden(user: &RequestUser, verb: &str, path: &str, reason: &str) -> String {
    let message = format!("forbidden: User {:?} cannot {verb} path {path:?}", user.name);
    if reason.is_empty() { message } else { format!("{message}: {reason}") }
}

type QueryPairs = Query<Vec<(String, String)>>;

async fn health_endpoint(
    State(app): State<PagesState>,
    Extension(endpoint): Extension<HealthEndpoint>,
    Extension(user): Extension<RequestUser>,
    Query(query): QueryPairs,
) -> Response {
    let view = health::report_options(&query, !user.is_anonymous());
    let outcomes = app.deps.health.run(endpoint, |name| !view.exclude.iter().any(|excluded| excluded == name));
    slis::observe(&app.deps.metrics, endpoint, &outcomes);
    status_response(health::render(endpoint, &outcomes, &view))
}

async fn health_check(
    State(app): State<PagesState>,
    Extension(endpoint): Extension<HealthEndpoint>,
    Extension(user): Extension<RequestUser>,
    Path(check): Path<String>,
    Query(query): QueryPairs,
) -> Response {
    let view = health::report_options(&query, !user.is_anonymous());
    let outcomes = app.deps.health.run(endpoint, |name| name == check);
    slis::observe(&app.deps.metrics, endpoint, &outcomes);
    match health::render_one(&check, &outcomes, &view) {
        Some(response) => status_response(response),
        None => not_found().await,
    }
}

async fn metrics(State(app): State<PagesState>) -> Response {
    (app.deps.before_metrics)();
    let parts = Body::from_stream(stream::iter(app.deps.metrics.render_in_parts()));
    ([(CONTENT_TYPE, METRICS_TYPE)], parts).into_response()
}

async fn metrics_slis(State(app): State<PagesState>) -> Response {
    match slis::render(&app.deps.metrics) {
        Ok(text) => ([(CONTENT_TYPE, METRICS_TYPE)], text).into_response(),
        Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot render metrics: {error}\n")),
    }
}

async fn configz(State(app): State<PagesState>) -> Response {
    axum::Json(json!({ CONFIGZ_KEY: app.deps.configz })).into_response()
}

async fn overview_page(State(app): State<PagesState>, Extension(user): Extension<RequestUser>) -> Response {
    let (status, readiness) = ((app.deps.status)(), app.deps.health.run(HealthEndpoint::Readyz, |_| true));
    let page = overview::render(&overview::OverviewInput {
        status: &status,
        readiness: &readiness,
        show_reasons: !user.is_anonymous(),
        has_plan: app.deps.planner.is_some(),
    });
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, overview::POLICY),
        (REFERRER_POLICY, "no-referrer"),
    ];
    (headers, page).into_response()
}

/// Returns the plan for the Service that the query names, or for the cluster. Writes nothing.
async fn planz(planner: Planner, Query(query): QueryPairs) -> Response {
    let request = match plan_request(&query) {
        Ok(request) => request,
        Err(message) => return plain(StatusCode::BAD_REQUEST, message),
    };
    match planner(request).await {
        Ok(plan) => plain(StatusCode::OK, format!("{}\n", plan.trim_end())),
        Err(PlanError { code, reason }) => status_response((code, format!("{reason}\n"))),
    }
}

/// Returns the pending writes of a manager with `--dry-run`, and whether it can take over.
async fn reportz(planner: Planner, Query(query): QueryPairs, headers: HeaderMap) -> Response {
    let json = wants_json(&query, &headers);
    match planner(PlanRequest::Report { json }).await {
        Ok(report) if json => ([(CONTENT_TYPE, "application/json")], report).into_response(),
        Ok(report) => plain(StatusCode::OK, report),
        Err(PlanError { code, reason }) => status_response((code, format!("{reason}\n"))),
    }
}

/// Parses the query of a plan.
fn plan_request(query: &[(String, String)]) -> Result<PlanRequest, &'static str> {
    let value = |key: &str| query.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
    let service = |key: &str| service_key(key).map(str::to_owned).ok_or(WHICH_SERVICE);
    if let Some(key) = value("service") {
        return service(key).map(PlanRequest::Service);
    }
    let kind = match value("kind") {
        None => None,
        Some("nodes") => Some(PlanKind::Nodes),
        Some("routes") => Some(PlanKind::Routes),
        Some("services") => Some(PlanKind::Services),
        Some(_) => return Err(WHICH_KIND),
    };
    Ok(PlanRequest::Cluster { kind, after: value("after").map(service).transpose()? })
}

/// Returns `key` if it can be the key of a Service.
fn service_key(key: &str) -> Option<&str> {
    let (namespace, name) = key.split_once('/')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains('/')).then_some(key)
}

fn wants_json(query: &[(String, String)], headers: &HeaderMap) -> bool {
    let has_format = query.iter().any(|(key, value)| key == "format" && value == "json");
    let accepts = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    has_format || accepts.is_some_and(|accept| accept.starts_with("application/json"))
}

async fn set_verbosity(State(app): State<PagesState>, body: Body) -> Response {
    let Ok(body) = timeout(VERBOSITY_BODY, to_bytes(body, VERBOSITY_LIMIT)).await else {
        return plain(StatusCode::REQUEST_TIMEOUT, "the body was not sent in time\n");
    };
    let body = body.unwrap_or_default();
    let value = String::from_utf8_lossy(&body).trim().to_owned();
    match value.parse() {
        Ok(level) => {
            (app.deps.set_verbosity)(level);
            tracing::info!(level, "Set the log verbosity");
            plain(StatusCode::OK, format!("successfully set log verbosity to {level}\n"))
        }
        Err(_) => plain(
            StatusCode::BAD_REQUEST,
            format!("cannot set log verbosity to {value:?}; accepted: a number from 0 to 255\n"),
        ),
    }
}

async fn verbosity_not_acceptable() -> Response {
    plain(StatusCode::NOT_ACCEPTABLE, "unsupported HTTP method; PUT a number to set the log verbosity\n")
}

async fn profiles() -> Response {
    plain(StatusCode::NOT_IMPLEMENTED, NO_PROFILES)
}

async fn not_found() -> Response {
    plain(StatusCode::NOT_FOUND, "404 page not found\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_needs_a_format_or_accept_header() {
        let query = |value: &str| vec![("format".to_owned(), value.to_owned())];
        let accept = |value: &str| HeaderMap::from_iter([(ACCEPT, value.parse().unwrap())]);
        assert!(wants_json(&query("json"), &HeaderMap::new()));
        assert!(!wants_json(&query("text"), &HeaderMap::new()));
        assert!(wants_json(&[], &accept("application/json")));
        assert!(!wants_json(&[], &accept("*/*")));
    }
}
