//! Webhook server of a manager, and the CA bundles that it writes into webhook configurations.
//!
//! In: the configuration, the provider's webhooks. Out: a listening port and a health check, or the reason why the process
//! must not start. If the program creates its own certificate, its authority is written into the webhook configurations that
//! `--webhook-configurations` names. Every replica has an authority of its own, and the bundles contain all of them; so
//! every replica writes, leading or not.

mod authorities;

use std::{sync::Arc, time::Duration};

use super::start_error::{ManagerStartError, StartResult};
use crate::{
    cloud_provider::AdmissionWebhook,
    metrics::Metrics,
    runtime::{clock::Clock, shutdown::Shutdown, watch},
    serving::{self, ServedWebhooks, WebhookServingConfig},
};

/// Interval between checks of the webhook configurations.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// Delay after a failed check.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Problem of a running webhook port, if it has one.
pub(super) struct RunningWebhooks(watch::Receiver<Option<String>>);

impl RunningWebhooks {
    /// Checks for `/readyz` whether all configurations were written once. A later failure does not count, because it would take
    /// every replica out of service.
    pub(super) fn check(&self) -> Result<(), String> {
        self.0.borrow().clone().map_or(Ok(()), Err)
    }
}

/// Serves the selected webhooks. Returns `None` if no webhook is selected.
///
/// # Errors
///
/// The flags name an unknown webhook, or the port is not available.
pub(super) async fn start(
    config: &WebhookServingConfig,
    available: Vec<Arc<dyn AdmissionWebhook>>,
    client: kube::Client,
    (metrics, clock): (&Arc<Metrics>, Clock),
    background: &Shutdown,
) -> StartResult<Option<RunningWebhooks>> {
    let names: Vec<&str> = available.iter().map(|webhook| webhook.name()).collect();
    let chosen = choose(&config.names, &names).map_err(ManagerStartError::Webhooks)?;
    let chosen: Vec<_> = available.into_iter().filter(|webhook| chosen.contains(&webhook.name())).collect();
    if chosen.is_empty() {
        return Ok(None);
    }
    let served = serving::serve_webhooks(config, chosen, Arc::clone(metrics), clock, background).await?;
    let (problem_tx, problem) = watch::channel(None);
    if !config.configurations.is_empty() {
        background.spawn(keep_trusted(served, config.clone(), client, clock, problem_tx, background.clone()));
    }
    Ok(Some(RunningWebhooks(problem)))
}

/// Returns the selected names: `*` selects all, `name` one, and `-name` excludes one. An unknown name is an error.
fn choose(selectors: &[String], names: &[&'static str]) -> Result<Vec<&'static str>, String> {
    let words = || selectors.iter().map(|word| word.trim()).filter(|word| !word.is_empty());
    let is_available = |word: &str| word == "*" || names.contains(&word.strip_prefix('-').unwrap_or(word));
    if let Some(unmatched) = words().find(|word| !is_available(word)) {
        let names = if names.is_empty() { "this provider has none".to_owned() } else { names.join(", ") };
        return Err(format!("--webhooks: unknown webhook {unmatched:?}; expected one of: {names}"));
    }
    let all = words().any(|word| word == "*");
    let is_chosen = |name: &&str| {
        let named = words().any(|word| word == *name);
        named || (all && !words().any(|word| word.strip_prefix('-') == Some(*name)))
    };
    Ok(names.iter().filter(|name| is_chosen(name)).copied().collect())
}

/// Writes the authority into the configurations that lack it, until `stop` begins. It is renewed, and other writers replace
/// configurations.
async fn keep_trusted(
    served: ServedWebhooks,
    config: WebhookServingConfig,
    client: kube::Client,
    clock: Clock,
    problem: watch::Sender<Option<String>>,
    stop: Shutdown,
) {
    let (mut has_succeeded, mut last) = (false, None);
    loop {
        let written = match served.own_authority() {
            Some(authority) => authorities::write_all(&client, &config, &authority, clock.wall()).await,
            None => Ok(()),
        };
        let pause = if written.is_ok() { CHECK_INTERVAL } else { RETRY_DELAY };
        has_succeeded |= written.is_ok();
        let new = written.err();
        if let Some(reason) = new.as_ref().filter(|_| last != new) {
            tracing::warn!(reason, "cannot write the authority of the webhooks' certificate; retrying");
        }
        last = new;
        problem.send_replace(last.clone().filter(|_| !has_succeeded));
        tokio::select! {
            biased;
            () = stop.begun() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    use super::*;
    use crate::{
        cloud_provider::{AdmissionAnswer, AdmissionRequest},
        serving::{SecureServingConfig, WebhookServiceName},
    };

    struct NoOpinion;

    #[async_trait::async_trait]
    impl AdmissionWebhook for NoOpinion {
        fn name(&self) -> &'static str {
            "no-opinion"
        }
        fn path(&self) -> &'static str {
            "/"
        }
        async fn review(&self, _: &AdmissionRequest) -> Result<AdmissionAnswer, String> {
            Ok(AdmissionAnswer::allowed())
        }
    }

    /// Returns a client of an API server that either forbids all requests or has no objects.
    fn api_server(forbids: &Arc<AtomicBool>) -> kube::Client {
        let forbids = Arc::clone(forbids);
        let respond = move |_: http::Request<kube::client::Body>| {
            let (code, reason): (u16, _) = if forbids.load(SeqCst) { (403, "Forbidden") } else { (404, "NotFound") };
            let status =
                serde_json::json!({"kind": "Status", "status": "Failure", "message": "", "reason": reason, "code": code});
            let body = http_body_util::Full::new(bytes::Bytes::from(status.to_string()));
            std::future::ready(Ok::<_, std::convert::Infallible>(http::Response::builder().status(code).body(body).unwrap()))
        };
        kube::Client::new(tower::service_fn(respond), "default")
    }

    #[tokio::test(start_paused = true)]
    async fn failures_after_the_first_success_keep_readyz() {
        let secure = SecureServingConfig { bind_address: [127, 0, 0, 1].into(), port: 0, ..SecureServingConfig::default() };
        let service = WebhookServiceName { namespace: "ns".to_owned(), name: "hooks".to_owned() };
        let (names, configurations) = (vec!["*".to_owned()], vec!["a".to_owned()]);
        let config = WebhookServingConfig { names, secure, service, configurations };
        let (forbids, background) = (Arc::new(AtomicBool::new(true)), Shutdown::new());
        let metrics = Arc::new(Metrics::new().unwrap());
        let hooks: Vec<Arc<dyn AdmissionWebhook>> = vec![Arc::new(NoOpinion)];
        let started = start(&config, hooks, api_server(&forbids), (&metrics, Clock::System), &background).await;
        let mut running = started.unwrap().unwrap();
        running.0.changed().await.unwrap();
        assert!(running.check().unwrap_err().contains("validating/a"));
        for forbidden in [false, true] {
            forbids.store(forbidden, SeqCst);
            running.0.changed().await.unwrap();
            assert_eq!(running.check(), Ok(()), "forbidden: {forbidden}");
        }
        background.begin();
    }

    #[test]
    fn webhooks_are_selected_like_controllers() {
        let names = ["a", "b"];
        for (selectors, selected) in [
            (&[][..], &[][..]),
            (&[""], &[]),
            (&["*"], &["a", "b"]),
            (&["b"], &["b"]),
            (&["a", "b"], &["a", "b"]),
            (&["a", "-b"], &["a"]),
            (&["*", "-b"], &["a"]),
            (&["-b", "*"], &["a"]),
            (&["-b"], &[]),
            (&["b", "-b"], &["b"]),
        ] {
            let selectors: Vec<String> = selectors.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(choose(&selectors, &names).unwrap(), selected, "{selectors:?}");
        }
        for selector in ["c", "-c", "**"] {
            assert!(choose(&[selector.to_owned()], &names).unwrap_err().contains("expected one of: a, b"), "{selector}");
        }
        assert!(choose(&["a".to_owned()], &[]).unwrap_err().contains("this provider has none"));
        assert_eq!(choose(&["*".to_owned()], &[]).unwrap(), [""; 0]);
    }
}
