//! The shell around a write: sends it, then polls its operation to the end. What is polled and when is decided in `operation.rs`.

use bytes::Bytes;
use http::Response;
use tokio::time::{Instant, sleep_until};

use super::{
    ArmClient, ArmError, ArmResult, ErrorClass,
    operation::{Operation, Outcome, Step},
    request::Ask,
    retry_after,
};

impl ArmClient {
    /// Sends a write and waits for its operation. Answers what ARM says the result is, if there is one.
    pub(super) async fn operate(&self, ask: &Ask, deadline: Instant) -> ArmResult<Option<Response<Bytes>>> {
        let mut last = self.send(ask, deadline).await?;
        let polling = self.shared.settings.polling;
        let (mut operation, mut step) =
            Operation::begin(&ask.method, ask.url.clone(), polling, &last, self.asked_wait(&last))
                .map_err(|failure| failure.error(ask.asked()))?;
        loop {
            match step {
                Step::Done(Outcome::Here) => return Ok(Some(last)),
                Step::Done(Outcome::Nothing) => return Ok(None),
                Step::Done(Outcome::At(url)) => return self.result_at(ask, &ask.read_at(url), deadline).await.map(Some),
                Step::Poll { url, after } => {
                    let due = self.now() + after;
                    if due >= deadline {
                        return Err(still_running(ask));
                    }
                    sleep_until(due).await;
                    let polled = self.send(&ask.read_at(url), deadline).await;
                    let wait = polled.as_ref().ok().and_then(|answer| self.asked_wait(answer));
                    let advanced = match polled {
                        Ok(answer) => {
                            last = answer;
                            operation.advance(Ok(&last), wait)
                        }
                        Err(error) => operation.advance(Err(error), None),
                    };
                    step = advanced.map_err(|failure| failure.error(ask.asked()))?;
                }
            }
        }
    }

    fn asked_wait(&self, answer: &Response<Bytes>) -> Option<std::time::Duration> {
        retry_after::in_headers(answer.headers(), self.shared.parts.clock.wall())
    }

    async fn result_at(&self, ask: &Ask, read: &Ask, deadline: Instant) -> ArmResult<Response<Bytes>> {
        self.send(read, deadline).await.map_err(|error| unread(ask, &error))
    }
}

fn still_running(ask: &Ask) -> ArmError {
    ask.asked().error(ErrorClass::OutcomeUnknown, "ARM accepted the operation and was still at it when the deadline passed")
}

/// The write succeeded, but its result could not be had.
pub(super) fn unread(ask: &Ask, error: &ArmError) -> ArmError {
    ArmError {
        class: ErrorClass::OutcomeUnknown,
        message: format!("the write succeeded, but its result could not be read: {}", error.message),
        request: ask.asked().error(error.class, "").request,
        ..error.clone()
    }
}
