//! Execution of a write: sends it, then follows its operation to the end, by polls of its own or by lists for many writes.
//!
//! `operation.rs` and `operation_length.rs` decide about polls, `operation_watch` about lists.

use std::time::Duration;

use bytes::Bytes;
use http::Response;
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use super::{
    ArmClient,
    answer::unread_result,
    operation::{LongRunningOperation, OperationResult, OperationStep, RequiredResult},
    operation_watch::{ListForMany, WatchEvent, WatchTicket},
    request::RequestTemplate,
    retry_after,
};
use crate::providers::azure::model::{ArmError, ArmErrorClass, ArmResult};

/// Timeout of a list for many writes, including waits for the budget. After it, each write polls alone.
pub(super) const LIST_TIMEOUT: Duration = Duration::from_secs(30);

impl ArmClient {
    /// Sends a write and waits for its operation. Returns the result, if there is one and `required_result` includes it.
    pub(super) async fn run_operation(
        &self,
        template: &RequestTemplate,
        required_result: RequiredResult,
        deadline: Instant,
    ) -> ArmResult<Option<Response<Bytes>>> {
        let pending = self.shared.operation_watch.announce(template, self.shared.settings.polling);
        let accepted = self.send(template, deadline).await?;
        drop(pending);
        self.follow_operation(template, accepted, required_result, deadline).await
    }

    /// Waits for the operation of a write that ARM has accepted with the response `last`. Returns the result, if there is one and
    /// `required_result` includes it.
    pub(super) async fn follow_operation(
        &self,
        template: &RequestTemplate,
        mut last: Response<Bytes>,
        required_result: RequiredResult,
        deadline: Instant,
    ) -> ArmResult<Option<Response<Bytes>>> {
        let polling = self.shared.settings.polling;
        let mut retry_after = self.retry_after_of(&last);
        let (mut operation, mut step) =
            LongRunningOperation::begin(&template.method, template.url.clone(), polling, &last, retry_after)
                .map_err(|failure| failure.error(template.request_line()))?;
        let (begun, mut running) = (self.now(), Duration::ZERO);
        let watch = &self.shared.operation_watch;
        let is_long = matches!(step, OperationStep::Poll { .. });
        let mut watched = if is_long { watch.join(template, &last, polling, self.urgency) } else { None };
        if is_long {
            // The document is not needed during the wait, and may be large, such as the load balancer of many Services.
            last = Response::default();
        }
        loop {
            let (url, after) = match step {
                OperationStep::Done(result) => {
                    let observed_interval = (running, self.now() - begun);
                    if is_long
                        && let Some(document) =
                            self.listed_result(template, watched.as_mut(), observed_interval, deadline).await
                    {
                        return Ok(Some(Response::new(document)));
                    }
                    return self.result(template, result, last, required_result, deadline).await;
                }
                OperationStep::Poll { url, after } => (url, after),
            };
            let elapsed = self.now() - begun;
            let is_own_pause = watched.is_none() && retry_after.is_none();
            let after = if is_own_pause {
                self.shared.operation_lengths.lock().pause(template.operation(), after, elapsed, polling.first)
            } else {
                after
            };
            let due = self.now() + after;
            if due >= deadline {
                return Err(still_running(template));
            }
            let event = match &mut watched {
                Some(ticket) => ticket.wait_for_event(due, deadline, |list| self.start_list(list)).await,
                None => {
                    sleep_until(due).await;
                    WatchEvent::PollAlone
                }
            };
            let url = match event {
                WatchEvent::PollAlone => url,
                WatchEvent::Missing => {
                    watched = None;
                    operation.confirm_absence()
                }
                WatchEvent::Running => {
                    step = operation.keep_waiting();
                    continue;
                }
                WatchEvent::Succeeded(document) => return Ok(Some(Response::new(document))),
            };
            let polled = self.send(&template.read_at(url), deadline).await;
            retry_after = match &polled {
                Ok(response) => self.retry_after_of(response),
                Err(error) => error.retry_after,
            };
            let advanced = match polled {
                Ok(response) => {
                    last = response;
                    operation.advance(Ok(&last), retry_after)
                }
                Err(error) => operation.advance(Err(error), None),
            };
            if matches!(advanced, Ok(OperationStep::Poll { .. })) {
                running = self.now() - begun;
            }
            step = advanced.map_err(|failure| failure.error(template.request_line()))?;
        }
    }

    /// Starts a list in its own task, so that a cancelled caller does not abort it.
    fn start_list(&self, list: ListForMany) {
        let client = self.with_urgency(list.urgency).with_deadline(self.now() + LIST_TIMEOUT);
        tokio::spawn(async move { client.list_for_many(list).await });
    }

    async fn list_for_many(&self, mut list: ListForMany) {
        let (kind, path) = (list.kind(), list.path().to_owned());
        match self.list_with(kind, &path, &[], |page| list.take(page)).await {
            Ok(()) => list.finish(),
            Err(error) => {
                debug!(%error, path, "cannot list the collection of the pending writes; each polls its own operation")
            }
        }
    }

    /// Records the length of an operation that has ended, and returns its document if a list is about to show it.
    ///
    /// `running` and `ended` are the ages at which the operation was last seen in progress and first seen ended.
    async fn listed_result(
        &self,
        template: &RequestTemplate,
        watched: Option<&mut WatchTicket>,
        (running, ended): (Duration, Duration),
        deadline: Instant,
    ) -> Option<Bytes> {
        match watched {
            Some(ticket) => ticket.listed_result(self.now(), deadline, |list| self.start_list(list)).await,
            None => {
                self.shared.operation_lengths.lock().record(template.operation(), running, ended);
                None
            }
        }
    }

    fn retry_after_of(&self, response: &Response<Bytes>) -> Option<Duration> {
        retry_after::in_headers(response.headers(), self.shared.deps.clock.wall())
    }

    async fn result(
        &self,
        template: &RequestTemplate,
        result: OperationResult,
        last: Response<Bytes>,
        required_result: RequiredResult,
        deadline: Instant,
    ) -> ArmResult<Option<Response<Bytes>>> {
        match result {
            OperationResult::InResponse => Ok(Some(last)),
            OperationResult::AtUrl(url) if required_result == RequiredResult::Document => {
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
        .error(ArmErrorClass::OutcomeUnknown, "ARM accepted the operation, which was still in progress at the deadline")
}
