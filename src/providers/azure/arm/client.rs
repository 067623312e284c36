//! ARM client: one path for every request.
//!
//! In: documents, IDs, urgency, deadline. Out: documents, or an [`ArmError`] whose class selects the caller's next step. The parts:
//! `request` (HTTP request), `send` (gate, token, attempts), `write` with `operation` (long-running operations), `classify` (errors).
//! The [`super::budget`] limits rates, not this file.

use std::{collections::HashSet, pin::Pin, sync::Arc};

use bytes::Bytes;
use http::{Method, Response};
use parking_lot::Mutex;
use reqwest::Url;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::time::Instant;

use super::{
    ArmSettings, Precondition, RequestGate, TokenProvider, Urgency,
    answer::{decode, unread_result},
    budget::{Causes, RequestCharge, RequestDelay, SendPermit, ServiceCount},
    classify::RequestLine,
    operation::RequiredResult,
    operation_length::OperationLengths,
    operation_watch::OperationWatch,
    request::RequestTemplate,
    request_metrics::ArmRequestMetrics,
    url,
};
use crate::{
    metrics::Metrics,
    providers::azure::{
        model::{ApiType, ArmError, ArmErrorClass, ArmResult, ResourceId, body},
        transport::ArmTransport,
    },
    runtime::{clock::Clock, leader_election::Leadership},
};

/// Check that refuses a write with a reason, in addition to leadership.
pub type WriteCheck = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Maximum number of pages of one list. 5,000 machines are 50 pages.
const MAX_PAGES: usize = 10_000;

/// Dependencies of the client.
pub struct ArmClientDeps {
    /// Transport of HTTP requests. Must not follow redirects, which would send the token along.
    pub transport: Arc<dyn ArmTransport>,
    pub tokens: Arc<dyn TokenProvider>,
    pub gate: Arc<dyn RequestGate>,
    /// Leadership that is checked before every write, unless [`ArmClient::with_leadership`] replaces it.
    pub leadership: Leadership,
    pub metrics: Arc<Metrics>,
    pub clock: Clock,
}

pub(super) struct ArmClientShared {
    pub(super) settings: ArmSettings,
    pub(super) deps: ArmClientDeps,
    pub(super) operation_watch: OperationWatch,
    pub(super) operation_lengths: Mutex<OperationLengths>,
}

/// Client of ARM. Cheap to clone; a clone may have another urgency, causes, leadership or deadline.
#[derive(Clone)]
pub struct ArmClient {
    pub(super) shared: Arc<ArmClientShared>,
    pub(super) urgency: Urgency,
    /// Namespaces that the writes are charged to.
    pub(super) causes: Causes,
    pub(super) leadership: Leadership,
    pub(super) write_check: Option<WriteCheck>,
    deadline: Option<Instant>,
}

/// State of a resource after a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptedDocument<D> {
    pub document: D,
    /// Whether ARM returned the document before the operation ended, so that its etag is outdated.
    pub is_etag_outdated: bool,
}

/// Returns the document after a successful write: the operation's result, or else `early`, the document at acceptance.
fn result_of<D: DeserializeOwned>(
    template: &RequestTemplate,
    last: Option<&Response<Bytes>>,
    early: Option<D>,
) -> ArmResult<AcceptedDocument<D>> {
    let Some(response) = last else {
        let no_result = || template.request_line().error(ArmErrorClass::OutcomeUnknown, "the response contains no document");
        return Ok(AcceptedDocument { document: early.ok_or_else(no_result)?, is_etag_outdated: true });
    };
    let document = decode(template, response).map_err(|error| unread_result(template, &error))?;
    Ok(AcceptedDocument { document, is_etag_outdated: false })
}

#[derive(Deserialize)]
struct ArmListPage<D> {
    value: Vec<D>,
    #[serde(rename = "nextLink")]
    next_link: Option<String>,
}

impl ArmClient {
    /// Returns the witness that compares sent requests with the plan, if the transport has one.
    #[cfg(feature = "sandbox")]
    pub fn witness(&self) -> Option<&dyn crate::providers::azure::transport::PlanWitness> {
        self.shared.deps.transport.witness()
    }

    /// Creates a client with the lowest urgency.
    pub fn new(settings: ArmSettings, parts: ArmClientDeps) -> Self {
        let leadership = parts.leadership.clone();
        let shared = ArmClientShared {
            settings,
            deps: parts,
            operation_watch: OperationWatch::default(),
            operation_lengths: Mutex::default(),
        };
        let (urgency, causes) = (Urgency::Resync, Causes::default());
        Self { shared: Arc::new(shared), urgency, causes, leadership, write_check: None, deadline: None }
    }

    /// Returns a client with another urgency.
    pub fn with_urgency(&self, urgency: Urgency) -> Self {
        Self { urgency, ..self.clone() }
    }

    /// Returns a client whose writes are charged to these namespaces.
    pub fn with_causes(&self, causes: Causes) -> Self {
        Self { causes, ..self.clone() }
    }

    /// Returns a client that checks another leadership before it writes.
    pub fn with_leadership(&self, leadership: &Leadership) -> Self {
        Self { leadership: leadership.clone(), ..self.clone() }
    }

    /// Returns a client that also calls `check` before each write.
    pub fn with_write_check(&self, check: WriteCheck) -> Self {
        Self { write_check: Some(check), ..self.clone() }
    }

    /// Returns the quota that a new or changed Service in `namespace` waits for, if any.
    pub fn delay(&self, namespace: &str) -> Option<RequestDelay> {
        self.shared.deps.gate.delay(namespace)
    }

    /// Waits until a Service in `namespace`, which has `services()` Services, may write network resources in `subscription`.
    ///
    /// Waits only if the namespace has used more than its share of the quota. It then returns a permit, which the caller keeps until
    /// its writes are done.
    pub async fn enter(
        &self,
        (subscription, namespace): (&str, &str),
        urgency: Urgency,
        services: &ServiceCount<'_>,
    ) -> Option<SendPermit<'_>> {
        let (gate, charge) = (&*self.shared.deps.gate, RequestCharge::permit(subscription, namespace));
        let holds_tokens = gate.enter(&charge, urgency, services).await;
        holds_tokens.then(|| SendPermit::new(gate, charge, self.now()))
    }

    /// Returns a client whose calls end at `deadline` at the latest, instead of after the limits of the settings.
    pub fn with_deadline(&self, deadline: Instant) -> Self {
        Self { deadline: Some(deadline), ..self.clone() }
    }

    /// Reads one document; an error of class `NotFound` or `ParentNotFound` if it does not exist. `query` is added to the
    /// API version.
    pub async fn get<D: DeserializeOwned>(
        &self,
        kind: &'static ApiType,
        id: &ResourceId,
        query: &[(&str, &str)],
    ) -> ArmResult<D> {
        let template = self.request(kind, "get", Method::GET, id.as_str(), query)?;
        self.measure(&template, Box::pin(self.read(&template, self.read_deadline()))).await
    }

    /// Lists the collection at `path`, for example `{group}/providers/Microsoft.Compute/virtualMachines`.
    ///
    /// Never returns a part of the pages: an error of one page fails the list.
    pub async fn list<D: DeserializeOwned>(
        &self,
        kind: &'static ApiType,
        path: &str,
        query: &[(&str, &str)],
    ) -> ArmResult<Vec<D>> {
        let mut all = Vec::new();
        self.list_with(kind, path, query, |page| all.extend(page)).await?;
        Ok(all)
    }

    /// Lists page by page, so that a long list is never in memory as a whole. After an error, `take` has not received all pages.
    pub async fn list_with<D: DeserializeOwned>(
        &self,
        kind: &'static ApiType,
        path: &str,
        query: &[(&str, &str)],
        mut take: impl FnMut(Vec<D>),
    ) -> ArmResult<()> {
        let template = self.request(kind, "list", Method::GET, path, query)?;
        self.measure(&template, Box::pin(self.pages(&template, &mut take))).await
    }

    async fn pages<D: DeserializeOwned>(&self, first: &RequestTemplate, take: &mut impl FnMut(Vec<D>)) -> ArmResult<()> {
        let mut template = first.clone();
        let mut seen = HashSet::new();
        while seen.len() < MAX_PAGES && seen.insert(template.url.clone()) {
            let page: ArmListPage<D> = self.read(&template, self.read_deadline()).await?;
            take(page.value);
            let Some(link) = page.next_link.filter(|link| !link.is_empty()) else { return Ok(()) };
            let Some(next) = url::follow(&first.url, &link) else {
                let message = "the list continues at another host (nextLink), to which no token is sent";
                return Err(first.request_line().error(ArmErrorClass::MalformedAnswer, message));
            };
            template = first.read_at(next);
        }
        Err(first
            .request_line()
            .error(ArmErrorClass::MalformedAnswer, format!("the list does not end (nextLink, after {} pages)", seen.len())))
    }

    /// Creates or replaces a resource with `document`, without ARM's read-only fields. Waits for the operation and returns the result.
    ///
    /// Fails with class `Conflict` if `condition` does not hold.
    pub async fn put<D: Serialize + DeserializeOwned + Sync>(
        &self,
        kind: &'static ApiType,
        id: &ResourceId,
        condition: Precondition<'_>,
        document: &D,
    ) -> ArmResult<D> {
        let template = self.request(kind, "create_or_update", Method::PUT, id.as_str(), &[])?;
        self.write_document(template.with(condition, body::of(kind, document))?).await
    }

    /// Puts `document` for callers that can use the document in ARM's first response, if it satisfies `suffices`.
    ///
    /// That document is not read again after the operation has ended, and its etag is outdated.
    pub async fn put_accepted<D: Serialize + DeserializeOwned + Sync>(
        &self,
        kind: &'static ApiType,
        id: &ResourceId,
        condition: Precondition<'_>,
        document: &D,
        suffices: impl Fn(&D) -> bool,
    ) -> ArmResult<AcceptedDocument<D>> {
        let template = self.request(kind, "create_or_update", Method::PUT, id.as_str(), &[])?;
        let template = template.with(condition, body::of(kind, document))?;
        let work = async {
            let deadline = self.operation_deadline();
            let accepted = self.send(&template, deadline).await?;
            let early = decode(&template, &accepted).ok().filter(&suffices);
            let desired = if early.is_some() { RequiredResult::Success } else { RequiredResult::Document };
            let last = self.follow_operation(&template, accepted, desired, deadline).await?;
            result_of(&template, last.as_ref(), early)
        };
        self.measure(&template, Box::pin(work)).await
    }

    /// Puts `document` for callers that do not need the result, which is not read after the operation has ended.
    pub async fn replace(
        &self,
        kind: &'static ApiType,
        id: &ResourceId,
        condition: Precondition<'_>,
        document: &(impl Serialize + Sync),
    ) -> ArmResult<()> {
        let template = self.request(kind, "create_or_update", Method::PUT, id.as_str(), &[])?;
        let template = template.with(condition, body::of(kind, document))?;
        let work = self.run_operation(&template, RequiredResult::Success, self.operation_deadline());
        self.measure(&template, Box::pin(work)).await.map(drop)
    }

    /// Changes the fields in `change`; otherwise like [`ArmClient::put`].
    pub async fn patch<D: DeserializeOwned>(
        &self,
        kind: &'static ApiType,
        id: &ResourceId,
        condition: Precondition<'_>,
        change: &(impl Serialize + Sync),
    ) -> ArmResult<D> {
        let template = self.request(kind, "update", Method::PATCH, id.as_str(), &[])?;
        self.write_document(template.with(condition, serde_json::to_vec(change))?).await
    }

    async fn write_document<D: DeserializeOwned>(&self, template: RequestTemplate) -> ArmResult<D> {
        let work = async {
            let response = self.run_operation(&template, RequiredResult::Document, self.operation_deadline()).await?;
            result_of(&template, response.as_ref(), None).map(|result| result.document)
        };
        self.measure(&template, Box::pin(work)).await
    }

    /// Deletes a resource and waits for the operation. Succeeds if the resource does not exist; fails with class `Conflict` if
    /// `condition` does not hold.
    pub async fn delete(&self, kind: &'static ApiType, id: &ResourceId, condition: Precondition<'_>) -> ArmResult<()> {
        let template = RequestTemplate {
            condition: condition.header(),
            ..self.request(kind, "delete", Method::DELETE, id.as_str(), &[])?
        };
        let work = async {
            match self.run_operation(&template, RequiredResult::Success, self.operation_deadline()).await {
                Err(error) if error.class != ArmErrorClass::NotFound => Err(error),
                _ => Ok(()),
            }
        };
        self.measure(&template, Box::pin(work)).await
    }

    /// Runs `action` of a resource (`{id}/{action}`) and waits for the operation. Returns its result, if it has one.
    pub async fn post<D: DeserializeOwned>(
        &self,
        kind: &'static ApiType,
        id: &ResourceId,
        action: &str,
        input: &(impl Serialize + Sync),
    ) -> ArmResult<Option<D>> {
        let template = self.request(kind, "action", Method::POST, &format!("{id}/{action}"), &[])?;
        let template = template.with(Precondition::Unconditional, serde_json::to_vec(input))?;
        let work = async {
            let response = self.run_operation(&template, RequiredResult::Document, self.operation_deadline()).await?;
            let response = response.filter(|response| !response.body().is_empty());
            response
                .map(|response| decode(&template, &response).map_err(|error| unread_result(&template, &error)))
                .transpose()
        };
        self.measure(&template, Box::pin(work)).await
    }

    fn request(
        &self,
        kind: &'static ApiType,
        call: &'static str,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
    ) -> ArmResult<RequestTemplate> {
        let settings = &self.shared.settings;
        let version = if settings.azure_stack { kind.stack_version } else { kind.version };
        let url = url::build(&settings.endpoint, path, version, query);
        let refused =
            || RequestLine { method: &method, path }.error(ArmErrorClass::Invalid, "not the path of an ARM resource");
        let url: Url = url.ok_or_else(refused)?;
        Ok(RequestTemplate { kind, call, method, url, condition: None, body: Bytes::new() })
    }

    /// Records the duration and outcome of `work`. It is boxed because it is kilobytes long, and each future that contains it
    /// would reserve that memory twice.
    async fn measure<T>(
        &self,
        template: &RequestTemplate,
        work: Pin<Box<impl Future<Output = ArmResult<T>>>>,
    ) -> ArmResult<T> {
        let started = self.now();
        let outcome = work.await;
        self.request_metrics().call_ended(template, self.now() - started, outcome.as_ref());
        outcome
    }

    pub(super) fn request_metrics(&self) -> ArmRequestMetrics<'_> {
        let settings = &self.shared.settings;
        ArmRequestMetrics {
            metrics: &self.shared.deps.metrics,
            groups: settings.labeled_groups.as_ref(),
            subscriptions: settings.labeled_subscriptions.as_ref(),
        }
    }

    pub(super) fn now(&self) -> Instant {
        self.shared.deps.clock.now()
    }

    fn read_deadline(&self) -> Instant {
        self.deadline.unwrap_or_else(|| self.now() + self.shared.settings.timeouts.read)
    }

    fn operation_deadline(&self) -> Instant {
        self.deadline.unwrap_or_else(|| self.now() + self.shared.settings.timeouts.operation)
    }
}

impl RequestTemplate {
    fn with(self, condition: Precondition<'_>, body: serde_json::Result<Vec<u8>>) -> ArmResult<Self> {
        let body = body.map_err(|error| -> ArmError {
            self.request_line().error(ArmErrorClass::Invalid, format!("cannot serialize the document: {error}"))
        })?;
        Ok(Self { condition: condition.header(), body: body.into(), ..self })
    }
}

#[cfg(test)]
mod tests;
