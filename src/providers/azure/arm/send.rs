//! Execution of one request: gate, token, transport, retries. `retry.rs` decides about retries.

use std::{pin::pin, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::debug;

use super::{
    ArmClient,
    answer::decode,
    budget::SendPermit,
    classify,
    error_body::one_line,
    request::{RequestTemplate, RequestTokens},
    retry,
};
use crate::providers::azure::{
    auth::AuthError,
    model::{ArmError, ArmErrorClass, ArmResult},
    transport::ArmTransportError,
};

impl ArmClient {
    /// Sends `template`, retrying until `deadline`, and returns the 2xx response.
    pub(super) async fn send(&self, template: &RequestTemplate, deadline: Instant) -> ArmResult<Response<Bytes>> {
        self.send_until(template, deadline, Ok).await
    }

    /// Reads the document of `template`. A response that does not decode is a failed attempt.
    pub(super) async fn read<D: DeserializeOwned>(&self, template: &RequestTemplate, deadline: Instant) -> ArmResult<D> {
        self.send_until(template, deadline, |response| decode(template, &response)).await
    }

    async fn send_until<T>(
        &self,
        template: &RequestTemplate,
        deadline: Instant,
        accept: impl Fn(Response<Bytes>) -> ArmResult<T>,
    ) -> ArmResult<T> {
        let (mut attempts, mut has_renewed_token, mut previous_error) = (0, false, None);
        loop {
            let error = match self.exchange(template, deadline).await.and_then(&accept) {
                Ok(accepted) => return Ok(accepted),
                Err(error) if was_not_sent(&error) && self.now() >= deadline => return Err(previous_error.unwrap_or(error)),
                Err(error) => error,
            };
            if error.status == Some(401) && !has_renewed_token {
                has_renewed_token = true;
                continue;
            }
            attempts += 1;
            let remaining = deadline.saturating_duration_since(self.now());
            let backoff = &self.shared.settings.backoff;
            let chance = self.shared.deps.clock.chance((template.method.as_str(), template.url.path(), attempts));
            let Some(pause) = retry::pause(&error, template.request_line().is_write(), attempts, backoff, chance, remaining)
            else {
                return Err(error);
            };
            debug!(%error, attempts, ?pause, "retrying the ARM request");
            sleep(pause).await;
            previous_error = Some(error);
        }
    }

    async fn exchange(&self, template: &RequestTemplate, deadline: Instant) -> ArmResult<Response<Bytes>> {
        self.check_may_send(template)?;
        let permit = self.pass_gate(template, deadline).await?;
        let tokens = self.tokens(template, deadline).await?;
        // The wait at the gate may have taken minutes.
        self.check_may_send(template)?;
        let response = self.transmit(template, &tokens, permit, deadline).await?;
        let error = (!response.status().is_success())
            .then(|| classify::error_of(template.request_line(), &response, self.shared.deps.clock.wall()));
        let code = error.as_ref().map_or("", |error| error.code.as_str());
        self.shared.deps.gate.observe(&template.charge(), response.status().as_u16(), response.headers(), code);
        let Some(error) = error else { return Ok(response) };
        match error.class {
            // ARM does not report reliably which of the tokens it rejected.
            ArmErrorClass::Unauthorized => tokens.all().for_each(|token| self.shared.deps.tokens.rejected(token)),
            ArmErrorClass::Throttled => self.request_metrics().throttled(template),
            _ => {}
        }
        Err(tokens.all().fold(error, without_token))
    }

    fn check_may_send(&self, template: &RequestTemplate) -> ArmResult<()> {
        if !template.request_line().is_write() {
            return Ok(());
        }
        let refused = |reason: String| template.request_line().error(ArmErrorClass::NotLeader, reason);
        self.leadership.check().map_err(|error| refused(error.to_string()))?;
        self.write_check.as_ref().map_or(Ok(()), |check| check().map_err(refused))
    }

    async fn pass_gate(&self, template: &RequestTemplate, deadline: Instant) -> ArmResult<SendPermit<'_>> {
        let (gate, mut charge) = (&*self.shared.deps.gate, template.charge());
        if template.request_line().is_write() {
            charge.causes = self.causes.clone();
        }
        {
            let mut queued = pin!(gate.acquire(&charge, self.urgency));
            if futures::poll!(&mut queued).is_pending() {
                self.request_metrics().rate_limited(template);
                timeout_at(deadline, queued).await.map_err(|_| {
                    let message = "the request budget did not allow this request before its deadline; nothing was sent";
                    template.request_line().error(ArmErrorClass::Throttled, message)
                })?;
            }
        }
        Ok(SendPermit::new(gate, charge, self.now()))
    }

    async fn tokens(&self, template: &RequestTemplate, deadline: Instant) -> ArmResult<RequestTokens> {
        let provider = &self.shared.deps.tokens;
        let both = async { Ok(RequestTokens { bearer: provider.bearer().await?, auxiliary: provider.auxiliary().await? }) };
        let refused = |error: AuthError| {
            let is_transient = matches!(error, AuthError::Unreachable { .. });
            let class = if is_transient { ArmErrorClass::Transient } else { ArmErrorClass::Unauthorized };
            (class, format!("no token: {error}"))
        };
        let tokens = match timeout_at(deadline, both).await {
            Ok(tokens) => tokens.map_err(refused),
            Err(_) => Err((ArmErrorClass::Transient, "no token before the deadline; nothing was sent".to_owned())),
        };
        tokens.map_err(|(class, message)| template.request_line().error(class, message))
    }

    async fn transmit(
        &self,
        template: &RequestTemplate,
        tokens: &RequestTokens,
        mut permit: SendPermit<'_>,
        deadline: Instant,
    ) -> ArmResult<Response<Bytes>> {
        let started = self.now();
        if started >= deadline {
            return Err(template.request_line().error(ArmErrorClass::Transient, "the deadline passed; nothing was sent"));
        }
        let id = uuid::Uuid::new_v4().to_string();
        let request = template.http_request(&self.shared.settings.user_agent, tokens, &id)?;
        let until = deadline.min(started + self.shared.settings.timeouts.response);
        permit.sent(true);
        let outcome = self.response_before(request, until).await;
        permit.sent(!matches!(outcome, Err(ArmTransportError::NotSent(_))));
        let took = self.now() - started;
        match &outcome {
            Ok(response) => log_response(template, response, &id, took),
            Err(error) => {
                debug!(method = %template.method, path = template.url.path(), client_request_id = id, ?took, %error, "no response from ARM")
            }
        }
        outcome.map_err(|error| no_response_error(template, &error))
    }

    async fn response_before(&self, request: Request<Bytes>, until: Instant) -> Result<Response<Bytes>, ArmTransportError> {
        let started = self.now();
        timeout_at(until, self.shared.deps.transport.send(request)).await.unwrap_or_else(|_| {
            let waited = until - started;
            Err(ArmTransportError::NoAnswer(format!("none within {waited:?}")))
        })
    }
}

/// Returns `true` if ARM was not reached. The error of an earlier attempt is then more informative.
fn was_not_sent(error: &ArmError) -> bool {
    error.status.is_none() && matches!(error.class, ArmErrorClass::Transient | ArmErrorClass::Throttled)
}

/// Returns the error without `token`, which a server may repeat in its response.
fn without_token(error: ArmError, token: &str) -> ArmError {
    let clean = |text: &str| text.replace(token, "[token]");
    ArmError { code: clean(&error.code), message: clean(&error.message), ..error }
}

fn no_response_error(template: &RequestTemplate, error: &ArmTransportError) -> ArmError {
    let class = match (error, template.request_line().is_write()) {
        (ArmTransportError::NoAnswer(_) | ArmTransportError::TooLarge(_), true) => ArmErrorClass::OutcomeUnknown,
        (ArmTransportError::TooLarge(_), false) => ArmErrorClass::MalformedAnswer,
        (ArmTransportError::NotSent(_), _) | (ArmTransportError::NoAnswer(_), false) => ArmErrorClass::Transient,
    };
    template.request_line().error(class, one_line(&error.to_string()))
}

fn log_response(template: &RequestTemplate, response: &Response<Bytes>, id: &str, took: Duration) {
    debug!(
        method = %template.method,
        path = template.url.path(),
        status = response.status().as_u16(),
        client_request_id = id,
        correlation_id = classify::correlation_id(response),
        ?took,
        "ARM responded"
    );
}
