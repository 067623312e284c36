//! Last check of leadership, when a write leaves the client.
//!
//! [`super::super::patch::ObjectWriter`] checks before it sends a write; the write may then wait for the rate limit, or the
//! whole process may be suspended. A write that was overtaken by the loss of the lease is refused here, with [`NotLeading`].

use std::task::{Context, Poll};

use futures::future::{Either, Ready, ready};
use http::Method;
use tower::{BoxError, Layer, Service};

use crate::runtime::leader_election::Leadership;
#[cfg(doc)]
use crate::runtime::leader_election::NotLeading;

/// Refuses writes while `leadership` does not hold. Reads pass.
#[derive(Clone)]
pub(super) struct WriteFenceLayer(pub(super) Leadership);

impl<S> Layer<S> for WriteFenceLayer {
    type Service = WriteFence<S>;

    fn layer(&self, inner: S) -> WriteFence<S> {
        WriteFence { inner, leadership: self.0.clone() }
    }
}

#[derive(Clone)]
pub(super) struct WriteFence<S> {
    inner: S,
    leadership: Leadership,
}

impl<S, B> Service<http::Request<B>> for WriteFence<S>
where
    S: Service<http::Request<B>, Error = BoxError>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Either<S::Future, Ready<Result<S::Response, BoxError>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        match self.leadership.check() {
            Err(refused) if !reads => Either::Right(ready(Err(refused.into()))),
            _ => Either::Left(self.inner.call(request)),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use kube::Api;
    use serde_json::json;
    use tower::ServiceExt;

    use super::*;
    use crate::runtime::{
        leader_election::{LeadershipState, NotLeading},
        patch::{ApiError, ObjectWriter, PatchKind, PatchTarget},
        store::ObjectKey,
    };

    /// A client that answers everything with a Node, after a write has lost its leadership on the way.
    fn client(leadership: Leadership, lose: impl Fn() + Send + 'static) -> kube::Client {
        let answer = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            let node = serde_json::to_vec(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})).unwrap();
            Ok::<_, BoxError>(http::Response::new(kube::client::Body::from(node)))
        });
        let fenced = WriteFenceLayer(leadership).layer(answer);
        kube::Client::new(
            fenced.map_request(move |request: http::Request<kube::client::Body>| {
                lose();
                request
            }),
            "default",
        )
    }

    async fn patch(writer: &ObjectWriter) -> Result<Node, ApiError> {
        let api: Api<Node> = Api::all(writer.client().clone());
        writer.patch(&api, &ObjectKey::cluster("n"), PatchTarget::Object, PatchKind::Merge, json!({})).await
    }

    #[tokio::test]
    async fn a_write_that_leadership_left_on_the_way_is_refused() {
        let leading =
            LeadershipState::Leading { until: (tokio::time::Instant::now() + std::time::Duration::from_secs(60)).into() };
        let (state, leadership) = Leadership::channel();
        state.send_replace(leading);
        let (keep, lose) = (|| (), {
            let state = state.clone();
            move || {
                let _ = state.send_replace(LeadershipState::Standby);
            }
        });
        let writer = ObjectWriter::new(client(leadership.clone(), keep), leadership.clone());
        patch(&writer).await.unwrap();

        let writer = ObjectWriter::new(client(leadership.clone(), lose), leadership.clone());
        assert_eq!(patch(&writer).await.unwrap_err(), ApiError::NotLeading(NotLeading));
        let api: Api<Node> = Api::all(writer.client().clone());
        writer.get(&api, &ObjectKey::cluster("n")).await.unwrap();
    }
}
