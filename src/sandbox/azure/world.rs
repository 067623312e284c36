//! A whole simulated cloud: ARM with the documents of a [`Topology`], token endpoints and metadata services; and its events.
//!
//! ```text
//! event ─► Estate (machines) ─► Changes ─► Azure (documents)        pure but for the last step
//! ```
//!
//! In: a topology, then events, each one call on the [`World`]. Out: documents that change consistently, and the Nodes and
//! `azure.json` that fit them.

mod change;
mod endpoints;
mod estate;
mod start;

use std::{net::IpAddr, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

pub use change::{Change, Edit};
pub use estate::{Estate, Happened, NoSuch};
pub use start::{Serving, Start, StartError, start_world};

use super::{
    Azure, AzureOptions, Store,
    entra::{Credential, Directory, Principal, TokenState},
    imds::{Imds, ManagedIdentity},
    topology::{Endpoints, Login, Machine, Power, Reach, Topology},
};
use crate::runtime::clock::Clock;

/// Client ID of the principal that every world has.
pub const CLIENT_ID: &str = "00000000-0000-0000-0000-0000000000c1";
/// Secret of this principal.
pub const CLIENT_SECRET: &str = "sandbox-secret";

/// A simulated cloud. Clones share their state.
#[derive(Clone)]
pub struct World {
    azure: Azure,
    shared: Arc<Shared>,
}

/// State that the endpoints other than ARM share. Without the simulator, because that owns them.
struct Shared {
    clock: Clock,
    estate: Mutex<Estate>,
    directory: Mutex<Directory>,
    endpoints: Mutex<Endpoints>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

impl World {
    /// Creates the cluster in its initial state, reached in process only. Token lifetimes are measured on `clock`.
    pub fn new(topology: Topology, options: AzureOptions, clock: Clock) -> Result<Self, StartError> {
        topology.check().map_err(StartError::Topology)?;
        let azure = Azure::new(start::options_for(&topology, options));
        azure.load(topology.documents(&topology.machines())).map_err(|error| StartError::Topology(error.to_string()))?;
        let mut directory = Directory::default();
        directory.add_credential(&topology.tenant, CLIENT_ID, Credential::Secret(CLIENT_SECRET.to_owned()));
        let (estate, directory) = (Mutex::new(Estate::new(topology)), Mutex::new(directory));
        let shared = Shared { clock, estate, directory, endpoints: Mutex::default() };
        let fixture = Self { azure, shared: Arc::new(shared) };
        fixture.connect();
        Ok(fixture)
    }

    fn connect(&self) {
        self.azure.add_endpoint(Arc::new(endpoints::Login(Arc::clone(&self.shared))));
        self.azure.add_endpoint(Arc::new(endpoints::CloudMetadata(Arc::clone(&self.shared))));
        let shared = Arc::clone(&self.shared);
        self.azure.check_tokens(Arc::new(move |token| shared.token_problem(token)));
        let shared = Arc::clone(&self.shared);
        self.azure.know_owners(Arc::new(move |token| shared.token_owner(token)));
    }

    /// Returns the simulator: documents, faults, latencies, quotas, request log, transport.
    pub fn azure(&self) -> &Azure {
        &self.azure
    }

    /// Runs `work` on tenants, principals and tokens.
    pub fn with_directory<T>(&self, work: impl FnOnce(&mut Directory) -> T) -> T {
        self.shared.with_directory(work)
    }

    /// Returns the addresses of the cloud.
    pub fn endpoints(&self) -> Endpoints {
        self.shared.endpoints()
    }

    /// Returns the cluster, with its current pools.
    pub fn topology(&self) -> Topology {
        self.shared.topology()
    }

    /// Returns the machine of a node.
    pub fn machine(&self, node: &str) -> Result<Machine, NoSuch> {
        self.shared.machine(node)
    }

    /// Returns all machines, by node name.
    pub fn machines(&self) -> Vec<Machine> {
        locked(&self.shared.estate).machines().map(|(_, machine)| machine.clone()).collect()
    }

    /// Returns the Nodes of all machines as their kubelets register them.
    pub fn uninitialized_nodes(&self) -> Vec<Node> {
        let topology = self.topology();
        self.machines().iter().map(|machine| topology.uninitialized_node(machine)).collect()
    }

    /// Returns the Nodes of all machines as a provider leaves them.
    pub fn nodes(&self) -> Vec<Node> {
        let topology = self.topology();
        self.machines().iter().map(|machine| topology.node(machine)).collect()
    }

    /// Returns the Node of one machine as its kubelet registers it.
    pub fn uninitialized_node(&self, node: &str) -> Result<Node, NoSuch> {
        Ok(self.topology().uninitialized_node(&self.machine(node)?))
    }

    /// Returns `azure.json` for this world, with the principal that every world has.
    ///
    /// The cloud is the public one in process, and `resourceManagerEndpoint` when it is served.
    pub fn config(&self) -> Value {
        self.config_with(&Login::Secret(CLIENT_ID.to_owned(), CLIENT_SECRET.to_owned()))
    }

    /// Returns `azure.json` with another login.
    pub fn config_with(&self, login: &Login) -> Value {
        let endpoints = self.endpoints();
        let reach = if endpoints == Endpoints::public() {
            Reach::Public
        } else {
            Reach::MetadataEndpoint(endpoints.resource_manager)
        };
        self.topology().config(&reach, login)
    }
}

impl Shared {
    fn with_directory<T>(&self, work: impl FnOnce(&mut Directory) -> T) -> T {
        work(&mut locked(&self.directory))
    }

    fn endpoints(&self) -> Endpoints {
        locked(&self.endpoints).clone()
    }

    fn now(&self) -> Timestamp {
        self.clock.wall()
    }

    fn topology(&self) -> Topology {
        locked(&self.estate).topology().clone()
    }

    fn machine(&self, node: &str) -> Result<Machine, NoSuch> {
        locked(&self.estate).machine(node).cloned()
    }

    fn token_problem(&self, token: &str) -> Option<String> {
        let (endpoints, public) = (self.endpoints(), Endpoints::public());
        let audiences =
            [&endpoints, &public].map(|audience_of| [audience_of.audience.as_str(), audience_of.resource_manager.as_str()]);
        self.with_directory(|directory| directory.problem(token, audiences.as_flattened(), self.now()))
    }
}

impl Shared {
    fn token_owner(&self, token: &str) -> Option<String> {
        match self.with_directory(|directory| directory.token(token, self.now())) {
            TokenState::Valid(token) | TokenState::Expired(token) => Some(token.object_id),
            TokenState::Unknown => None,
        }
    }
}

/// Metadata services.
impl World {
    /// Returns the metadata service of the machine of `node`, alone on a simulator of its own with its own faults and log.
    pub fn machine_metadata(&self, node: &str, identities: Vec<ManagedIdentity>) -> Result<Azure, NoSuch> {
        let metadata = self.metadata_endpoint(node, identities)?;
        let azure = Azure::new(AzureOptions { subscriptions: Vec::new(), ..AzureOptions::immediate() });
        azure.add_endpoint(Arc::new(metadata));
        Ok(azure)
    }

    /// Adds a container registry, reached under its host name.
    pub fn add_registry(&self, host: &str) {
        self.azure().add_endpoint(Arc::new(endpoints::ContainerRegistry(Arc::clone(&self.shared), host.to_owned())));
    }

    /// Adds the cluster's exchange of service account tokens for those of the applications in the cluster's tenant, under a
    /// host name.
    pub fn add_identity_binding(&self, host: &str) {
        self.azure().add_endpoint(Arc::new(endpoints::IdentityBinding(Arc::clone(&self.shared), host.to_owned())));
    }

    /// Serves the metadata of the machine of `node` next to ARM, as if the client ran on it.
    pub fn run_on(&self, node: &str, identities: Vec<ManagedIdentity>) -> Result<(), NoSuch> {
        let metadata = self.metadata_endpoint(node, identities)?;
        self.azure().add_endpoint(Arc::new(metadata));
        Ok(())
    }

    fn metadata_endpoint(&self, node: &str, identities: Vec<ManagedIdentity>) -> Result<endpoints::MachineMetadata, NoSuch> {
        self.machine(node)?;
        let imds = Imds { identities, identity_header: CLIENT_SECRET.to_owned() };
        Ok(endpoints::MachineMetadata { shared: Arc::clone(&self.shared), node: node.to_owned(), imds })
    }

    /// Returns a managed identity in the cluster's tenant. `resource_name`: of a user-assigned one; `None`: the machine's
    /// own.
    pub fn managed_identity(&self, client_id: &str, resource_name: Option<&str>) -> ManagedIdentity {
        let topology = self.topology();
        let resource_id = resource_name.map(|name| {
            topology.group_id().resource("Microsoft.ManagedIdentity/userAssignedIdentities", &[name]).to_string()
        });
        ManagedIdentity { principal: Principal::new(&topology.tenant, client_id), resource_id }
    }
}

impl World {
    fn happen<T>(&self, event: impl FnOnce(&mut Estate) -> Happened<T>) -> Result<T, NoSuch> {
        let mut estate = locked(&self.shared.estate);
        let (outcome, changes) = event(&mut estate)?;
        self.azure().with_store(|store| changes.into_iter().for_each(|change| apply(store, change)));
        Ok(outcome)
    }

    /// Adds `count` machines to a pool. Returns the names of their nodes.
    pub fn scale_out(&self, pool: &str, count: u32) -> Result<Vec<String>, NoSuch> {
        self.happen(|estate| estate.scale_out(pool, count))
    }

    /// Removes `count` machines from a pool, those of the highest numbers. Returns the names of their nodes.
    pub fn scale_in(&self, pool: &str, count: u32) -> Result<Vec<String>, NoSuch> {
        self.happen(|estate| estate.scale_in(pool, count))
    }

    /// Deletes a machine with its network interface and public IPs.
    pub fn delete_machine(&self, node: &str) -> Result<(), NoSuch> {
        self.happen(|estate| estate.delete(node))
    }

    /// Deletes a machine and recreates it under the same name, with another `vmId`.
    pub fn recreate_machine(&self, node: &str) -> Result<(), NoSuch> {
        self.happen(|estate| estate.recreate(node))
    }

    /// Sets a machine's power state.
    pub fn set_power(&self, node: &str, power: Power) -> Result<(), NoSuch> {
        self.happen(|estate| estate.power(node, power))
    }

    /// Sets a machine's private address of the family of `address` to `address`.
    pub fn move_address(&self, node: &str, address: IpAddr) -> Result<(), NoSuch> {
        self.happen(|estate| estate.readdress(node, address))
    }

    /// Deletes a pool with all its machines, and its scale set or availability set. Returns the names of their nodes.
    pub fn delete_pool(&self, pool: &str) -> Result<Vec<String>, NoSuch> {
        self.happen(|estate| estate.delete_set(pool))
    }

    /// Forbids all principals an action (`Microsoft.Compute/*/read`) or, if it begins with a slash, everything at and below
    /// IDs that contain it.
    ///
    /// `*` in an action matches any text. [`Azure::allow_all`] reverts it.
    pub fn forbid(&self, pattern: &str) {
        if pattern.starts_with('/') { self.azure().deny("*", pattern) } else { self.azure().deny(pattern, "") }
    }
}

fn apply(store: &mut Store, change: Change) {
    match change {
        Change::Put(document) => {
            if let Err(error) = store.put_document(document) {
                tracing::error!(%error, "a document of the simulated cloud has no id");
            }
        }
        Change::Remove(id) => {
            store.delete_document(id.as_str());
        }
        // The document may have been deleted through ARM.
        Change::Edit(id, edit) => {
            store.change_document(id.as_str(), |document| edit.apply(document));
        }
    }
}
