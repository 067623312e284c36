//! Plays one row: creates its prerequisites, sends its steps, and compares each response with the expected one.

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;
use serde_json::Value;

use super::{
    cloud::VerifiedCloud,
    compare::{self, AnswerDifference, StepAnswer},
    prepare::{self, PreparedStep},
    table::{Assumption, AssumptionStep, AssumptionTable, RawStep, StepVerb},
    values::Variables,
    wire::{RecordingTransport, RunControl, VerifyExchange, VerifyTransport},
};
use crate::providers::azure::{
    arm::ArmClient,
    model::{ArmError, ArmErrorClass, ArmResult, ResourceId},
};

/// Result of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowVerdict {
    /// Azure behaves as described in the row.
    Holds,
    /// Azure behaves otherwise: the request, the differences, and the ID of the response for a support case.
    Wrong { request: String, differences: Vec<AnswerDifference>, request_id: String },
    /// The row could not be played to its end.
    NotPlayed(String),
    /// The run was stopped during or before the row.
    Interrupted,
}

/// Plays rows of one run.
pub struct RowPlayer<'a> {
    pub table: &'a AssumptionTable,
    pub cloud: &'a VerifiedCloud,
    pub control: RunControl,
    /// Begins the names of what the row creates.
    pub prefix: String,
    pub location: String,
    /// Resources of which the creation was requested, oldest first.
    pub created: Mutex<Vec<ResourceId>>,
}

enum StepEnd {
    Wrong(RowVerdict),
    NotPlayed(String),
}

impl From<String> for StepEnd {
    fn from(problem: String) -> Self {
        Self::NotPlayed(problem)
    }
}

impl RowPlayer<'_> {
    /// Plays `row` until its end or the interruption of the run.
    pub async fn play(&self, row: &Assumption) -> RowVerdict {
        let mut variables = self.cloud.variables(&self.location, &self.prefix);
        let work = async {
            for name in &row.prerequisites {
                let step = AssumptionStep { put: Some(name.clone()), ..AssumptionStep::default() };
                match self.step(&step, &mut variables).await {
                    Ok(()) => {}
                    Err(StepEnd::Wrong(verdict)) => return Err(StepEnd::NotPlayed(format!("given {name}: {verdict:?}"))),
                    Err(end) => return Err(end),
                }
            }
            for step in &row.steps {
                self.step(step, &mut variables).await?;
            }
            Ok(())
        };
        let ended = tokio::select! {
            biased;
            ended = work => ended,
            () = self.control.stopped() => return RowVerdict::Interrupted,
        };
        match ended {
            _ if self.control.is_stopped() => RowVerdict::Interrupted,
            Ok(()) => RowVerdict::Holds,
            Err(StepEnd::Wrong(verdict)) => verdict,
            Err(StepEnd::NotPlayed(problem)) => RowVerdict::NotPlayed(problem),
        }
    }

    fn step<'b>(&'b self, step: &'b AssumptionStep, variables: &'b mut Variables) -> BoxFuture<'b, Result<(), StepEnd>> {
        async move {
            let wire = VerifyTransport {
                wire: Arc::clone(&self.cloud.wire),
                control: self.control.clone(),
                group: self.cloud.group.as_str().to_owned(),
                prefix: self.prefix.clone(),
            };
            let (result, line) = match &step.raw {
                Some(raw) => self.raw(raw, variables, &RecordingTransport::new(Arc::new(wire))).await?,
                None => {
                    let recorder = Arc::new(RecordingTransport::new(Arc::new(wire)));
                    self.through_client(step, variables, &recorder).await?
                }
            };
            for (name, path) in &step.save {
                let value = result.field(path);
                variables.set(name, value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            }
            let differences = compare::differences(&step.expect, &result, variables)?;
            if differences.is_empty() {
                return Ok(());
            }
            let request_id = result.header("x-ms-request-id").unwrap_or_default().to_owned();
            Err(StepEnd::Wrong(RowVerdict::Wrong { request: line, differences, request_id }))
        }
        .boxed()
    }

    async fn raw(
        &self,
        raw: &RawStep,
        variables: &Variables,
        recorder: &RecordingTransport,
    ) -> Result<(StepAnswer, String), StepEnd> {
        let request = prepare::raw_request(raw, self.cloud.base(&raw.to)?, variables)?;
        let line = format!("{} {}", request.method(), request.uri().path());
        let sent = self.cloud.send_raw(request, raw.to == "arm", recorder).await;
        sent.map_err(|error| format!("{line}: {error}"))?;
        Ok((first_response(recorder.exchanges(), None), line))
    }

    async fn through_client(
        &self,
        step: &AssumptionStep,
        variables: &mut Variables,
        recorder: &Arc<RecordingTransport>,
    ) -> Result<(StepAnswer, String), StepEnd> {
        let prepared = prepare::prepare(self.table, step, variables)?;
        if prepared.verb == StepVerb::Put {
            self.note_creation(&prepared.path);
        }
        let client = self.cloud.client(Arc::<RecordingTransport>::clone(recorder));
        let meanwhile = async {
            for other in &step.meanwhile {
                recorder.wait_for_response().await;
                self.step(other, variables).await?;
            }
            Ok::<_, StepEnd>(())
        };
        let (called, meanwhile) = tokio::join!(call(&client, &prepared), meanwhile);
        meanwhile?;
        let line = format!("{} {}", prepared.verb.method(), prepared.path);
        let (entries, error) = match called {
            Ok(entries) => (entries, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let exchanges = recorder.exchanges();
        if exchanges.is_empty() {
            let reason = error.map_or_else(|| "no answer".to_owned(), |error| error.to_string());
            return Err(StepEnd::NotPlayed(reason));
        }
        let result = StepAnswer { entries, ..first_response(exchanges, error.as_ref()) };
        match error.filter(|error| error.code == "SubscriptionRequestsThrottled") {
            Some(throttled) => Err(StepEnd::NotPlayed(throttled.to_string())),
            None => Ok((result, line)),
        }
    }

    /// Records a resource, not a part of one, that must be deleted.
    fn note_creation(&self, path: &str) {
        let Ok(id) = ResourceId::parse(path) else { return };
        let is_top_level = id.resource_type().split('/').count() == 2;
        let mut created = self.created.lock();
        if is_top_level && !created.contains(&id) {
            created.push(id);
        }
    }
}

/// Sends the request of a step. Returns the entries of a list; empty for other requests.
async fn call(client: &ArmClient, step: &PreparedStep) -> ArmResult<Vec<Value>> {
    let id = || ResourceId::parse(&step.path).map_err(|error| invalid(step, &error.to_string()));
    let query: Vec<(&str, &str)> = step.query.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let (kind, condition) = (step.kind, step.condition.precondition());
    match step.verb {
        StepVerb::List => return client.list(kind, &step.path, &query).await,
        StepVerb::Get => client.get::<Value>(kind, &id()?, &query).await.map(drop),
        StepVerb::Put => client.put::<Value>(kind, &id()?, condition, &step.body).await.map(drop),
        StepVerb::Patch => client.patch::<Value>(kind, &id()?, condition, &step.body).await.map(drop),
        StepVerb::Delete => client.delete(kind, &id()?, condition).await,
        StepVerb::Post => client.post::<Value>(kind, &id()?, &step.action, &step.body).await.map(drop),
        StepVerb::Raw => Ok(()),
    }?;
    Ok(Vec::new())
}

fn invalid(step: &PreparedStep, problem: &str) -> ArmError {
    ArmError {
        class: ArmErrorClass::Invalid,
        status: None,
        code: String::new(),
        message: problem.to_owned(),
        request: step.path.clone(),
        correlation_id: None,
        retry_after: None,
    }
}

/// Returns the response to the first request of a step, with the statuses of its polls.
fn first_response(exchanges: Vec<VerifyExchange>, error: Option<&ArmError>) -> StepAnswer {
    let polls = exchanges.iter().filter(|exchange| exchange.is_poll());
    let polls = polls.filter_map(|exchange| exchange.body["status"].as_str().map(str::to_owned)).collect();
    let class = error.map(|error| error.class);
    let first = exchanges.into_iter().next();
    first.map_or_else(StepAnswer::default, |first| StepAnswer {
        status: first.status,
        headers: first.headers,
        body: first.body,
        polls,
        class,
        entries: Vec::new(),
    })
}
