//! Check of the rights that the manager needs in the cluster.
//!
//! In: the tables of rights, and the account. Out: one finding if all are granted, else one for each that is not.

use futures::{StreamExt, stream};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::{Api, Client, api::PostParams};

use super::checks::RIGHTS;
use crate::{
    app::rights::{LEASE, MANAGER_RIGHTS, NAMESPACE},
    cli::config::LeaderElectionOptions,
    cloud_provider::diagnostics::{DiagnosticFinding, ProviderDiagnostics},
    runtime::{access_review::is_allowed, client::with_causes},
};

/// Number of concurrent reviews.
const CONCURRENCY: usize = 8;

/// Returns the rights that a manager with this election needs.
pub(super) fn needed(
    provider: Option<&dyn ProviderDiagnostics>,
    election: &LeaderElectionOptions,
) -> Vec<ResourceAttributes> {
    let own = MANAGER_RIGHTS.iter().map(|row| (row, true));
    let more = provider.map(ProviderDiagnostics::rights).unwrap_or_default().iter().map(|row| (row, false));
    let verbs = own.chain(more).flat_map(|(&(scope, group, resource, name, verbs), is_own)| {
        let scope = if is_own && scope == NAMESPACE { &election.resource_namespace } else { scope };
        let name = if is_own && name == LEASE { &election.resource_name } else { name };
        let (resource, subresource) = resource.split_once('/').map_or((resource, None), |(of, part)| (of, Some(part)));
        let attributes = ResourceAttributes {
            namespace: (scope != "cluster").then(|| scope.to_owned()),
            group: Some(group.to_owned()),
            resource: Some(resource.to_owned()),
            subresource: subresource.map(str::to_owned),
            name: (name != "*").then(|| name.to_owned()),
            ..Default::default()
        };
        verbs.iter().map(move |verb| ResourceAttributes { verb: Some((*verb).to_owned()), ..attributes.clone() })
    });
    verbs.collect()
}

/// Reviews every right in `needed` of `account`, or of the caller with `None`.
pub(super) async fn examine(
    client: &Client,
    needed: Vec<ResourceAttributes>,
    account: Option<&(String, String)>,
) -> Vec<DiagnosticFinding> {
    let count = needed.len();
    let reviews = stream::iter(needed).map(async |attributes| {
        let allowed = match account {
            Some(account) => is_allowed_for(client, attributes.clone(), account).await,
            None => is_allowed(client, attributes.clone()).await,
        };
        (attributes, allowed)
    });
    let results: Vec<_> = reviews.buffered(CONCURRENCY).collect().await;
    let subject = account.map_or_else(|| "you".to_owned(), |(namespace, name)| format!("ServiceAccount {namespace}/{name}"));
    let mut findings = Vec::new();
    for (attributes, allowed) in results {
        match allowed {
            Ok(true) => {}
            Ok(false) => findings.push(missing(attributes, &subject, account.is_some())),
            // If one access review is forbidden, all are.
            Err(error) => {
                let text = format!("the access review failed: {}", with_causes(&error));
                let remedy = "reviews for another account need the right to create subjectaccessreviews";
                return vec![DiagnosticFinding::undetermined(RIGHTS, text, remedy)];
            }
        }
    }
    if findings.is_empty() {
        findings.push(DiagnosticFinding::ok(RIGHTS, format!("all {count} rights are granted ({subject})")));
    }
    findings
}

fn missing(attributes: ResourceAttributes, subject: &str, is_account: bool) -> DiagnosticFinding {
    let ResourceAttributes { namespace, group, resource, subresource, name, verb, .. } = attributes;
    let [verb, resource] = [verb, resource].map(Option::unwrap_or_default);
    let part = subresource.map(|part| format!("/{part}")).unwrap_or_default();
    let group = group.filter(|group| !group.is_empty()).map(|group| format!(".{group}")).unwrap_or_default();
    let object = name.map(|name| format!(" {name:?}")).unwrap_or_default();
    let scope = namespace.map_or_else(|| "in the cluster".to_owned(), |namespace| format!("in {namespace}"));
    let text = format!("{subject} may not {verb} {resource}{part}{group}{object} {scope}");
    match is_account {
        true => DiagnosticFinding::problem(RIGHTS, text, "apply manifests/rbac.yaml, or the chart's roles"),
        // The user of this command does not need the manager's rights.
        false => DiagnosticFinding::warning(
            RIGHTS,
            text,
            "name the manager's account with --service-account=NAMESPACE/NAME; as that account, apply manifests/rbac.yaml",
        ),
    }
}

async fn is_allowed_for(
    client: &Client,
    attributes: ResourceAttributes,
    (namespace, name): &(String, String),
) -> Result<bool, kube::Error> {
    let groups = ["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}"), "system:authenticated"];
    let spec = SubjectAccessReviewSpec {
        user: Some(format!("system:serviceaccount:{namespace}:{name}")),
        groups: Some(groups.map(str::to_owned).to_vec()),
        resource_attributes: Some(attributes),
        ..Default::default()
    };
    let created = SubjectAccessReview { spec, ..Default::default() };
    let status = Api::all(client.clone()).create(&PostParams::default(), &created).await?.status;
    Ok(status.is_some_and(|status| status.allowed))
}
