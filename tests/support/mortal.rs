//! Clients of one replica, which can end at any of its requests or when the test ends it.
//!
//! In: an API server, a name for the replica's user agents, a [`Life`]. Out: clients whose requests never reach the server after that end.
//! The replica itself continues, as with a broken network.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use cloud_controller_manager::{
    app::manager::ClientSource, runtime::leader_election::Leadership, sandbox::api_server::ApiServer,
};
use kube::client::Body;
use parking_lot::Mutex;

/// Effect of the request at which a replica ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastRequest {
    /// It never reaches the server.
    Lost,
    /// It takes effect at once.
    Served,
    /// It takes effect after this time.
    Late(Duration),
}

/// State of a replica: whether it has ended, and the number of its requests.
#[derive(Clone, Default)]
pub(crate) struct Life(Arc<LifeState>);

#[derive(Default)]
struct LifeState {
    dead: AtomicBool,
    sent: AtomicUsize,
    end: Mutex<Option<(usize, LastRequest)>>,
}

impl Life {
    /// Creates a life that ends at the request with this number, counted from 1.
    pub(crate) fn until(nth: usize, last: LastRequest) -> Self {
        let life = Self::default();
        *life.0.end.lock() = Some((nth, last));
        life
    }

    /// Ends the replica: no later request reaches the server. Requests that have reached it continue.
    pub(crate) fn end(&self) {
        self.0.dead.store(true, SeqCst);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.dead.load(SeqCst)
    }

    /// Returns the number of requests until the end.
    pub(crate) fn sent(&self) -> usize {
        self.0.sent.load(SeqCst)
    }

    /// Counts the next request. Returns its effect if it is the last one or later; `None`: it is an ordinary request.
    fn next(&self) -> Option<LastRequest> {
        if self.is_over() {
            return Some(LastRequest::Lost);
        }
        let number = self.0.sent.fetch_add(1, SeqCst) + 1;
        let last = self.0.end.lock().filter(|(nth, _)| *nth == number).map(|(_, last)| last)?;
        self.end();
        Some(last)
    }
}

/// Observer of the requests that reach the server.
pub(crate) type Witness = Arc<dyn Fn(&http::Request<Body>) + Send + Sync>;

pub(crate) struct MortalClients {
    server: ApiServer,
    name: String,
    life: Life,
    witness: Option<Witness>,
    leaderships: Mutex<BTreeMap<String, Leadership>>,
}

impl MortalClients {
    /// Creates the clients of a replica. `name`: prefix of their user agents.
    pub(crate) fn new(server: &ApiServer, name: &str, life: &Life, witness: Option<Witness>) -> Self {
        let (server, name, life) = (server.clone(), name.to_owned(), life.clone());
        Self { server, name, life, witness, leaderships: Mutex::default() }
    }

    /// Returns the leadership under which an account writes; `None`: it has requested no client.
    #[allow(dead_code, reason = "node-ipam runs under one lease")]
    pub(crate) fn leadership_of(&self, account: &str) -> Option<Leadership> {
        self.leaderships.lock().get(account).cloned()
    }
}

impl ClientSource for MortalClients {
    fn component(&self, component: &str) -> Result<kube::Client, kube::Error> {
        let client = self.server.client_with_deadlines_as(&format!("{}/{component}", self.name));
        let (life, witness) = (self.life.clone(), self.witness.clone());
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (client, life, witness) = (client.clone(), life.clone(), witness.clone());
            async move {
                let last = life.next();
                match last {
                    Some(LastRequest::Lost) => return std::future::pending().await,
                    Some(LastRequest::Late(time)) => tokio::time::sleep(time).await,
                    Some(LastRequest::Served) | None => {}
                }
                if let Some(see) = witness.filter(|_| last.is_none()) {
                    see(&request);
                }
                let response = client.send(request).await.map_err(std::io::Error::other);
                if last.is_some() {
                    return std::future::pending().await;
                }
                response
            }
        });
        Ok(kube::Client::new(service, "default"))
    }

    fn controller(&self, account: &str, leadership: &Leadership) -> Result<kube::Client, kube::Error> {
        self.leaderships.lock().insert(account.to_owned(), leadership.clone());
        self.component(account)
    }

    fn watches(&self) -> Result<kube::Client, kube::Error> {
        self.component("shared-informers")
    }
}
