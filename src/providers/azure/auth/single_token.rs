//! Token that is fetched once and not cached, for a process that ends after its response.
//!
//! In: the identity, a scope, the transport. Out: a token, or a remedy.

use std::{collections::BTreeMap, sync::Arc};

use azure_core::credentials::Secret;

use super::{
    AuthError, CloudEndpoints,
    credential_config::{EntraApplication, ManagedIdentityId},
    entra::{ClientCredential, ServicePrincipal, TokenAuthority},
    managed_identity::{ManagedIdentityFetcher, ManagedIdentityService},
    token::{BearerToken, TokenFetcher},
};
use crate::{providers::azure::transport::ArmTransport, runtime::clock::Clock};

/// Fetches a token of a managed identity of this machine.
pub async fn managed_identity_token(
    identity: ManagedIdentityId,
    scope: &str,
    environment: &BTreeMap<String, String>,
    transport: Arc<dyn ArmTransport>,
) -> Result<BearerToken, AuthError> {
    let service = ManagedIdentityService::detect(environment)?;
    ManagedIdentityFetcher { service, identity, transport, clock: Clock::System }.fetch(scope).await
}

/// Fetches a token of an application whose federated credential accepts `assertion`, a service account token.
pub async fn federated_token(
    application: EntraApplication,
    assertion: Secret,
    scope: &str,
    cloud: &CloudEndpoints,
    transport: Arc<dyn ArmTransport>,
) -> Result<BearerToken, AuthError> {
    let login_endpoint = cloud.login_endpoint.clone();
    let authority = TokenAuthority { login_endpoint, adfs: cloud.adfs, transport, clock: Clock::System };
    ServicePrincipal { authority, application, credential: ClientCredential::Assertion(assertion) }.fetch(scope).await
}
