//! Whether the rights that the manager needs in the cluster are granted.
//!
//! In: the tables of rights, and whose they are. Out: one finding when all are granted, else one for each that is not.

use futures::{StreamExt, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview, SubjectAccessReviewSpec,
    SubjectAccessReviewStatus,
};
use kube::{Api, Client, api::PostParams};

use super::checks::RIGHTS;
use crate::{
    app::rights::{LEASE, MANAGER_RIGHTS, NAMESPACE},
    cli::config::LeaderElectionOptions,
    cloud_provider::diagnostics::{DiagnosticFinding, ProviderDiagnostics},
    runtime::client::with_causes,
};

/// Questions at once.
const CONCURRENCY: usize = 8;

/// A right as a review asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NeededRight {
    namespace: Option<String>,
    group: &'static str,
    resource: &'static str,
    name: Option<String>,
    verb: &'static str,
}

/// What a manager with this election needs.
pub(super) fn needed(provider: Option<&dyn ProviderDiagnostics>, election: &LeaderElectionOptions) -> Vec<NeededRight> {
    let own = MANAGER_RIGHTS.iter().map(|row| (row, true));
    let more = provider.map(ProviderDiagnostics::rights).unwrap_or_default().iter().map(|row| (row, false));
    let verbs = own.chain(more).flat_map(|(&(scope, group, resource, name, verbs), is_own)| {
        let scope = if is_own && scope == NAMESPACE { &election.resource_namespace } else { scope };
        let name = if is_own && name == LEASE { &election.resource_name } else { name };
        let (namespace, name) = ((scope != "cluster").then(|| scope.to_owned()), (name != "*").then(|| name.to_owned()));
        verbs.iter().map(move |verb| NeededRight { namespace: namespace.clone(), group, resource, name: name.clone(), verb })
    });
    verbs.collect()
}

/// Asks for every right. `account`: whose they are, `None`: the caller's.
pub(super) async fn examine(
    client: &Client,
    needed: Vec<NeededRight>,
    account: Option<&(String, String)>,
) -> Vec<DiagnosticFinding> {
    let count = needed.len();
    let asked = stream::iter(needed).map(async |right| {
        let answer = is_granted(client, &right, account).await;
        (right, answer)
    });
    let answers: Vec<_> = asked.buffered(CONCURRENCY).collect().await;
    let who = account.map_or_else(|| "you".to_owned(), |(namespace, name)| format!("ServiceAccount {namespace}/{name}"));
    let mut findings = Vec::new();
    for (right, answer) in answers {
        match answer {
            Ok(true) => {}
            Ok(false) => findings.push(missing(&right, &who, account.is_some())),
            // Whoever may not ask for one may not ask for any.
            Err(reason) => {
                let remedy = "reviews for another account take the right to create subjectaccessreviews";
                return vec![DiagnosticFinding::unknown(RIGHTS, format!("the access review failed: {reason}"), remedy)];
            }
        }
    }
    if findings.is_empty() {
        findings.push(DiagnosticFinding::ok(RIGHTS, format!("all {count} rights are granted ({who})")));
    }
    findings
}

fn missing(right: &NeededRight, who: &str, is_account: bool) -> DiagnosticFinding {
    let NeededRight { namespace, group, resource, name, verb } = right;
    let object = name.as_ref().map(|name| format!(" {name:?}")).unwrap_or_default();
    let group = if group.is_empty() { String::new() } else { format!(".{group}") };
    let place = namespace.as_ref().map_or_else(|| "in the cluster".to_owned(), |namespace| format!("in {namespace}"));
    let text = format!("{who} may not {verb} {resource}{group}{object} {place}");
    match is_account {
        true => DiagnosticFinding::problem(RIGHTS, text, "apply manifests/rbac.yaml, or the chart's roles"),
        // Whoever looks need not have the manager's rights.
        false => DiagnosticFinding::warning(
            RIGHTS,
            text,
            "name the manager's account with --service-account=NAMESPACE/NAME; as that account, apply manifests/rbac.yaml",
        ),
    }
}

async fn is_granted(client: &Client, right: &NeededRight, account: Option<&(String, String)>) -> Result<bool, String> {
    let (resource, subresource) = match right.resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        None => (right.resource, None),
    };
    let attributes = ResourceAttributes {
        namespace: right.namespace.clone(),
        group: Some(right.group.to_owned()),
        resource: Some(resource.to_owned()),
        subresource,
        name: right.name.clone(),
        verb: Some(right.verb.to_owned()),
        ..Default::default()
    };
    let status = review(client, attributes, account).await.map_err(|error| with_causes(&error))?;
    Ok(status.is_some_and(|status| status.allowed))
}

async fn review(
    client: &Client,
    attributes: ResourceAttributes,
    account: Option<&(String, String)>,
) -> Result<Option<SubjectAccessReviewStatus>, kube::Error> {
    let (post, attributes) = (PostParams::default(), Some(attributes));
    let Some((namespace, name)) = account else {
        let spec = SelfSubjectAccessReviewSpec { resource_attributes: attributes, ..Default::default() };
        let asked = SelfSubjectAccessReview { spec, ..Default::default() };
        return Ok(Api::all(client.clone()).create(&post, &asked).await?.status);
    };
    let groups = ["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}"), "system:authenticated"];
    let spec = SubjectAccessReviewSpec {
        user: Some(format!("system:serviceaccount:{namespace}:{name}")),
        groups: Some(groups.map(str::to_owned).to_vec()),
        resource_attributes: attributes,
        ..Default::default()
    };
    let asked = SubjectAccessReview { spec, ..Default::default() };
    Ok(Api::all(client.clone()).create(&post, &asked).await?.status)
}
