//! Long-running operations: a state machine over ARM's answers. Pure; the shell is `write.rs`.
//!
//! In: the answer to a write, then the answers to the polls this asks for. Out: what to poll next and when, or how it ended.
//! ARM has three ways to say "not yet", and an operation may change from one to another:
//! a status document (`Azure-AsyncOperation`), a URL that answers 202 until it is done (`Location`), and `provisioningState` in the
//! resource itself. The last also serves when the first two are lost: what counts is the resource.
//!
//! Upstream: azcore `runtime/poller.go`, `internal/pollers/{async,loc,body}`; Microsoft's "Track asynchronous Azure operations".

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use reqwest::Url;
use serde::Deserialize;
use serde_json::Value;

use super::{ArmError, ErrorClass, classify::Asked, error_body::ErrorBody, settings::Polling, url};

/// Unusable answers in a row after which an operation's own URL is given up.
const MOST_STRANGE: u32 = 3;

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Ask `url` after this long.
    Poll { url: Url, after: Duration },
    /// It succeeded.
    Done(Outcome),
}

/// Where the result of an operation that succeeded is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// In the last answer.
    Here,
    /// At this URL.
    At(Url),
    /// There is none.
    Nothing,
}

/// How an operation ended that did not succeed.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Failure {
    /// ARM says it failed or was canceled, with its state and error.
    Ended(String, Option<ErrorBody>),
    /// Its URL answered with this error.
    Refused(ArmError),
    /// Nothing tells any more how it went on.
    Lost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// PUT and PATCH: the result is the resource.
    Replace,
    /// DELETE: the result is its absence.
    Remove,
    /// POST: the result, if any, is where `Location` points.
    Act,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Watch {
    Status(Url),
    Location(Url),
    Resource,
}

/// An operation that ARM has accepted.
#[derive(Debug, Clone)]
pub(super) struct Operation {
    kind: Kind,
    /// The resource's URL, or for an action that of the action.
    resource: Url,
    watch: Watch,
    result: Option<Url>,
    polling: Polling,
    pause: Duration,
    strange: u32,
}

/// The parts of an answer's body that speak of progress.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Progress {
    status: Value,
    error: Value,
    properties: Option<Properties>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Properties {
    #[serde(rename = "provisioningState")]
    provisioning_state: Value,
}

impl Progress {
    fn of(answer: &Response<Bytes>) -> Self {
        let body = answer.body();
        serde_json::from_slice(body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body)).unwrap_or_default()
    }

    fn provisioning_state(&self) -> Option<&str> {
        self.properties.as_ref()?.provisioning_state.as_str()
    }
}

/// A state's meaning, in any letter case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Succeeded,
    Ended,
}

fn state(word: &str) -> State {
    match word.to_ascii_lowercase().as_str() {
        "succeeded" => State::Succeeded,
        "failed" | "canceled" | "cancelled" => State::Ended,
        _ => State::Running,
    }
}

fn header_url(base: &Url, answer: &Response<Bytes>, name: &str) -> Option<Url> {
    url::follow(base, answer.headers().get(name)?.to_str().ok()?)
}

impl Operation {
    /// Begins with the answer (2xx) to a write of `resource`. `asked` is the wait its headers ask for. URLs that leave the host of
    /// `resource` are not used: the token must not go there, and the resource tells as well.
    pub(super) fn begin(
        method: &Method,
        resource: Url,
        polling: Polling,
        answer: &Response<Bytes>,
        asked: Option<Duration>,
    ) -> Result<(Self, Step), Failure> {
        let kind = match *method {
            Method::DELETE => Kind::Remove,
            Method::POST => Kind::Act,
            _ => Kind::Replace,
        };
        let status_url = header_url(&resource, answer, "azure-asyncoperation");
        let result = header_url(&resource, answer, "location");
        let watch = match (status_url, &result) {
            (Some(url), _) => Watch::Status(url),
            (None, Some(url)) => Watch::Location(url.clone()),
            (None, None) => Watch::Resource,
        };
        let mut operation = Self { kind, resource, watch, result, polling, pause: polling.first, strange: 0 };
        let step = operation.first_step(answer, asked)?;
        Ok((operation, step))
    }

    fn first_step(&mut self, answer: &Response<Bytes>, asked: Option<Duration>) -> Result<Step, Failure> {
        let accepted = answer.status() == StatusCode::ACCEPTED;
        match self.watch {
            Watch::Status(_) => Ok(self.poll(asked)),
            Watch::Location(_) if accepted || self.kind == Kind::Replace && answer.status() == StatusCode::CREATED => {
                Ok(self.poll(asked))
            }
            Watch::Resource if accepted && self.kind != Kind::Act => Ok(self.poll(asked)),
            _ => match self.kind {
                Kind::Replace => self.resource_step(answer, asked),
                Kind::Act => Ok(Step::Done(if answer.body().is_empty() { Outcome::Nothing } else { Outcome::Here })),
                Kind::Remove => Ok(Step::Done(Outcome::Nothing)),
            },
        }
    }

    /// Goes on with the outcome of a poll. An error is one that the shell's own tries did not mend.
    pub(super) fn advance(
        &mut self,
        polled: Result<&Response<Bytes>, ArmError>,
        asked: Option<Duration>,
    ) -> Result<Step, Failure> {
        let answer = match polled {
            Ok(answer) => answer,
            Err(error) => return self.after_error(error),
        };
        match self.watch {
            Watch::Status(_) => self.status_step(answer, asked),
            Watch::Location(_) => self.location_step(answer, asked),
            Watch::Resource => self.resource_step(answer, asked),
        }
    }

    fn status_step(&mut self, answer: &Response<Bytes>, asked: Option<Duration>) -> Result<Step, Failure> {
        if let Some(moved) = header_url(&self.resource, answer, "azure-asyncoperation") {
            self.watch = Watch::Status(moved);
        }
        self.result = header_url(&self.resource, answer, "location").or_else(|| self.result.take());
        let progress = Progress::of(answer);
        match progress.status.as_str() {
            Some(word) => self.on_state(word, &progress.error, asked),
            None if answer.status() == StatusCode::NO_CONTENT => Ok(self.finished()),
            None if answer.status() == StatusCode::ACCEPTED => Ok(self.poll(asked)),
            None => self.strange(),
        }
    }

    fn location_step(&mut self, answer: &Response<Bytes>, asked: Option<Duration>) -> Result<Step, Failure> {
        if let Some(moved) = header_url(&self.resource, answer, "location") {
            self.watch = Watch::Location(moved);
        }
        if answer.status() == StatusCode::ACCEPTED {
            return Ok(self.poll(asked));
        }
        let progress = Progress::of(answer);
        match progress.provisioning_state().or_else(|| progress.status.as_str().filter(|_| progress.properties.is_none())) {
            Some(word) if state(word) != State::Succeeded => self.on_state(word, &progress.error, asked),
            _ if self.kind == Kind::Act && !answer.body().is_empty() => Ok(Step::Done(Outcome::Here)),
            _ => {
                self.result = None;
                Ok(self.finished())
            }
        }
    }

    /// The answer is the resource itself.
    fn resource_step(&mut self, answer: &Response<Bytes>, asked: Option<Duration>) -> Result<Step, Failure> {
        let progress = Progress::of(answer);
        let object = answer.body().iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
        match (self.kind, progress.provisioning_state()) {
            (Kind::Act, _) => Err(Failure::Lost),
            (Kind::Remove, Some(word)) if state(word) == State::Running => Ok(self.poll(asked)),
            (Kind::Remove, _) => self.strange(),
            (Kind::Replace, Some(word)) if state(word) != State::Succeeded => self.on_state(word, &progress.error, asked),
            (Kind::Replace, Some(_)) => Ok(Step::Done(Outcome::Here)),
            (Kind::Replace, None) if object => Ok(Step::Done(Outcome::Here)),
            // A success without a document, such as 204.
            (Kind::Replace, None) if answer.body().is_empty() => Ok(self.finished()),
            (Kind::Replace, None) => self.strange(),
        }
    }

    fn on_state(&mut self, word: &str, error: &Value, asked: Option<Duration>) -> Result<Step, Failure> {
        match state(word) {
            State::Running => Ok(self.poll(asked)),
            State::Succeeded => Ok(self.finished()),
            State::Ended => Err(Failure::Ended(word.chars().take(40).collect(), ErrorBody::of(error))),
        }
    }

    fn after_error(&mut self, error: ArmError) -> Result<Step, Failure> {
        let resource = self.watch == Watch::Resource;
        match error.class {
            ErrorClass::NotFound if resource && self.kind == Kind::Remove => Ok(Step::Done(Outcome::Nothing)),
            ErrorClass::NotFound | ErrorClass::ParentNotFound | ErrorClass::Forbidden if resource => Err(Failure::Lost),
            ErrorClass::NotFound | ErrorClass::ParentNotFound | ErrorClass::Forbidden => self.ask_the_resource(),
            ErrorClass::Transient | ErrorClass::Throttled | ErrorClass::Busy | ErrorClass::Unauthorized => {
                Ok(self.poll(error.retry_after))
            }
            // `Location` tells a failure of the operation by the status of its own answer.
            ErrorClass::Invalid | ErrorClass::Conflict | ErrorClass::QuotaExceeded
                if matches!(self.watch, Watch::Location(_)) =>
            {
                Err(Failure::Refused(error))
            }
            _ => self.strange(),
        }
    }

    /// An answer that says nothing about the operation.
    fn strange(&mut self) -> Result<Step, Failure> {
        self.strange += 1;
        match self.watch {
            _ if self.strange < MOST_STRANGE => Ok(self.again(None)),
            Watch::Resource => Err(Failure::Lost),
            _ => self.ask_the_resource(),
        }
    }

    fn ask_the_resource(&mut self) -> Result<Step, Failure> {
        if self.kind == Kind::Act {
            return Err(Failure::Lost);
        }
        self.watch = Watch::Resource;
        self.strange = 0;
        Ok(Step::Poll { url: self.resource.clone(), after: Duration::ZERO })
    }

    fn finished(&mut self) -> Step {
        Step::Done(match self.kind {
            Kind::Replace => Outcome::At(self.resource.clone()),
            Kind::Remove => Outcome::Nothing,
            Kind::Act => self.result.take().map_or(Outcome::Nothing, Outcome::At),
        })
    }

    /// A poll after a usable answer.
    fn poll(&mut self, asked: Option<Duration>) -> Step {
        self.strange = 0;
        self.again(asked)
    }

    fn again(&mut self, asked: Option<Duration>) -> Step {
        let url = match &self.watch {
            Watch::Status(url) | Watch::Location(url) => url.clone(),
            Watch::Resource => self.resource.clone(),
        };
        let after = match asked {
            Some(asked) => asked.max(self.polling.shortest_asked).min(self.polling.longest_asked),
            None => self.own_pause(),
        };
        Step::Poll { url, after }
    }

    fn own_pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = pause.mul_f64(self.polling.factor.max(1.0)).min(self.polling.longest);
        pause
    }
}

impl Failure {
    /// The error for the caller.
    pub(super) fn error(self, asked: Asked<'_>) -> ArmError {
        match self {
            Failure::Ended(state, body) => super::classify::failed_operation(asked, &state, body.as_ref()),
            Failure::Refused(error) => ArmError { request: asked.error(error.class, "").request, ..error },
            Failure::Lost => asked.error(
                ErrorClass::OutcomeUnknown,
                "ARM accepted the operation, but neither its status nor the resource tells how it ended",
            ),
        }
    }
}

#[cfg(test)]
mod tests;
