//! Order of the writes of one process.
//!
//! Each write is compared, when it is sent, with those of the same process that are in flight: from the request to the end of the
//! operation that it started. Other processes may write at any time; etags keep them apart. A write is no longer in flight when its
//! process cannot follow it: its response was lost or unreadable, a read (perhaps a poll) failed, or the deadline is near.
//!
//! The simulator refuses the rest by its documents, so this file does not check it again: a frontend whose public IP is missing or
//! still being created, a member of a missing pool, an address at two load balancers, and the deletion of a load balancer with
//! members, of a frontend with a private link service (also while that is written or deleted), and of a public IP with a frontend.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use cloud_controller_manager::{
    providers::azure::transport::ArmTransportError,
    sandbox::{
        api_server::ApiServer,
        azure::{Azure, entra::Principal},
    },
};
use http::{Request, Response, StatusCode};
use k8s_openapi::api::core::v1::Service;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::azure_services::{
    cluster::{Cluster, MINUTE},
    several::list,
    wire::{ObservedWrite, Witness},
};

/// Less than the 900 s after which the client abandons a write, because these include waits before the request.
const FOLLOWED_FOR: Duration = Duration::from_secs(840);

/// Name of a rule, and whether the first write breaks it because the second is in flight.
type Rule = (&'static str, fn(&Flight, &Flight) -> bool);

const RULES: [Rule; 3] = [
    ("two writes of a slot overlap", is_same_slot),
    ("members leave before their load balancer is deleted", deletes_load_balancer_of_member),
    ("security rules are removed before their public IP", precedes_removal_of_rules),
];

/// Writes of one process in flight, and violations so far. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriteOrder(Arc<Mutex<Ledger>>);

#[derive(Debug, Default)]
struct Ledger {
    in_flight: Vec<Flight>,
    sent: usize,
    /// Last accepted write of the security group.
    group: Option<ObservedWrite>,
    violations: Vec<String>,
}

#[derive(Debug)]
struct Flight {
    number: usize,
    write: ObservedWrite,
    /// A pool occupies the slot of its load balancer, any other document its own.
    slot: String,
    /// Document before the write. `Null`: there was none, or it is a part of a load balancer.
    before: Value,
    began: Instant,
    /// Operation in the simulator. `None`: the response is pending.
    operation: Option<String>,
}

/// Request without a response. If it is dropped like this, its process does not know its outcome.
pub(crate) struct PendingRequest<'a> {
    order: &'a WriteOrder,
    azure: &'a Azure,
    /// Number of the write. `None`: a read, or a write of something else.
    number: Option<usize>,
    is_usable: bool,
}

impl WriteOrder {
    /// Returns the violations so far.
    pub(crate) fn violations(&self) -> Vec<String> {
        self.0.lock().violations.clone()
    }

    /// Checks a request that is about to be sent.
    pub(crate) fn begin<'a>(&'a self, request: &Request<Bytes>, azure: &'a Azure, server: &ApiServer) -> PendingRequest<'a> {
        let number = Witness::write_of(request).map(|write| self.0.lock().begin(write, azure, server));
        PendingRequest { order: self, azure, number, is_usable: false }
    }
}

impl PendingRequest<'_> {
    /// Records the response.
    pub(crate) fn end(mut self, response: &Result<Response<Bytes>, ArmTransportError>) {
        self.is_usable = response.as_ref().is_ok_and(|response| {
            let is_absent = self.number.is_none() && response.status() == StatusCode::NOT_FOUND;
            let body = response.body();
            let is_readable = body.is_empty() || serde_json::from_slice::<Value>(body).is_ok();
            is_readable && (response.status().is_success() || is_absent)
        });
    }
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        let mut ledger = self.order.0.lock();
        match self.number {
            Some(number) => ledger.end(number, self.is_usable, self.azure),
            None if self.is_usable => {}
            // The failed read may have been a poll of any operation.
            None => ledger.in_flight.retain(|flight| flight.operation.is_none()),
        }
    }
}

impl Ledger {
    fn begin(&mut self, write: ObservedWrite, azure: &Azure, server: &ApiServer) -> usize {
        self.in_flight.retain(|flight| flight.is_running(azure));
        let next = Flight::new(self.sent, write, azure);
        for other in &self.in_flight {
            let broken = RULES.into_iter().filter(|(_, is_broken)| is_broken(&next, other));
            self.violations.extend(broken.map(|(rule, _)| format!("{rule}: {} during {}", next.write, other.write)));
        }
        let open = self.open_group(&next, azure, server);
        let open = open.map(|group| format!("security rules outlive their public IP: {} after {group}", next.write));
        self.violations.extend(open);
        self.in_flight.push(next);
        self.sent += 1;
        self.sent - 1
    }

    fn end(&mut self, number: usize, is_accepted: bool, azure: &Azure) {
        let Some(index) = self.in_flight.iter().position(|flight| flight.number == number) else { return };
        let mut flight = self.in_flight.remove(index);
        if !is_accepted {
            return;
        }
        if flight.is_of("networksecuritygroups") {
            self.group = Some(flight.write.clone());
        }
        // Operations on parts (subnets, connections) run on the document around them, which is another slot.
        flight.operation = azure.running_operation(&flight.slot);
        if flight.operation.is_some() {
            self.in_flight.push(flight);
        }
    }

    /// Returns the last write of the security group if it has rules for the address of a public IP that `next` deletes. Rules that
    /// another writer has changed do not count, nor those of an address that another Service mentions, or a Service that is not
    /// being deleted: its public IP may be recreated.
    fn open_group(&self, next: &Flight, azure: &Azure, server: &ApiServer) -> Option<&ObservedWrite> {
        let (address, group) = (next.released_address()?, self.group.as_ref()?);
        rules_to(&group.body, address).next()?;
        let current = azure.document(&group.target)?;
        let is_same =
            |a: &Value, b: &Value| a["name"] == b["name"] && a["properties"]["priority"] == b["properties"]["priority"];
        let is_open = rules_to(&current, address).any(|rule| rules_to(&group.body, address).any(|own| is_same(own, rule)));
        let services = server.list::<Service>();
        let mut users = services.iter().filter(|service| json!(service).to_string().contains(address));
        let is_deleting = users.next().is_some_and(|service| service.metadata.deletion_timestamp.is_some());
        (is_open && is_deleting && users.next().is_none()).then_some(group)
    }
}

impl Flight {
    fn new(number: usize, write: ObservedWrite, azure: &Azure) -> Self {
        let pool = write.target.split_once("/backendaddresspools/");
        let slot = pool.map_or(write.target.as_str(), |(load_balancer, _)| load_balancer).to_owned();
        let has_before = !slot.contains("/loadbalancers/");
        let before = has_before.then(|| azure.document(&write.target)).flatten().unwrap_or_default();
        Self { number, slot, before, began: Instant::now(), operation: None, write }
    }

    fn is_running(&self, azure: &Azure) -> bool {
        let is_current = |operation: &String| azure.running_operation(&self.slot).as_ref() == Some(operation);
        let is_followed = self.began.elapsed() < FOLLOWED_FOR;
        self.operation.as_ref().is_none_or(|operation| is_followed && is_current(operation))
    }

    /// Returns `true` if the write is of a document of this type, in lower case.
    fn is_of(&self, kind: &str) -> bool {
        self.write.target.rsplit('/').nth(1) == Some(kind)
    }

    /// Returns the address of the public IP that the write deletes.
    fn released_address(&self) -> Option<&str> {
        let is_release = self.write.method == "DELETE" && self.is_of("publicipaddresses");
        self.before["properties"]["ipAddress"].as_str().filter(|_| is_release)
    }
}

/// Returns the rules of this program to an address.
fn rules_to<'a>(group: &'a Value, address: &'a str) -> impl Iterator<Item = &'a Value> {
    list(&group["properties"]["securityRules"]).iter().filter(move |rule| {
        let properties = &rule["properties"];
        let prefixes = list(&properties["destinationAddressPrefixes"]).iter();
        let mut prefixes = prefixes.chain([&properties["destinationAddressPrefix"]]);
        let is_managed = rule["name"].as_str().is_some_and(|name| name.starts_with("k8s-azure-lb"));
        is_managed && prefixes.any(|prefix| prefix.as_str() == Some(address))
    })
}

fn is_same_slot(next: &Flight, other: &Flight) -> bool {
    next.slot == other.slot
}

fn deletes_load_balancer_of_member(next: &Flight, other: &Flight) -> bool {
    let is_deletion = next.write.method == "DELETE" && next.is_of("loadbalancers");
    let is_member = other.write.target.contains("/microsoft.compute/") || other.is_of("networkinterfaces");
    let pools = format!("{}/backendaddresspools/", next.write.target);
    is_deletion && is_member && other.before.to_string().to_ascii_lowercase().contains(&pools)
}

fn precedes_removal_of_rules(next: &Flight, other: &Flight) -> bool {
    let Some(address) = next.released_address() else { return false };
    let has_rules = |group: &Value| rules_to(group, address).next().is_some();
    other.is_of("networksecuritygroups") && has_rules(&other.before) && !has_rules(&other.write.body)
}

#[tokio::test(start_paused = true)]
async fn writes_of_a_slot_overlap_until_the_operation_ends() {
    let cluster = Cluster::with_two_nodes();
    let (azure, topology, order) = (cluster.azure(), cluster.cloud.topology(), WriteOrder::default());
    let id = topology.group_id().resource("Microsoft.Network/publicIPAddresses", &["address"]);
    let document = json!({
        "location": topology.location, "sku": {"name": "Standard", "tier": "Regional"},
        "properties": {"publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4"},
    });
    let (principal, endpoints) = (Principal::new(&topology.tenant, "somebody"), cluster.cloud.endpoints());
    let (token, _) =
        cluster.cloud.with_directory(|directory| directory.issue(&principal, &endpoints.audience, cluster.now()));
    let uri = format!("{}{id}?api-version=2024-05-01", endpoints.resource_manager.trim_end_matches('/'));
    let request = Request::put(uri).header("authorization", format!("Bearer {token}"));
    let request = request.body(Bytes::from(document.to_string())).unwrap();
    let violations = || {
        drop(order.begin(&request, azure, &cluster.server));
        order.violations().len()
    };
    let pending = order.begin(&request, azure, &cluster.server);
    assert_eq!(violations(), 1, "the first request is pending");
    let response = azure.respond(request.clone()).await;
    pending.end(&response);
    assert!(response.as_ref().is_ok_and(|response| response.status().is_success()), "{response:?}");
    assert_eq!(violations(), 2, "its operation runs");
    tokio::time::sleep(MINUTE).await;
    assert_eq!(violations(), 2, "its operation has ended");
}
