//! An in-process API server: reviews of tokens and access, and the ConfigMap of the authorities. Input: its users and failures. Output: a
//! client, and the number of reviews.

use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use http::{Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

/// Users, failures and request counts of the API server.
#[derive(Default)]
pub(crate) struct ApiServer {
    pub(crate) tokens: Mutex<HashMap<String, String>>,
    pub(crate) readers: Mutex<Vec<String>>,
    pub(crate) config_map: Mutex<Option<BTreeMap<String, String>>>,
    pub(crate) config_map_forbidden: Mutex<bool>,
    pub(crate) failing_reviews: AtomicUsize,
    /// Whether access reviews of anonymous callers get no response.
    pub(crate) silent_to_anonymous: AtomicBool,
    /// Whether reviews of unknown tokens get no response.
    pub(crate) silent_to_junk: AtomicBool,
    /// Number of reviews of unknown tokens that wait for a response.
    pub(crate) junk: AtomicUsize,
    pub(crate) token_reviews: AtomicUsize,
    pub(crate) access_reviews: AtomicUsize,
}

impl ApiServer {
    pub(crate) fn client(self: &Arc<Self>) -> kube::Client {
        let server = Arc::clone(self);
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = Arc::clone(&server);
            async move { Ok::<_, Infallible>(server.respond(request).await) }
        });
        kube::Client::new(service, "default")
    }

    pub(crate) async fn respond(&self, request: Request<Body>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let review: Value = serde_json::from_slice(&body).unwrap_or_default();
        let (code, response) = match path.as_str() {
            "/apis/authentication.k8s.io/v1/tokenreviews" => {
                let result = self.review_token(review);
                if result.1["status"]["authenticated"] == false && self.silent_to_junk.load(Ordering::SeqCst) {
                    self.junk.fetch_add(1, Ordering::SeqCst);
                    std::future::pending::<()>().await;
                }
                result
            }
            "/apis/authorization.k8s.io/v1/subjectaccessreviews" => {
                let result = self.review_access(review);
                if result.1["spec"]["user"] == "system:anonymous" && self.silent_to_anonymous.load(Ordering::SeqCst) {
                    std::future::pending::<()>().await;
                }
                result
            }
            "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication" => self.authorities(),
            other => (404, failure(404, other)),
        };
        Response::builder().status(code).body(Body::from(serde_json::to_vec(&response).unwrap())).unwrap()
    }

    pub(crate) fn review_token(&self, mut review: Value) -> (u16, Value) {
        self.token_reviews.fetch_add(1, Ordering::SeqCst);
        if self.failing_reviews.load(Ordering::SeqCst) > 0 {
            self.failing_reviews.fetch_sub(1, Ordering::SeqCst);
            return (503, failure(503, "etcd has no leader"));
        }
        let user = self.tokens.lock().get(review["spec"]["token"].as_str().unwrap()).cloned();
        review["status"] = match user {
            Some(name) => json!({ "authenticated": true, "user": { "username": name, "groups": ["dev"] } }),
            None => json!({ "authenticated": false, "error": "unknown token" }),
        };
        (201, review)
    }

    pub(crate) fn review_access(&self, mut review: Value) -> (u16, Value) {
        self.access_reviews.fetch_add(1, Ordering::SeqCst);
        let spec = &review["spec"];
        assert!(spec["nonResourceAttributes"]["path"].as_str().unwrap().starts_with('/'));
        let allowed = self.readers.lock().contains(&spec["user"].as_str().unwrap().to_owned());
        review["status"] = json!({ "allowed": allowed, "reason": "by the list" });
        (201, review)
    }

    pub(crate) fn authorities(&self) -> (u16, Value) {
        if *self.config_map_forbidden.lock() {
            return (403, failure(403, "cannot get resource"));
        }
        match &*self.config_map.lock() {
            None => (404, failure(404, "not found")),
            Some(data) => (
                200,
                json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": data,
                        "metadata": { "name": "extension-apiserver-authentication", "namespace": "kube-system" } }),
            ),
        }
    }
}

pub(crate) fn failure(code: u16, message: &str) -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code, "metadata": {} })
}

pub(crate) fn reader(name: &str) -> Arc<ApiServer> {
    let api = ApiServer::default();
    api.tokens.lock().insert(format!("token-of-{name}"), name.to_owned());
    api.readers.lock().push(name.to_owned());
    Arc::new(api)
}
