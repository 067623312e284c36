//! Client that cannot write: the last layer of requests of a plan or a dry run.
//!
//! In: a client. Out: a client that responds with [`ReadOnlyRefusal`] to every request that is neither a read nor a review.
//! Nothing of such a request reaches the server, whatever component sends it and whatever its leadership.

use http::Method;
use kube::{Client, client::Body};
use tower::BoxError;

/// Ends of the paths of reviews, which only read although they use POST.
const REVIEWS: [&str; 5] = [
    "/authentication.k8s.io/v1/tokenreviews",
    "/authentication.k8s.io/v1/selfsubjectreviews",
    "/authorization.k8s.io/v1/subjectaccessreviews",
    "/authorization.k8s.io/v1/selfsubjectaccessreviews",
    "/authorization.k8s.io/v1/selfsubjectrulesreviews",
];

/// Reason why a request was not sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this process only reads (--dry-run or plan): {0} was not sent")]
pub struct ReadOnlyRefusal(String);

/// Returns a client that only reads.
pub fn read_only(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let client = client.clone();
        async move {
            if is_read(request.method(), request.uri().path()) {
                return client.send(request).await.map_err(BoxError::from);
            }
            Err(ReadOnlyRefusal(format!("{} {}", request.method(), request.uri().path())).into())
        }
    });
    Client::new(service, namespace)
}

fn is_read(method: &Method, path: &str) -> bool {
    let is_review = || REVIEWS.iter().any(|review| path == format!("/apis{review}"));
    matches!(*method, Method::GET | Method::HEAD) || (*method == Method::POST && is_review())
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use k8s_openapi::api::{
        authentication::v1::TokenReview,
        core::v1::{Event, Node},
    };
    use kube::{
        Api,
        api::{DeleteParams, Patch, PatchParams, PostParams},
    };
    use serde_json::json;

    use super::*;
    use crate::runtime::client::with_causes;

    /// Returns a read-only client, and the number of requests that reach the server.
    fn counted() -> (Client, Arc<AtomicUsize>) {
        let count = Arc::new(AtomicUsize::new(0));
        let arrived = Arc::clone(&count);
        let server = tower::service_fn(move |_: http::Request<Body>| {
            arrived.fetch_add(1, Ordering::SeqCst);
            let body = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {}}).to_string();
            std::future::ready(Ok::<_, BoxError>(http::Response::new(Body::from(body.into_bytes()))))
        });
        (read_only(Client::new(server, "default")), count)
    }

    #[tokio::test]
    async fn only_reads_and_reviews_reach_the_server() {
        let (client, arrived) = counted();
        let nodes: Api<Node> = Api::all(client.clone());
        let events: Api<Event> = Api::default_namespaced(client.clone());
        nodes.get("n").await.unwrap();
        // The response does not decode, but the request has reached the server.
        let _ = Api::<TokenReview>::all(client).create(&PostParams::default(), &TokenReview::default()).await;
        assert_eq!(arrived.load(Ordering::SeqCst), 2);
        let (patch, change) = (PatchParams::default(), Patch::Merge(json!({})));
        for refused in [
            nodes.patch("n", &patch, &change).await.map(drop),
            nodes.patch_status("n", &patch, &change).await.map(drop),
            nodes.delete("n", &DeleteParams::default()).await.map(drop),
            nodes.replace("n", &PostParams::default(), &Node::default()).await.map(drop),
            events.create(&PostParams::default(), &Event::default()).await.map(drop),
        ] {
            let error = with_causes(&refused.unwrap_err());
            assert!(error.contains("this process only reads") && error.contains(" /api/v1/"), "{error}");
        }
        assert_eq!(arrived.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn paths_that_resemble_reviews_are_not_reads() {
        for path in ["/api/v1/namespaces/a/serviceaccounts/b/token", "/apis/x/tokenreviews", "/api/v1/nodes"] {
            assert!(!is_read(&Method::POST, path), "{path}");
        }
        assert!(!is_read(&Method::PUT, "/apis/authentication.k8s.io/v1/tokenreviews"));
    }
}
