//! The shell around a write: sends it, then follows its operation to the end: by polls of its own, or by lists that tell of many. What is
//! polled and when is decided in `operation.rs`, what lists are for in `operation_watch`.

use bytes::Bytes;
use http::Response;
use tokio::time::{Instant, sleep_until};

use super::{
    ArmClient, ArmError, ArmErrorClass, ArmResult,
    answer::unread_result,
    operation::{LongRunningOperation, OperationResult, OperationStep},
    operation_watch::WatchNews,
    request::RequestTemplate,
    retry_after,
};

/// What a caller wants of a write that succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WantedResult {
    /// What ARM says the result is, if there is one.
    Document,
    /// That it succeeded.
    Success,
}

impl ArmClient {
    /// Sends a write and waits for its operation. Answers the result, if there is one and it is wanted.
    pub(super) async fn run_operation(
        &self,
        ask: &RequestTemplate,
        wanted: WantedResult,
        deadline: Instant,
    ) -> ArmResult<Option<Response<Bytes>>> {
        let mut last = self.send(ask, deadline).await?;
        let polling = self.shared.settings.polling;
        let (mut operation, mut step) =
            LongRunningOperation::begin(&ask.method, ask.url.clone(), polling, &last, self.asked_wait(&last))
                .map_err(|failure| failure.error(ask.request_line()))?;
        let is_long = matches!(step, OperationStep::Poll { .. });
        let mut watched = if is_long { self.shared.operation_watch.join(self, ask, &last) } else { None };
        loop {
            let (url, after) = match step {
                OperationStep::Done(result) => return self.result(ask, result, last, wanted, deadline).await,
                OperationStep::Poll { url, after } => (url, after),
            };
            let due = self.now() + after;
            if due >= deadline {
                return Err(still_running(ask));
            }
            let news = match &mut watched {
                Some(ticket) => ticket.hear(self, due, deadline).await,
                None => {
                    sleep_until(due).await;
                    WatchNews::AskAlone
                }
            };
            let url = match news {
                WatchNews::AskAlone => url,
                WatchNews::Missing => {
                    watched = None;
                    operation.confirm_absence()
                }
                WatchNews::Running => {
                    step = operation.keep_waiting();
                    continue;
                }
                WatchNews::Succeeded(document) => return Ok(Some(Response::new(document))),
            };
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

    fn asked_wait(&self, answer: &Response<Bytes>) -> Option<std::time::Duration> {
        retry_after::in_headers(answer.headers(), self.shared.deps.clock.wall())
    }

    async fn result(
        &self,
        ask: &RequestTemplate,
        result: OperationResult,
        last: Response<Bytes>,
        wanted: WantedResult,
        deadline: Instant,
    ) -> ArmResult<Option<Response<Bytes>>> {
        match result {
            OperationResult::InAnswer => Ok(Some(last)),
            OperationResult::AtUrl(url) if wanted == WantedResult::Document => {
                let read = self.send(&ask.read_at(url), deadline).await;
                read.map(Some).map_err(|error| unread_result(ask, &error))
            }
            OperationResult::AtUrl(_) | OperationResult::Nothing => Ok(None),
        }
    }
}

fn still_running(ask: &RequestTemplate) -> ArmError {
    ask.request_line()
        .error(ArmErrorClass::OutcomeUnknown, "ARM accepted the operation and was still at it when the deadline passed")
}
