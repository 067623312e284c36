//! The pages of the secure port, and the guard in front of them.
//!
//! In: requests that carry their peer. Out: answers, after authentication and authorization of every request, also of one for a
//! page that does not exist. Paths are those of the Go binaries plus `/livez`, `/statusz`, `/flagz` and `/planz`.

mod text;

use std::sync::Arc;

use axum::{
    Extension, Router,
    body::{Body, to_bytes},
    extract::{Path, Query, Request, State},
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
    },
    middleware::{Next, from_fn, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::{any, get, put},
};
use serde_json::{Value, json};

use super::{
    NoPlan, Parts, Planner, ServingConfig,
    authentication::{Authenticator, User},
    authorization::{Authorizer, Decision},
    health::{self, Endpoint},
    listener::Peer,
    slis,
};

const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
const CONFIGZ_KEY: &str = "cloudcontrollermanager.config.k8s.io";
const WHICH_SERVICE: &str = "say which Service: /planz?service=NAMESPACE/NAME\n";
const NO_PROFILES: &str = "profiles of the Go runtime do not exist here; see /metrics for process_* and /statusz\n";
/// A verbosity has few digits.
const VERBOSITY_LIMIT: usize = 64;

#[derive(Clone)]
struct App {
    parts: Arc<Parts>,
    authenticator: Arc<Authenticator>,
    authorizer: Arc<Authorizer>,
}

/// Everything the secure port answers.
pub(super) fn router(
    config: &ServingConfig,
    parts: Parts,
    authenticator: Arc<Authenticator>,
    authorizer: Arc<Authorizer>,
) -> Router {
    let app = App { parts: Arc::new(parts), authenticator, authorizer };
    let mut router = Router::new();
    for endpoint in Endpoint::ALL {
        let path = format!("/{}", endpoint.name());
        router = router
            .route(&format!("{path}/{{check}}"), get(health_check).layer(Extension(endpoint)))
            .route(&path, get(health_endpoint).layer(Extension(endpoint)));
    }
    if config.flagz {
        router = router.route("/flagz", get(flagz));
    }
    if config.statusz {
        router = router.route("/statusz", get(statusz));
    }
    if let Some(planner) = app.parts.plan.clone() {
        router = router.route("/planz", get(move |query| planz(planner, query)));
    }
    if config.profiling {
        router = router
            .route("/debug/flags/v", put(set_verbosity).fallback(verbosity_not_acceptable))
            .route("/debug/pprof", any(profiles))
            .route("/debug/pprof/", any(profiles))
            .route("/debug/pprof/{*profile}", any(profiles));
    }
    router
        .route("/metrics", get(metrics))
        .route("/metrics/v2", get(metrics))
        .route("/metrics/slis", get(metrics_slis))
        .route("/configz", get(configz))
        .fallback(not_found)
        .layer(from_fn_with_state(app.clone(), guard))
        .layer(from_fn(common_headers))
        .with_state(app)
}

async fn common_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// Lets a request through with its [`User`], or answers 401, 403 or 500 with a Status.
async fn guard(State(app): State<App>, Extension(peer): Extension<Peer>, mut request: Request, next: Next) -> Response {
    let user = match app.authenticator.authenticate(request.headers(), &peer.certificates).await {
        Ok(user) => user,
        Err(error) => {
            tracing::warn!(%error, "Unable to authenticate the request");
            return refuse(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized");
        }
    };
    let (verb, path) = (request.method().as_str().to_ascii_lowercase(), request.uri().path().to_owned());
    match app.authorizer.authorize(&user, &verb, &path).await {
        Ok(Decision::Allow) => {
            request.extensions_mut().insert(user);
            next.run(request).await
        }
        Ok(Decision::Deny(reason) | Decision::NoOpinion(reason)) => {
            refuse(StatusCode::FORBIDDEN, "Forbidden", &forbidden(&user, &verb, &path, &reason))
        }
        Err(error) => {
            tracing::error!(%error, %path, "Unable to authorize the request");
            let message = format!("Internal Server Error: {path:?}: cannot ask the API server whether this is allowed");
            refuse(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", &message)
        }
    }
}

/// Upstream's words (`responsewriters.Forbidden`).
fn forbidden(user: &User, verb: &str, path: &str, reason: &str) -> String {
    let message = format!("forbidden: User {:?} cannot {verb} path {path:?}", user.name);
    if reason.is_empty() { message } else { format!("{message}: {reason}") }
}

fn refuse(code: StatusCode, reason: &str, message: &str) -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "details": {}, "code": code.as_u16(),
    });
    (code, axum::Json(status)).into_response()
}

fn plain(code: StatusCode, body: impl Into<Body>) -> Response {
    (code, [(CONTENT_TYPE, "text/plain; charset=utf-8")], body.into()).into_response()
}

fn answer((code, body): (u16, String)) -> Response {
    plain(StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), body)
}

type Pairs = Query<Vec<(String, String)>>;

async fn health_endpoint(
    State(app): State<App>,
    Extension(endpoint): Extension<Endpoint>,
    Extension(user): Extension<User>,
    Query(query): Pairs,
) -> Response {
    let view = health::view(&query, !user.is_anonymous());
    let outcomes = app.parts.health.run(endpoint, |name| !view.exclude.iter().any(|excluded| excluded == name));
    slis::observe(&app.parts.metrics, endpoint, &outcomes);
    answer(health::render(endpoint, &outcomes, &view))
}

async fn health_check(
    State(app): State<App>,
    Extension(endpoint): Extension<Endpoint>,
    Extension(user): Extension<User>,
    Path(check): Path<String>,
    Query(query): Pairs,
) -> Response {
    let view = health::view(&query, !user.is_anonymous());
    let outcomes = app.parts.health.run(endpoint, |name| name == check);
    slis::observe(&app.parts.metrics, endpoint, &outcomes);
    match health::render_one(&check, &outcomes, &view) {
        Some(response) => answer(response),
        None => not_found().await,
    }
}

fn exposition(text: Result<String, prometheus::Error>) -> Response {
    match text {
        Ok(text) => ([(CONTENT_TYPE, METRICS_TYPE)], text).into_response(),
        Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot render metrics: {error}\n")),
    }
}

async fn metrics(State(app): State<App>) -> Response {
    (app.parts.before_metrics)();
    exposition(app.parts.metrics.render())
}

async fn metrics_slis(State(app): State<App>) -> Response {
    exposition(slis::render(&app.parts.metrics))
}

async fn configz(State(app): State<App>) -> Response {
    axum::Json(json!({ CONFIGZ_KEY: app.parts.configz })).into_response()
}

async fn flagz(State(app): State<App>) -> Response {
    plain(StatusCode::OK, text::flags(&app.parts.flagz))
}

async fn statusz(State(app): State<App>, Query(query): Pairs, headers: HeaderMap) -> Response {
    let status: Value = (app.parts.status)();
    if wants_json(&query, &headers) {
        axum::Json(status).into_response()
    } else {
        plain(StatusCode::OK, text::status(&status))
    }
}

/// What would be done for the Service that the query names. Writes nothing.
async fn planz(planner: Planner, Query(query): Pairs) -> Response {
    let Some(service) = service_of(&query) else { return plain(StatusCode::BAD_REQUEST, WHICH_SERVICE) };
    match planner(service.to_owned()).await {
        Ok(plan) => plain(StatusCode::OK, format!("{}\n", plan.trim_end())),
        Err(NoPlan { code, reason }) => answer((code, format!("{reason}\n"))),
    }
}

/// The key of a Service, if the query has one.
fn service_of(query: &[(String, String)]) -> Option<&str> {
    let (_, key) = query.iter().find(|(name, _)| name == "service")?;
    let (namespace, name) = key.split_once('/')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains('/')).then_some(key)
}

fn wants_json(query: &[(String, String)], headers: &HeaderMap) -> bool {
    let asked = query.iter().any(|(key, value)| key == "format" && value == "json");
    let accepts = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    asked || accepts.is_some_and(|accept| accept.starts_with("application/json"))
}

async fn set_verbosity(State(app): State<App>, body: Body) -> Response {
    let body = to_bytes(body, VERBOSITY_LIMIT).await.unwrap_or_default();
    let value = String::from_utf8_lossy(&body).trim().to_owned();
    match value.parse() {
        Ok(level) => {
            (app.parts.set_verbosity)(level);
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
    fn refusals_use_upstreams_words() {
        let user = User { name: "system:anonymous".to_owned(), ..Default::default() };
        let rows = [
            ("", "forbidden: User \"system:anonymous\" cannot get path \"/metrics\""),
            ("no rule", "forbidden: User \"system:anonymous\" cannot get path \"/metrics\": no rule"),
        ];
        for (reason, expected) in rows {
            assert_eq!(forbidden(&user, "get", "/metrics", reason), expected);
        }
    }

    #[test]
    fn json_is_for_those_who_ask() {
        let query = |value: &str| vec![("format".to_owned(), value.to_owned())];
        let accept = |value: &str| HeaderMap::from_iter([(ACCEPT, value.parse().unwrap())]);
        assert!(wants_json(&query("json"), &HeaderMap::new()));
        assert!(!wants_json(&query("text"), &HeaderMap::new()));
        assert!(wants_json(&[], &accept("application/json")));
        assert!(!wants_json(&[], &accept("*/*")));
    }
}
