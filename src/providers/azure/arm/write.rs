//! The shell around a write: sends it, then polls its operation to the end. What is polled and when is decided in `operation.rs`.

use bytes::Bytes;
use http::Response;
use tokio::time::{Instant, sleep_until};

use super::{
    ArmClient, ArmError, ArmErrorClass, ArmResult,
    answer::unread_result,
    operation::{LongRunningOperation, OperationResult, OperationStep},
    request::RequestTemplate,
    retry_after,
};

impl ArmClient {
    /// Sends a write and waits for its operation. Answers what ARM says the result is, if there is one.
    pub(super) async fn run_operation(
        &self,
        ask: &RequestTemplate,
        deadline: Instant,
    ) -> ArmResult<Option<Response<Bytes>>> {
        let mut last = self.send(ask, deadline).await?;
        let polling = self.shared.settings.polling;
        let (mut operation, mut step) =
            LongRunningOperation::begin(&ask.method, ask.url.clone(), polling, &last, self.asked_wait(&last))
                .map_err(|failure| failure.error(ask.request_line()))?;
        loop {
            match step {
                OperationStep::Done(OperationResult::InAnswer) => return Ok(Some(last)),
                OperationStep::Done(OperationResult::Nothing) => return Ok(None),
                OperationStep::Done(OperationResult::AtUrl(url)) => {
                    return self.result_at(ask, &ask.read_at(url), deadline).await.map(Some);
                }
                OperationStep::Poll { url, after } => {
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
                    step = advanced.map_err(|failure| failure.error(ask.request_line()))?;
                }
            }
        }
    }

    fn asked_wait(&self, answer: &Response<Bytes>) -> Option<std::time::Duration> {
        retry_after::in_headers(answer.headers(), self.shared.deps.clock.wall())
    }

    async fn result_at(
        &self,
        ask: &RequestTemplate,
        read: &RequestTemplate,
        deadline: Instant,
    ) -> ArmResult<Response<Bytes>> {
        self.send(read, deadline).await.map_err(|error| unread_result(ask, &error))
    }
}

fn still_running(ask: &RequestTemplate) -> ArmError {
    ask.request_line()
        .error(ArmErrorClass::OutcomeUnknown, "ARM accepted the operation and was still at it when the deadline passed")
}
