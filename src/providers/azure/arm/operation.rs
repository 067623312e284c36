//! Long-running operations: a state machine over ARM's responses. Pure; `write.rs` performs the requests.
//!
//! In: the response to a write, then the responses to the requested polls. Out: the next poll and its time, or the result.
//! ARM reports progress in three ways, and an operation may change from one to another: a status document
//! (`Azure-AsyncOperation`), a URL that responds with 202 until the end (`Location`), and `provisioningState` in the resource itself.
//! If the first two are lost, the resource is polled, because its state decides.
//!
//! Upstream: azcore `runtime/poller.go`, `internal/pollers/{async,loc,body}`; Microsoft's "Track asynchronous Azure operations".

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use reqwest::Url;
use serde::Deserialize;
use serde_json::Value;

use super::{classify::RequestLine, error_body::ErrorBody, settings::PollingPace, url};
use crate::providers::azure::model::{ArmError, ArmErrorClass};

/// Consecutive unusable responses after which an operation's own URL is no longer polled.
const MAX_UNUSABLE: u32 = 3;

/// Next step for an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OperationStep {
    /// Poll `url` after the delay `after`.
    Poll {
        url: Url,
        after: Duration,
    },
    Done(OperationResult),
}

/// Location of the result of a successful operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OperationResult {
    /// Body of the last response.
    InResponse,
    AtUrl(Url),
    Nothing,
}

/// Result that the caller of a successful write requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequiredResult {
    /// Document that ARM declares as the result, if there is one.
    Document,
    Success,
}

/// Failure of an operation.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum OperationFailure {
    /// Failed or canceled according to ARM, with the state and the error.
    Ended(String, Option<ErrorBody>),
    /// Error in the response of the operation's URL.
    Refused(ArmError),
    /// No source reports its progress any longer.
    Lost,
}

type StepResult = Result<OperationStep, OperationFailure>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OperationKind {
    /// PUT and PATCH: the result is the resource.
    Replace,
    /// DELETE: the result is its absence.
    Remove,
    /// POST: the result, if any, is at the URL in `Location`.
    Action,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum PollTarget {
    Status(Url),
    Location(Url),
    Resource,
}

/// Operation that ARM has accepted.
#[derive(Debug, Clone)]
pub(super) struct LongRunningOperation {
    kind: OperationKind,
    /// URL of the resource; for an action, URL of the action.
    resource: Url,
    poll_target: PollTarget,
    result: Option<Url>,
    polling: PollingPace,
    pause: Duration,
    /// Delay requested by the last usable response.
    requested_delay: Option<Duration>,
    unusable_responses: u32,
    /// Whether the next poll reads the resource itself, because a list lacks it.
    is_confirming: bool,
}

/// Fields of a response's body that report progress.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OperationProgress {
    status: Value,
    error: Value,
    properties: Option<ProvisioningProperties>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ProvisioningProperties {
    #[serde(rename = "provisioningState")]
    provisioning_state: Value,
}

impl OperationProgress {
    /// Reads the fields from `body` without building a tree of all of it: that of a load balancer has megabytes.
    pub(super) fn of(body: &[u8]) -> Self {
        serde_json::from_slice(body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body)).unwrap_or_default()
    }

    pub(super) fn provisioning_state(&self) -> Option<&str> {
        self.properties.as_ref()?.provisioning_state.as_str()
    }
}

/// Meaning of a state that ARM reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OperationState {
    Running,
    Succeeded,
    Ended,
}

/// Returns the meaning of `word`, ignoring case. Unknown words mean that the operation is running.
pub(super) fn operation_state(word: &str) -> OperationState {
    match word.to_ascii_lowercase().as_str() {
        "succeeded" => OperationState::Succeeded,
        "failed" | "canceled" | "cancelled" => OperationState::Ended,
        _ => OperationState::Running,
    }
}

fn header_url(base: &Url, response: &Response<Bytes>, name: &str) -> Option<Url> {
    url::follow(base, response.headers().get(name)?.to_str().ok()?)
}

impl LongRunningOperation {
    /// Begins with the 2xx response to a write of `resource`. `retry_after` is the delay in its headers.
    ///
    /// URLs at another host than that of `resource` are ignored, because the token must not be sent there. The resource itself is
    /// polled instead.
    pub(super) fn begin(
        method: &Method,
        resource: Url,
        polling: PollingPace,
        response: &Response<Bytes>,
        retry_after: Option<Duration>,
    ) -> Result<(Self, OperationStep), OperationFailure> {
        let kind = match *method {
            Method::DELETE => OperationKind::Remove,
            Method::POST => OperationKind::Action,
            _ => OperationKind::Replace,
        };
        let status_url = header_url(&resource, response, "azure-asyncoperation");
        let result = header_url(&resource, response, "location");
        let poll_target = match (status_url, &result) {
            (Some(url), _) => PollTarget::Status(url),
            (None, Some(url)) => PollTarget::Location(url.clone()),
            (None, None) => PollTarget::Resource,
        };
        let mut operation = Self {
            kind,
            resource,
            poll_target,
            result,
            polling,
            pause: polling.first,
            requested_delay: None,
            unusable_responses: 0,
            is_confirming: false,
        };
        let step = operation.first_step(response, retry_after)?;
        Ok((operation, step))
    }

    fn first_step(&mut self, response: &Response<Bytes>, retry_after: Option<Duration>) -> StepResult {
        let accepted = response.status() == StatusCode::ACCEPTED;
        match self.poll_target {
            PollTarget::Status(_) => Ok(self.poll(retry_after)),
            PollTarget::Location(_)
                if accepted || self.kind == OperationKind::Replace && response.status() == StatusCode::CREATED =>
            {
                Ok(self.poll(retry_after))
            }
            PollTarget::Resource if accepted && self.kind != OperationKind::Action => Ok(self.poll(retry_after)),
            _ => match self.kind {
                OperationKind::Replace => self.resource_step(response, retry_after),
                OperationKind::Action => Ok(OperationStep::Done(if response.body().is_empty() {
                    OperationResult::Nothing
                } else {
                    OperationResult::InResponse
                })),
                OperationKind::Remove => Ok(OperationStep::Done(OperationResult::Nothing)),
            },
        }
    }

    /// Continues with the result of a poll, after all attempts of its request.
    pub(super) fn advance(
        &mut self,
        polled: Result<&Response<Bytes>, ArmError>,
        retry_after: Option<Duration>,
    ) -> StepResult {
        let is_confirmation = std::mem::take(&mut self.is_confirming);
        let response = match polled {
            Err(error) if is_confirmation && error.class == ArmErrorClass::NotFound => return Ok(self.finished()),
            _ if is_confirmation => return Ok(self.keep_waiting()),
            Ok(response) => response,
            Err(error) => return self.after_error(error),
        };
        match self.poll_target {
            PollTarget::Status(_) => self.status_step(response, retry_after),
            PollTarget::Location(_) => self.location_step(response, retry_after),
            PollTarget::Resource => self.resource_step(response, retry_after),
        }
    }

    /// Continues after a list that shows the operation in progress, with the delay that ARM requested last.
    pub(super) fn keep_waiting(&mut self) -> OperationStep {
        self.next_poll(self.requested_delay)
    }

    /// Returns the URL of the resource, to read it once after a list that lacks it: only a 404 proves the deletion.
    pub(super) fn confirm_absence(&mut self) -> Url {
        self.is_confirming = true;
        self.resource.clone()
    }

    fn status_step(&mut self, response: &Response<Bytes>, retry_after: Option<Duration>) -> StepResult {
        if let Some(moved) = header_url(&self.resource, response, "azure-asyncoperation") {
            self.poll_target = PollTarget::Status(moved);
        }
        self.result = header_url(&self.resource, response, "location").or_else(|| self.result.take());
        let progress = OperationProgress::of(response.body());
        match progress.status.as_str() {
            Some(word) => self.on_state(word, &progress.error, retry_after),
            None if response.status() == StatusCode::NO_CONTENT => Ok(self.finished()),
            None if response.status() == StatusCode::ACCEPTED => Ok(self.poll(retry_after)),
            None => self.on_unusable_response(),
        }
    }

    fn location_step(&mut self, response: &Response<Bytes>, retry_after: Option<Duration>) -> StepResult {
        if let Some(moved) = header_url(&self.resource, response, "location") {
            self.poll_target = PollTarget::Location(moved);
        }
        if response.status() == StatusCode::ACCEPTED {
            return Ok(self.poll(retry_after));
        }
        let progress = OperationProgress::of(response.body());
        match progress.provisioning_state().or_else(|| progress.status.as_str().filter(|_| progress.properties.is_none())) {
            Some(word) if operation_state(word) != OperationState::Succeeded => {
                self.on_state(word, &progress.error, retry_after)
            }
            _ if self.kind == OperationKind::Action && !response.body().is_empty() => {
                Ok(OperationStep::Done(OperationResult::InResponse))
            }
            _ => {
                self.result = None;
                Ok(self.finished())
            }
        }
    }

    /// Evaluates a response that is the resource itself.
    fn resource_step(&mut self, response: &Response<Bytes>, retry_after: Option<Duration>) -> StepResult {
        let progress = OperationProgress::of(response.body());
        let is_object = response.body().iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
        match (self.kind, progress.provisioning_state()) {
            (OperationKind::Action, _) => Err(OperationFailure::Lost),
            (OperationKind::Remove, Some(word)) if operation_state(word) == OperationState::Running => {
                Ok(self.poll(retry_after))
            }
            (OperationKind::Remove, _) => self.on_unusable_response(),
            (OperationKind::Replace, Some(word)) if operation_state(word) != OperationState::Succeeded => {
                self.on_state(word, &progress.error, retry_after)
            }
            (OperationKind::Replace, Some(_)) => Ok(OperationStep::Done(OperationResult::InResponse)),
            (OperationKind::Replace, None) if is_object => Ok(OperationStep::Done(OperationResult::InResponse)),
            // A success without a document, such as 204.
            (OperationKind::Replace, None) if response.body().is_empty() => Ok(self.finished()),
            (OperationKind::Replace, None) => self.on_unusable_response(),
        }
    }

    fn on_state(&mut self, word: &str, error: &Value, retry_after: Option<Duration>) -> StepResult {
        match operation_state(word) {
            OperationState::Running => Ok(self.poll(retry_after)),
            OperationState::Succeeded => Ok(self.finished()),
            OperationState::Ended => Err(OperationFailure::Ended(word.chars().take(40).collect(), ErrorBody::of(error))),
        }
    }

    fn after_error(&mut self, error: ArmError) -> StepResult {
        let polls_resource = self.poll_target == PollTarget::Resource;
        match error.class {
            ArmErrorClass::NotFound if polls_resource && self.kind == OperationKind::Remove => {
                Ok(OperationStep::Done(OperationResult::Nothing))
            }
            ArmErrorClass::NotFound | ArmErrorClass::ParentNotFound | ArmErrorClass::Forbidden if polls_resource => {
                Err(OperationFailure::Lost)
            }
            ArmErrorClass::NotFound | ArmErrorClass::ParentNotFound | ArmErrorClass::Forbidden => self.poll_resource(),
            ArmErrorClass::Transient | ArmErrorClass::Throttled | ArmErrorClass::Busy | ArmErrorClass::Unauthorized => {
                self.unusable_responses = 0;
                Ok(self.next_poll(error.retry_after))
            }
            // `Location` reports a failure of the operation by the status of its own response.
            ArmErrorClass::Invalid | ArmErrorClass::Conflict | ArmErrorClass::QuotaExceeded
                if matches!(self.poll_target, PollTarget::Location(_)) =>
            {
                Err(OperationFailure::Refused(error))
            }
            _ => self.on_unusable_response(),
        }
    }

    /// Handles a response that does not show the state of the operation.
    fn on_unusable_response(&mut self) -> StepResult {
        self.unusable_responses += 1;
        match self.poll_target {
            _ if self.unusable_responses < MAX_UNUSABLE => Ok(self.next_poll(None)),
            PollTarget::Resource => Err(OperationFailure::Lost),
            _ => self.poll_resource(),
        }
    }

    fn poll_resource(&mut self) -> StepResult {
        if self.kind == OperationKind::Action {
            return Err(OperationFailure::Lost);
        }
        self.poll_target = PollTarget::Resource;
        self.unusable_responses = 0;
        Ok(OperationStep::Poll { url: self.resource.clone(), after: Duration::ZERO })
    }

    fn finished(&mut self) -> OperationStep {
        OperationStep::Done(match self.kind {
            OperationKind::Replace => OperationResult::AtUrl(self.resource.clone()),
            OperationKind::Remove => OperationResult::Nothing,
            OperationKind::Action => self.result.take().map_or(OperationResult::Nothing, OperationResult::AtUrl),
        })
    }

    /// Returns the next poll after a usable response.
    fn poll(&mut self, retry_after: Option<Duration>) -> OperationStep {
        (self.unusable_responses, self.requested_delay) = (0, retry_after);
        self.next_poll(retry_after)
    }

    fn next_poll(&mut self, retry_after: Option<Duration>) -> OperationStep {
        let url = match &self.poll_target {
            PollTarget::Status(url) | PollTarget::Location(url) => url.clone(),
            PollTarget::Resource => self.resource.clone(),
        };
        let after = match retry_after {
            Some(retry_after) => retry_after.max(self.polling.min_retry_after).min(self.polling.max_retry_after),
            None => self.own_pause(),
        };
        OperationStep::Poll { url, after }
    }

    fn own_pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = pause.mul_f64(self.polling.factor.max(1.0)).min(self.polling.longest);
        pause
    }
}

impl OperationFailure {
    /// Returns the error of the write `request`.
    pub(super) fn error(self, request: RequestLine<'_>) -> ArmError {
        match self {
            OperationFailure::Ended(state, body) => super::classify::failed_operation(request, &state, body.as_ref()),
            OperationFailure::Refused(error) => ArmError { request: request.error(error.class, "").request, ..error },
            OperationFailure::Lost => request.error(
                ArmErrorClass::OutcomeUnknown,
                "ARM accepted the operation, but neither its status nor the resource shows the result",
            ),
        }
    }
}

#[cfg(test)]
mod tests;
