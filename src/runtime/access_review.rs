//! Reviews of the rights of this process.

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::{Api, Client, api::PostParams};

/// Returns `true` if this process has the right. `system:basic-user` permits this review to every account.
pub async fn is_allowed(client: &Client, attributes: ResourceAttributes) -> Result<bool, kube::Error> {
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..Default::default() };
    let status = Api::all(client.clone()).create(&PostParams::default(), &review).await?.status;
    Ok(status.is_some_and(|status| status.allowed))
}
