//! Bodies of webhook requests: bounded one by one, and in what all of them hold at once.
//!
//! In: a request. Out: its bytes with a share of the memory, or the reply that refuses it. Who says how long its body is takes as much as
//! it says; who does not takes the most.

use std::sync::Arc;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http::{Request, StatusCode};

use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A status and what is said with it.
pub(super) type WebhookReply = (StatusCode, String);

/// Most bytes of a body: what an API server takes of a client.
const LARGEST: usize = 3 << 20;
/// What shares are counted in.
const UNIT: usize = 64 << 10;
/// Units of all bodies together: 12 MiB.
const UNITS: usize = 192;

/// The memory for bodies.
pub(super) struct BodyBudget(Arc<Semaphore>);

impl Default for BodyBudget {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(UNITS)))
    }
}

/// A body, and its share of the memory.
pub(super) struct ReviewBody {
    pub(super) bytes: Bytes,
    _share: OwnedSemaphorePermit,
}

impl BodyBudget {
    /// Reads a body; waits for a share first.
    pub(super) async fn read(&self, request: Request<Body>) -> Result<ReviewBody, WebhookReply> {
        let too_large = || (StatusCode::PAYLOAD_TOO_LARGE, format!("the body has more than {LARGEST} bytes"));
        let said = request.body().size_hint();
        if said.lower() > LARGEST as u64 {
            return Err(too_large());
        }
        let length = said.upper().map_or(LARGEST, |length| usize::try_from(length).unwrap_or(LARGEST).min(LARGEST));
        let units = u32::try_from(length.div_ceil(UNIT).max(1)).unwrap_or(u32::MAX);
        let unavailable = |_| (StatusCode::SERVICE_UNAVAILABLE, "no room for the body".to_owned());
        let share = Arc::clone(&self.0).acquire_many_owned(units).await.map_err(unavailable)?;
        match Limited::new(request.into_body(), LARGEST).collect().await {
            Ok(body) => Ok(ReviewBody { bytes: body.to_bytes(), _share: share }),
            Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
            Err(_) => Err((StatusCode::BAD_REQUEST, "the body ends early".to_owned())),
        }
    }
}
