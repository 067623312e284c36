//! `--use-service-account-credentials`: each controller acts as a ServiceAccount of its own.
//!
//! In: a client with the process's credentials and the account's name. Out: a [`ServiceAccountToken`] that is always valid:
//! a missing account is created, and a token is requested (TokenRequest, one hour) again when a fifth of its lifetime
//! remains. Upstream: `k8s.io/controller-manager/pkg/clientbuilder/client_builder_dynamic.go`.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{Api, Client, api::PostParams, core::ObjectMeta};

use super::{backoff::ExponentialBackoff, bearer::bearer_header, shutdown::Shutdown};

/// Namespace of the accounts.
pub const NAMESPACE: &str = "kube-system";

/// Lifetime of a token.
const LIFE: Duration = Duration::from_secs(3600);
/// Age at which a token is replaced.
const REPLACED_AFTER: Duration = Duration::from_secs(48 * 60);
/// Delay after a failure.
const PAUSE: ExponentialBackoff = ExponentialBackoff::doubling(Duration::from_millis(500), Duration::from_secs(30));

/// Token of one account, or the reason why it is missing. Clones share the token, which is never printed.
#[derive(Clone)]
pub struct ServiceAccountToken(Arc<ArcSwap<Result<HeaderValue, String>>>);

impl ServiceAccountToken {
    /// Keeps the token of ServiceAccount `account` valid until `shutdown` begins.
    pub fn keep_fresh(client: Client, account: &str, shutdown: &Shutdown) -> Self {
        let token = Self(Arc::new(ArcSwap::from_pointee(Err(format!(
            "the token of ServiceAccount {NAMESPACE}/{account} is not there yet"
        )))));
        let (shared, account, stop) = (token.clone(), account.to_owned(), shutdown.clone());
        shutdown.spawn(async move {
            stop.run_until_begun(shared.refresh(client, &account)).await;
        });
        token
    }

    /// Adds the token to the headers of a request. The error is the reason why the token is missing.
    pub(super) fn authorize(&self, headers: &mut HeaderMap) -> Result<(), String> {
        match self.0.load().as_ref() {
            Ok(header) => {
                headers.insert(AUTHORIZATION, header.clone());
                Ok(())
            }
            Err(problem) => Err(problem.clone()),
        }
    }

    async fn refresh(self, client: Client, account: &str) {
        let mut failures = 0;
        loop {
            match request_token(&client, account).await {
                Ok(header) => {
                    self.0.store(Arc::new(Ok(header)));
                    failures = 0;
                    tokio::time::sleep(REPLACED_AFTER).await;
                }
                Err(reason) => {
                    failures += 1;
                    let pause = PAUSE.delay(failures);
                    let problem = format!("no token for ServiceAccount {NAMESPACE}/{account}: {reason}");
                    tracing::warn!(problem, retry_in = ?pause, "--use-service-account-credentials");
                    // The previous token may still be valid.
                    if self.0.load().is_err() {
                        self.0.store(Arc::new(Err(problem)));
                    }
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }
}

async fn request_token(client: &Client, account: &str) -> Result<HeaderValue, String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    let found = accounts.get_opt(account).await.map_err(|error| error.to_string())?;
    if found.is_none() {
        let metadata = ObjectMeta { name: Some(account.to_owned()), ..ObjectMeta::default() };
        let created =
            accounts.create(&PostParams::default(), &ServiceAccount { metadata, ..ServiceAccount::default() }).await;
        // Another replica may have created the account first.
        if let Err(kube::Error::Api(status)) = &created
            && status.code != 409
        {
            return Err(status.message.clone());
        }
    }
    let spec = TokenRequestSpec { expiration_seconds: i64::try_from(LIFE.as_secs()).ok(), ..TokenRequestSpec::default() };
    let token_request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let response = accounts
        .create_token_request(account, &PostParams::default(), &token_request)
        .await
        .map_err(|error| error.to_string())?;
    let token = response.status.and_then(|status| status.token).ok_or("the response has no token")?;
    bearer_header(&token).ok_or_else(|| "the token is not a header value".to_owned())
}

#[cfg(all(test, feature = "sandbox"))]
mod tests {
    use super::*;
    use crate::{
        runtime::clock::Clock,
        sandbox::{api_server::ApiServer, http::Verb},
    };

    fn authorization(token: &ServiceAccountToken) -> Result<String, String> {
        let mut headers = HeaderMap::new();
        token.authorize(&mut headers).map(|()| String::from_utf8_lossy(headers[AUTHORIZATION].as_bytes()).into_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn the_account_is_made_and_its_token_replaced_before_it_ends() {
        let server = ApiServer::new(Clock::System);
        let requested_tokens = |server: &ApiServer| {
            let requests = server.requests();
            requests.iter().filter(|request| request.subresource == "token" && request.code == 201).count()
        };
        server.faults().fail_next(1, 503, |request| request.verb == Verb::Get);
        let shutdown = Shutdown::new();
        let token = ServiceAccountToken::keep_fresh(server.client(), "node-controller", &shutdown);
        assert!(authorization(&token).unwrap_err().contains("kube-system/node-controller"));

        server.wait_until(|server| requested_tokens(server) == 1).await;
        assert!(server.get::<ServiceAccount>(NAMESPACE, "node-controller").is_some());
        let first = authorization(&token);
        server.wait_until(|server| requested_tokens(server) == 2).await;
        // The response is stored shortly after the server has sent it.
        while authorization(&token).is_err() || authorization(&token) == first {
            tokio::task::yield_now().await;
        }
        assert!(authorization(&token).unwrap().starts_with("Bearer "));
        shutdown.begin();
        assert!(shutdown.drain(Duration::from_secs(1)).await);
    }
}
