//! The shell around a write: sends it, then follows its operation to the end: by polls of its own, or by lists that tell of many. What is
//! polled and when is decided in `operation.rs`, what lists are for in `operation_watch`.

use std::time::Duration;

use bytes::Bytes;
use http::Response;
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use super::{
    ArmClient, ArmError, ArmErrorClass, ArmResult,
    answer::unread_result,
    operation::{LongRunningOperation, OperationResult, OperationStep, WantedResult},
    operation_watch::{ListForMany, WatchNews},
    request::RequestTemplate,
    retry_after,
};

/// Longest that a list for many may take, waits for the budget included, before each asks alone.
pub(super) const LIST_TIMEOUT: Duration = Duration::from_secs(30);

impl ArmClient {
    /// Sends a write and waits for its operation. Answers the result, if there is one and it is wanted.
    pub(super) async fn run_operation(
        &self,
        template: &RequestTemplate,
        wanted: WantedResult,
        deadline: Instant,
    ) -> ArmResult<Option<Response<Bytes>>> {
        let accepted = self.send(template, deadline).await?;
        self.follow_operation(template, accepted, wanted, deadline).await
    }

    /// Waits for the operation of a write that ARM has accepted with the answer `last`. Answers the result, if there is one and it is
    /// wanted.
    pub(super) async fn follow_operation(
        &self,
        template: &RequestTemplate,
        mut last: Response<Bytes>,
        wanted: WantedResult,
        deadline: Instant,
    ) -> ArmResult<Option<Response<Bytes>>> {
        let polling = self.shared.settings.polling;
        let (mut operation, mut step) =
            LongRunningOperation::begin(&template.method, template.url.clone(), polling, &last, self.asked_wait(&last))
                .map_err(|failure| failure.error(template.request_line()))?;
        let watch = &self.shared.operation_watch;
        let is_long = matches!(step, OperationStep::Poll { .. });
        let mut watched = if is_long { watch.join(template, &last, polling, self.urgency) } else { None };
        if is_long {
            // Who waits for an operation has no use for the document any more, which may be a load balancer of many Services.
            last = Response::default();
        }
        loop {
            let (url, after) = match step {
                OperationStep::Done(result) => return self.result(template, result, last, wanted, deadline).await,
                OperationStep::Poll { url, after } => (url, after),
            };
            let due = self.now() + after;
            if due >= deadline {
                return Err(still_running(template));
            }
            let news = match &mut watched {
                Some(ticket) => ticket.hear(due, deadline, |list| self.start_list(list)).await,
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
            let polled = self.send(&template.read_at(url), deadline).await;
            let wait = polled.as_ref().ok().and_then(|answer| self.asked_wait(answer));
            let advanced = match polled {
                Ok(answer) => {
                    last = answer;
                    operation.advance(Ok(&last), wait)
                }
                Err(error) => operation.advance(Err(error), None),
            };
            step = advanced.map_err(|failure| failure.error(template.request_line()))?;
        }
    }

    /// In a task of its own, so that whoever started it may go away.
    fn start_list(&self, list: ListForMany) {
        let client = self.with_urgency(list.urgency).with_deadline(self.now() + LIST_TIMEOUT);
        tokio::spawn(async move { client.list_for_many(list).await });
    }

    async fn list_for_many(&self, mut list: ListForMany) {
        let (kind, path) = (list.kind(), list.path().to_owned());
        match self.list_with(kind, &path, &[], |page| list.take(page)).await {
            Ok(()) => list.finish(),
            Err(error) => debug!(%error, path, "cannot list for the writes under way; each asks alone"),
        }
    }

    fn asked_wait(&self, answer: &Response<Bytes>) -> Option<Duration> {
        retry_after::in_headers(answer.headers(), self.shared.deps.clock.wall())
    }

    async fn result(
        &self,
        template: &RequestTemplate,
        result: OperationResult,
        last: Response<Bytes>,
        wanted: WantedResult,
        deadline: Instant,
    ) -> ArmResult<Option<Response<Bytes>>> {
        match result {
            OperationResult::InAnswer => Ok(Some(last)),
            OperationResult::AtUrl(url) if wanted == WantedResult::Document => {
                let read = self.send(&template.read_at(url), deadline).await;
                read.map(Some).map_err(|error| unread_result(template, &error))
            }
            OperationResult::AtUrl(_) | OperationResult::Nothing => Ok(None),
        }
    }
}

fn still_running(template: &RequestTemplate) -> ArmError {
    template
        .request_line()
        .error(ArmErrorClass::OutcomeUnknown, "ARM accepted the operation and was still at it when the deadline passed")
}
