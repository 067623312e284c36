//! Last check of leadership, when a write leaves the client.
//!
//! [`super::super::patch::ObjectWriter`] checks before it sends a write; the write may then wait for the rate limit, or the
//! whole process may be suspended. A write that was overtaken by the loss of the lease is refused here, with [`NotLeading`].

use http::Method;

use crate::runtime::leader_election::{Leadership, NotLeading};

/// Refuses a write while `leadership` does not hold. Reads pass.
pub(super) fn check_write(leadership: Option<&Leadership>, method: &Method) -> Result<(), NotLeading> {
    match leadership {
        Some(leadership) if !matches!(*method, Method::GET | Method::HEAD) => leadership.check(),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use kube::{Api, api::Patch};
    use serde_json::json;
    use tower::{BoxError, Layer, ServiceExt};

    use super::*;
    use crate::runtime::{
        client::requests::RequestSteps,
        leader_election::LeadershipState,
        patch::{ApiError, ObjectWriter, PatchTarget},
        store::ObjectKey,
    };

    /// Returns a client whose server responds with a Node. `lose` runs before the leadership of a request is checked.
    fn client(leadership: Leadership, lose: impl Fn() + Send + 'static) -> kube::Client {
        let server = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            let node = serde_json::to_vec(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})).unwrap();
            Ok::<_, BoxError>(http::Response::new(kube::client::Body::from(node)))
        });
        let fenced = RequestSteps { leadership: Some(leadership), ..RequestSteps::default() }.layer(server);
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
        writer.patch(&api, &ObjectKey::cluster("n"), PatchTarget::Object, &Patch::Merge(json!({}))).await
    }

    #[tokio::test]
    async fn a_write_that_loses_leadership_is_refused() {
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
