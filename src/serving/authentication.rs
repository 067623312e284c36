//! Authenticates callers: front-proxy headers, client certificate, bearer token, or anonymous.
//!
//! In: the headers of a request and the certificates of its connection. Out: a [`RequestUser`], or an error about a
//! presented credential. The order and the rule that an invalid credential is never treated as absent are those of
//! `k8s.io/apiserver/pkg/authentication/authenticatorfactory/delegating.go`.

mod authorities;
mod ca_bundle;
mod client_certificate;
mod config_lookup;
mod request_header;
mod token;
mod user;

use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::http::HeaderMap;
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use tokio::time::Instant;

pub(super) use self::user::{AuthenticationError, RequestUser};
use self::{authorities::CallerAuthorities, user::AuthenticationResult};
use super::{
    authorized_networks::AuthorizedNetworks, config::SecureServingConfig, deps::ServingDeps, error::ServingError,
    peer_network::PeerNetwork, review_cache::ByteSize,
};
use crate::{
    metrics::Metrics,
    runtime::{clock::Clock, shutdown::Shutdown},
};

/// Maximum length of all names of a user, in bytes.
///
/// The longest name of a ServiceAccount has 338 bytes. An identity provider adds up to a few hundred groups of about 40
/// bytes.
const USER_LIMIT: usize = 15 * 1024;
/// Maximum length of a name, in bytes.
const NAME_LIMIT: usize = 1024;

/// Checks that the names of a user are bounded, whatever authenticated the user.
fn check_size(user: RequestUser) -> AuthenticationResult {
    if user.name.len() > NAME_LIMIT || user.size() > USER_LIMIT {
        let error =
            format!("the user's name is longer than {NAME_LIMIT} bytes, or name, groups and extra than {USER_LIMIT}");
        return Err(error.into());
    }
    Ok(Some(user))
}

/// Authenticates without the API server. The first user is returned, or an error if there is no user.
fn identify_locally(
    headers: &HeaderMap,
    certificates: &[CertificateDer<'static>],
    authorities: &CallerAuthorities,
    now: Timestamp,
) -> AuthenticationResult {
    let proxy = authorities.front_proxy.as_ref().map_or(Ok(None), |proxy| proxy.identify(headers, certificates, now));
    if let Ok(Some(user)) = proxy {
        return Ok(Some(user));
    }
    let client =
        authorities.client.as_ref().map_or(Ok(None), |bundle| client_certificate::identify(certificates, bundle, now));
    match (client, proxy) {
        (Ok(Some(user)), _) => Ok(Some(user)),
        (Err(error), _) | (Ok(None), Err(error)) => Err(error),
        (Ok(None), Ok(_)) => Ok(None),
    }
}

/// Authenticator of requests, whose CA data is refreshed in the background.
pub(super) struct RequestAuthenticator {
    authorities: Arc<ArcSwap<CallerAuthorities>>,
    tokens: Option<token::TokenAuthenticator>,
    metrics: Arc<Metrics>,
    clock: Clock,
}

impl RequestAuthenticator {
    /// Reads the CA files now, and the cluster's CA data in the background.
    pub(super) async fn start(
        config: &SecureServingConfig,
        parts: &ServingDeps,
        familiar: &Arc<AuthorizedNetworks>,
        shutdown: &Shutdown,
    ) -> Result<Arc<Self>, ServingError> {
        let ttl = config.authentication.token_cache_ttl;
        let tokens = |client| token::TokenAuthenticator::new(client, ttl, familiar, &parts.metrics);
        let tokens = parts.reviews.as_ref().map(|reviews| tokens(reviews.authentication.clone()));
        let authorities = config_lookup::start(config, parts, shutdown).await?;
        Ok(Arc::new(Self { authorities, tokens, metrics: Arc::clone(&parts.metrics), clock: parts.clock }))
    }

    /// Returns the caller of a request from `peer`.
    pub(super) async fn authenticate(
        &self,
        headers: &HeaderMap,
        certificates: &[CertificateDer<'static>],
        peer: PeerNetwork,
    ) -> Result<RequestUser, AuthenticationError> {
        let start = Instant::now();
        let identified = self.identify(headers, certificates, peer).await;
        let identified = identified.and_then(|user| user.map_or(Ok(None), check_size));
        let result = match &identified {
            Ok(Some(_)) => "success",
            Ok(None) => "failure",
            Err(_) => "error",
        };
        self.metrics.authentication_attempts.with_label_values(&[result]).inc();
        self.metrics.authentication_duration.with_label_values(&[result]).observe(start.elapsed().as_secs_f64());
        let user = identified?.map_or_else(RequestUser::anonymous, RequestUser::with_authenticated_group);
        self.metrics.authenticated_user_requests.with_label_values(&[username_label(&user.name)]).inc();
        Ok(user)
    }

    async fn identify(
        &self,
        headers: &HeaderMap,
        certificates: &[CertificateDer<'static>],
        peer: PeerNetwork,
    ) -> AuthenticationResult {
        let local = identify_locally(headers, certificates, &self.authorities.load(), self.clock.wall());
        if let Ok(Some(_)) = local {
            return local;
        }
        let token = match (&self.tokens, token::bearer_token(headers)) {
            (Some(tokens), Some(token)) => tokens.identify(token, peer).await,
            (None, Some(_)) => Err("no API server is configured that could review the bearer token".to_owned().into()),
            (_, None) => Ok(None),
        };
        match (token, local) {
            (Ok(None), local) => local,
            (token, _) => token,
        }
    }
}

/// Returns one of a few label values: upstream's known names, and classes for the rest
/// (`k8s.io/apiserver/pkg/endpoints/filters/metrics.go`).
fn username_label(name: &str) -> &str {
    match name {
        "admin" | "client" | "kube_proxy" | "kubelet" | "system:serviceaccount:kube-system:default" => name,
        _ if name.contains('@') => "email_id",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{
        user::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED},
        *,
    };

    #[test]
    fn known_users_are_in_the_group_of_the_authenticated() {
        let user = |name: &str, groups: &[&str]| RequestUser {
            name: name.to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            ..Default::default()
        };
        let rows: [(RequestUser, &[&str]); 4] = [
            (user("ann", &["dev"]), &["dev", AUTHENTICATED]),
            (user("ann", &[AUTHENTICATED]), &[AUTHENTICATED]),
            (user(ANONYMOUS, &[]), &[]),
            (user("ann", &[UNAUTHENTICATED]), &[UNAUTHENTICATED]),
        ];
        for (user, expected) in rows {
            assert_eq!(user.with_authenticated_group().groups, expected);
        }
    }

    #[test]
    fn users_are_bounded() {
        let named = |length: usize| RequestUser { name: "n".repeat(length), ..Default::default() };
        let grouped = |count: usize| RequestUser { groups: vec!["g".repeat(36); count], ..named(10) };
        let rows = [
            (named(NAME_LIMIT), true),
            (named(NAME_LIMIT + 1), false),
            (grouped(200), true),
            (grouped(1000), false),
            (RequestUser { uid: "u".repeat(USER_LIMIT), ..named(1) }, false),
            (RequestUser { extra: BTreeMap::from([("k".repeat(USER_LIMIT), Vec::new())]), ..named(1) }, false),
        ];
        for (user, accepted) in rows {
            assert_eq!(check_size(user.clone()).is_ok(), accepted, "{} {}", user.name.len(), user.size());
        }
    }

    #[test]
    fn user_names_do_not_multiply_series() {
        let rows = [("kubelet", "kubelet"), ("ann@example.com", "email_id"), ("system:serviceaccount:a:b", "other")];
        for (name, expected) in rows {
            assert_eq!(username_label(name), expected);
        }
    }
}
