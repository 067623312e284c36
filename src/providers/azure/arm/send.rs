//! The shell that sends: gate, token, wire, and again if need be. What is repeated and when is decided in `retry.rs`.

use std::{pin::pin, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::debug;

use super::{
    ArmClient, ArmError, ArmResult, ErrorClass, TokenError, TransportError, classify,
    error_body::clean,
    request::{Ask, Tokens},
    retry,
};

/// The document in a successful answer.
pub(super) fn decode<D: DeserializeOwned>(ask: &Ask, answer: &Response<Bytes>) -> ArmResult<D> {
    let body = answer.body();
    serde_json::from_slice(body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body)).map_err(|error| ArmError {
        status: Some(answer.status().as_u16()),
        correlation_id: classify::correlation_id(answer),
        ..ask.asked().error(ErrorClass::Garbage, clean(&format!("the answer is not the document expected: {error}")))
    })
}

impl ArmClient {
    /// The answer (2xx) to `ask`, after as many tries as are allowed before `deadline`.
    pub(super) async fn send(&self, ask: &Ask, deadline: Instant) -> ArmResult<Response<Bytes>> {
        self.send_until(ask, deadline, Ok).await
    }

    /// The document that the read `ask` answers. An answer that is not one is a failed try.
    pub(super) async fn read<D: DeserializeOwned>(&self, ask: &Ask, deadline: Instant) -> ArmResult<D> {
        self.send_until(ask, deadline, |answer| decode(ask, &answer)).await
    }

    async fn send_until<T>(
        &self,
        ask: &Ask,
        deadline: Instant,
        accept: impl Fn(Response<Bytes>) -> ArmResult<T>,
    ) -> ArmResult<T> {
        let (mut tries, mut renewed, mut before) = (0, false, None);
        loop {
            let error = match self.exchange(ask, deadline).await.and_then(&accept) {
                Ok(accepted) => return Ok(accepted),
                Err(error) if unsent(&error) && self.now() >= deadline => return Err(before.unwrap_or(error)),
                Err(error) => error,
            };
            if error.status == Some(401) && !renewed {
                renewed = true;
                continue;
            }
            tries += 1;
            let left = deadline.saturating_duration_since(self.now());
            let backoff = &self.shared.settings.backoff;
            let Some(pause) = retry::pause(&error, ask.asked().writes(), tries, backoff, rand::random(), left) else {
                return Err(error);
            };
            debug!(%error, tries, ?pause, "ARM request is sent again");
            sleep(pause).await;
            before = Some(error);
        }
    }

    /// One try.
    async fn exchange(&self, ask: &Ask, deadline: Instant) -> ArmResult<Response<Bytes>> {
        self.may_send(ask)?;
        self.pass_gate(ask, deadline).await?;
        let tokens = self.tokens(ask, deadline).await?;
        // The gate may have taken minutes.
        self.may_send(ask)?;
        let answer = self.wire(ask, &tokens, deadline).await?;
        let error = (!answer.status().is_success())
            .then(|| classify::error_of(ask.asked(), &answer, self.shared.parts.clock.wall()));
        let code = error.as_ref().map_or("", |error| error.code.as_str());
        self.shared.parts.gate.observe(&ask.charge(), answer.status().as_u16(), answer.headers(), code);
        let Some(error) = error else { return Ok(answer) };
        match error.class {
            // ARM does not say reliably which of them it refused.
            ErrorClass::Unauthorized => tokens.all().for_each(|token| self.shared.parts.tokens.rejected(token)),
            ErrorClass::Throttled => self.counted().throttled(ask),
            _ => {}
        }
        Err(tokens.all().fold(error, without))
    }

    fn may_send(&self, ask: &Ask) -> ArmResult<()> {
        if !ask.asked().writes() {
            return Ok(());
        }
        self.shared.parts.leadership.check().map_err(|refused| ask.asked().error(ErrorClass::NotLeader, refused.to_string()))
    }

    async fn pass_gate(&self, ask: &Ask, deadline: Instant) -> ArmResult<()> {
        let charge = ask.charge();
        let mut turn = pin!(self.shared.parts.gate.acquire(&charge, self.urgency));
        if futures::poll!(&mut turn).is_ready() {
            return Ok(());
        }
        self.counted().rate_limited(ask);
        timeout_at(deadline, turn).await.map_err(|_| {
            let message = "the request budget did not allow this request before its deadline; nothing was sent";
            ask.asked().error(ErrorClass::Throttled, message)
        })
    }

    async fn tokens(&self, ask: &Ask, deadline: Instant) -> ArmResult<Tokens> {
        let provider = &self.shared.parts.tokens;
        let both = async { Ok(Tokens { bearer: provider.bearer().await?, auxiliary: provider.auxiliary().await? }) };
        let refused = |error| match error {
            TokenError::Refused(why) => (ErrorClass::Unauthorized, format!("no token: {why}")),
            TokenError::Unavailable(why) => (ErrorClass::Transient, format!("no token: {why}")),
        };
        let tokens = match timeout_at(deadline, both).await {
            Ok(tokens) => tokens.map_err(refused),
            Err(_) => Err((ErrorClass::Transient, "no token before the deadline; nothing was sent".to_owned())),
        };
        tokens.map_err(|(class, message)| ask.asked().error(class, message))
    }

    async fn wire(&self, ask: &Ask, tokens: &Tokens, deadline: Instant) -> ArmResult<Response<Bytes>> {
        let started = self.now();
        if started >= deadline {
            return Err(ask.asked().error(ErrorClass::Transient, "the deadline passed; nothing was sent"));
        }
        let id = uuid::Uuid::new_v4().to_string();
        let request = ask.request(&self.shared.settings.user_agent, tokens, &id)?;
        let until = deadline.min(started + self.shared.settings.limits.answer);
        let outcome = self.answer_before(request, until).await;
        let took = self.now() - started;
        match &outcome {
            Ok(answer) => log_answer(ask, answer, &id, took),
            Err(error) => {
                debug!(method = %ask.method, path = ask.url.path(), client_request_id = id, ?took, %error, "no answer from ARM")
            }
        }
        outcome.map_err(|error| without_answer(ask, &error))
    }

    async fn answer_before(&self, request: Request<Bytes>, until: Instant) -> Result<Response<Bytes>, TransportError> {
        let started = self.now();
        timeout_at(until, self.shared.parts.transport.send(request)).await.unwrap_or_else(|_| {
            let waited = until - started;
            Err(TransportError::NoAnswer(format!("none within {waited:?}")))
        })
    }
}

/// Whether ARM was not reached. What it said to an earlier try tells more than that the time was not enough for this one.
fn unsent(error: &ArmError) -> bool {
    error.status.is_none() && matches!(error.class, ErrorClass::Transient | ErrorClass::Throttled)
}

/// The error without a token that whoever answered has repeated.
fn without(error: ArmError, token: &str) -> ArmError {
    let clean = |text: &str| text.replace(token, "[token]");
    ArmError { code: clean(&error.code), message: clean(&error.message), ..error }
}

fn without_answer(ask: &Ask, error: &TransportError) -> ArmError {
    let class = match (error, ask.asked().writes()) {
        (TransportError::NoAnswer(_) | TransportError::TooLarge(_), true) => ErrorClass::OutcomeUnknown,
        (TransportError::TooLarge(_), false) => ErrorClass::Garbage,
        (TransportError::NotSent(_), _) | (TransportError::NoAnswer(_), false) => ErrorClass::Transient,
    };
    ask.asked().error(class, clean(&error.to_string()))
}

fn log_answer(ask: &Ask, answer: &Response<Bytes>, id: &str, took: Duration) {
    debug!(
        method = %ask.method,
        path = ask.url.path(),
        status = answer.status().as_u16(),
        client_request_id = id,
        correlation_id = classify::correlation_id(answer),
        ?took,
        "ARM answered"
    );
}
