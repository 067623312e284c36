//! Tests of reader and writer with the real client on the simulated cloud; requests are counted.
#![allow(clippy::unwrap_used, reason = "helpers of tests, outside of test functions")]

mod accepted;
mod named_reads;

use futures::future::join_all;
use serde_json::Value;

use super::*;
use crate::{
    providers::azure::{
        config::AzureConfig,
        load_balancer::observe::{CacheLifetimes, NetworkQuery},
        planner::load_balancer::{observed::ObservedNetwork, settings::LoadBalancerSettings},
        samples::arm_client,
    },
    runtime::clock::Clock,
    sandbox::azure::{AzureOptions, Effect, Fault, topology::Topology, world::World},
};

pub(super) struct Cloud {
    pub(super) world: World,
    pub(super) observer: Arc<NetworkObserver>,
    pub(super) writer: NetworkWriter,
    pub(super) settings: Arc<LoadBalancerSettings>,
}

pub(super) const URGENCY: Urgency = Urgency::Change;

pub(super) fn cloud() -> Cloud {
    let clock = Clock::manual(jiff::Timestamp::UNIX_EPOCH);
    let topology = Topology::new();
    let config = AzureConfig {
        subscription_id: topology.subscription.clone(),
        resource_group: topology.resource_group.clone(),
        vnet_name: topology.vnet.clone(),
        security_group_name: topology.security_group.clone(),
        location: "eastus".to_owned(),
        ..AzureConfig::default()
    };
    let world = World::new(topology, AzureOptions::immediate(), clock).unwrap();
    let settings = Arc::new(LoadBalancerSettings::new(&config, "kubernetes"));
    Cloud::of(arm_client(world.azure(), clock), world, settings, clock)
}

impl Cloud {
    fn of(client: ArmClient, world: World, settings: Arc<LoadBalancerSettings>, clock: Clock) -> Self {
        let (clients, lifetimes) = ((client.clone(), client), CacheLifetimes::from_config(&AzureConfig::default()));
        let observer = NetworkObserver::new(clients.clone(), Arc::clone(&settings), lifetimes, clock);
        Self { writer: NetworkWriter::new(Arc::clone(&observer), clients), world, observer, settings }
    }

    async fn look(&self) -> Arc<ObservedNetwork> {
        self.observer.observe(&NetworkQuery::default(), URGENCY).await.unwrap().0
    }

    /// Returns the requests to ARM since the last call: the method, and "list" or the kind.
    pub(super) fn requests(&self) -> Vec<String> {
        let requests = self.world.azure().requests();
        self.world.azure().clear_requests();
        let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        requests.iter().map(|request| format!("{} {}", request.method, name(&request.path))).collect()
    }

    pub(super) fn id(&self, kind: &str, name: &str) -> ResourceId {
        self.settings.group.resource(&format!("Microsoft.Network/{kind}"), &[name])
    }

    fn new_ip(&self, name: &str) -> PublicIpChange {
        let document = json!({"name": name, "location": "eastus", "sku": {"name": "Standard"},
            "properties": {"publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4"}});
        PublicIpChange {
            id: self.id("publicIPAddresses", name),
            document: serde_json::from_value(document).unwrap(),
            etag: None,
            reasons: Vec::new(),
            services: Vec::new(),
            causes: Vec::new(),
        }
    }

    /// Returns a change of the tags of an existing public IP, planned now.
    fn tagged(&self, name: &str, value: &str) -> PublicIpChange {
        let id = self.id("publicIPAddresses", name);
        let mut document = self.observer.document::<PublicIpAddress>(&id).unwrap();
        document.tags = Some([("k".to_owned(), Some(value.to_owned()))].into());
        PublicIpChange { etag: document.etag.clone(), document, ..self.new_ip(name) }
    }

    fn release(&self, name: &str) -> PublicIpRelease {
        let PublicIpChange { id, etag, reasons, services, .. } = self.tagged(name, "gone");
        PublicIpRelease { id, etag, reasons, services, is_notice: false }
    }

    fn lb(&self) -> ResourceId {
        self.id("loadBalancers", "kubernetes")
    }

    /// Returns the load balancer with these public IPs, on the cached version.
    fn balancer(&self, public_ips: &[&str]) -> ArmLoadBalancer {
        let frontend = |name: &&str| json!({"name": name, "properties": {"publicIPAddress": {"id": self.id("publicIPAddresses", name)}}});
        let frontends: Vec<Value> = public_ips.iter().map(frontend).collect();
        let properties = json!({"frontendIPConfigurations": frontends, "backendAddressPools": [{"name": "kubernetes"}]});
        let document = json!({"location": "eastus", "sku": {"name": "Standard"}, "properties": properties});
        let cached = self.observer.document::<ArmLoadBalancer>(&self.lb());
        ArmLoadBalancer { etag: cached.and_then(|cached| cached.etag), ..serde_json::from_value(document).unwrap() }
    }

    async fn put_ip(&self, change: PublicIpChange) -> ArmResult<()> {
        self.writer.put_public_ip(&change, false, URGENCY).await
    }

    async fn put_balancer(&self, public_ips: &[&str]) -> ArmResult<()> {
        self.writer.put_load_balancer(&self.lb(), &self.balancer(public_ips), URGENCY).await
    }

    /// Deletes the load balancer on the cached version.
    async fn delete_balancer(&self) -> ArmResult<()> {
        let planned = self.observer.document::<ArmLoadBalancer>(&self.lb()).unwrap_or_default();
        self.writer.delete_load_balancer(&self.lb(), &planned, URGENCY).await
    }

    /// Creates public IP `a` at load balancer `kubernetes`.
    async fn served() -> Self {
        let cloud = cloud();
        cloud.look().await;
        cloud.put_ip(cloud.new_ip("a")).await.unwrap();
        cloud.put_balancer(&["a"]).await.unwrap();
        cloud.requests();
        cloud
    }

    /// Changes a document as another writer.
    fn meddle(&self, id: &ResourceId) {
        assert!(self.world.azure().change_document(id.as_str(), |body| body["tags"] = json!({"by": "other"})));
    }

    /// Checks that the cache equals ARM's state, as a new process reads it.
    async fn check(&self) {
        let known = self.look().await;
        let (client, world) = (self.writer.client.clone(), self.world.clone());
        let started = Self::of(client, world, Arc::clone(&self.settings), Clock::System);
        let mut fresh = (*started.look().await).clone();
        // Etags that are known to be stale keep their old values.
        for (fresh, known) in fresh.public_ips.iter_mut().zip(&known.public_ips) {
            fresh.etag.clone_from(&known.etag);
        }
        assert_eq!(*known, fresh);
        self.requests();
    }
}

fn class<T>(outcome: ArmResult<T>) -> ArmErrorClass {
    outcome.map(|_| "success").unwrap_err().class
}

#[tokio::test(start_paused = true)]
async fn a_start_reads_each_thing_once_however_many_ask() {
    let cloud = cloud();
    let looks = (0..20).map(|_| cloud.look());
    let looks = join_all(looks).await;
    let mut requests = cloud.requests();
    requests.sort();
    assert_eq!(requests, ["GET loadBalancers", "GET nsg-test", "GET publicIPAddresses"]);
    assert!(looks.iter().all(|look| Arc::ptr_eq(look, &looks[0]) && look.security_group.is_some()));
    let need = NetworkQuery {
        public_ip_groups: [cloud.settings.group.clone(), ResourceId::group_of(cloud.settings.group.subscription(), "x")]
            .into(),
        subnets: ["Subnet-Nodes".to_owned(), "missing".to_owned()].into(),
        ..NetworkQuery::default()
    };
    let (seen, unread) = cloud.observer.observe(&need, URGENCY).await.unwrap();
    let mut requests = cloud.requests();
    requests.sort();
    assert_eq!(
        requests,
        ["GET missing", "GET publicIPAddresses", "GET subnet-nodes", "GET x"],
        "the group itself is asked for"
    );
    assert!(unread.len() == 1 && unread[0].group_missing, "{unread:?}");
    assert_eq!(seen.subnets.keys().collect::<Vec<_>>(), ["subnet-nodes"]);
    tokio::time::advance(std::time::Duration::from_secs(120)).await;
    cloud.look().await;
    assert_eq!(cloud.requests().len(), 3, "too old");
}

#[tokio::test(start_paused = true)]
async fn own_writes_cause_no_reads() {
    let cloud = Cloud::served().await;
    cloud.check().await;
    cloud.put_ip(cloud.new_ip("b")).await.unwrap();
    cloud.put_balancer(&["a", "b"]).await.unwrap();
    cloud.put_balancer(&["b"]).await.unwrap();
    let mut group = cloud.look().await.security_group.clone().unwrap();
    for _ in 0..2 {
        let id = cloud.settings.security_group.clone().unwrap();
        cloud.writer.put_security_group(&id, &group, URGENCY).await.unwrap();
        group = cloud.look().await.security_group.clone().unwrap();
    }
    assert_eq!(cloud.requests(), ["PUT b", "PUT kubernetes", "PUT kubernetes", "PUT nsg-test", "PUT nsg-test"]);
    cloud.check().await;
    cloud.writer.delete_public_ip(&cloud.release("a"), URGENCY).await.unwrap();
    assert_eq!(cloud.requests(), ["DELETE a"], "its etag has changed with our own load balancer, and nothing else");
    cloud.delete_balancer().await.unwrap();
    cloud.delete_balancer().await.unwrap();
    assert_eq!(cloud.requests(), ["DELETE kubernetes"], "what is gone is gone");
    cloud.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_public_ip_is_read_again_when_its_load_balancer_was_written() {
    let cloud = Cloud::served().await;
    let (one, two) = (cloud.tagged("a", "1"), cloud.tagged("a", "2"));
    let (first, second) = tokio::join!(cloud.put_ip(one), cloud.put_ip(two));
    first.unwrap();
    assert_eq!(class(second), ArmErrorClass::Conflict, "planned on a version that the first has replaced");
    assert_eq!(cloud.requests(), ["GET a", "PUT a"]);
    cloud.put_ip(cloud.tagged("a", "2")).await.unwrap();
    assert_eq!(cloud.requests(), ["PUT a"]);
    cloud.put_balancer(&["a"]).await.unwrap();
    cloud.meddle(&cloud.id("publicIPAddresses", "a"));
    assert_eq!(class(cloud.put_ip(cloud.tagged("a", "3")).await), ArmErrorClass::Conflict);
    assert_eq!(cloud.requests(), ["PUT kubernetes", "GET a"], "somebody else's change is not overwritten");
    cloud.put_ip(cloud.tagged("a", "3")).await.unwrap();
    assert_eq!(cloud.requests(), ["PUT a"], "what was read is known");
    assert_eq!(class(cloud.writer.delete_public_ip(&cloud.release("a"), URGENCY).await), ArmErrorClass::Conflict);
    assert_eq!(cloud.requests(), [""; 0], "the load balancer still uses it");
    cloud.check().await;
}

#[tokio::test(start_paused = true)]
async fn somebody_elses_change_is_a_conflict_and_read_again() {
    let cloud = Cloud::served().await;
    cloud.meddle(&cloud.lb());
    assert_eq!(class(cloud.put_balancer(&[]).await), ArmErrorClass::Conflict);
    assert_eq!(class(cloud.put_balancer(&[]).await), ArmErrorClass::Conflict);
    assert_eq!(cloud.requests(), ["PUT kubernetes"], "not a second time on what is in doubt");
    assert_eq!(class(cloud.delete_balancer().await), ArmErrorClass::Conflict);
    assert_eq!(cloud.requests(), ["GET kubernetes"]);
    let seen = cloud.look().await;
    assert!(seen.load_balancers[0].tags.is_some() && cloud.requests().is_empty());
    cloud.put_balancer(&["a"]).await.unwrap();
    cloud.check().await;
    cloud.meddle(&cloud.lb());
    assert_eq!(class(cloud.delete_balancer().await), ArmErrorClass::Conflict);
    assert_eq!(cloud.requests(), ["DELETE kubernetes"], "on the condition that it is as it was");
    cloud.look().await;
    assert_eq!(cloud.requests(), ["GET kubernetes"]);
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_has_got_more_since_it_was_planned_is_not_deleted() {
    let cloud = Cloud::served().await;
    let planned = cloud.observer.document::<ArmLoadBalancer>(&cloud.lb()).unwrap();
    cloud.meddle(&cloud.lb());
    tokio::time::advance(std::time::Duration::from_secs(120)).await;
    cloud.look().await;
    cloud.requests();
    let deleted = cloud.writer.delete_load_balancer(&cloud.lb(), &planned, URGENCY).await;
    assert_eq!(
        (class(deleted), cloud.requests()),
        (ArmErrorClass::Conflict, vec![]),
        "a look has shown another version since"
    );
    cloud.delete_balancer().await.unwrap();
    cloud.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_without_an_etag_is_read_by_itself_before_it_is_deleted() {
    for changed in [true, false] {
        let cloud = Cloud::served().await;
        let planned = ArmLoadBalancer { etag: None, ..cloud.observer.document::<ArmLoadBalancer>(&cloud.lb()).unwrap() };
        let what = NetworkCacheKey::LoadBalancer(cloud.lb());
        let written = NetworkWriteResult::LoadBalancer(cloud.lb(), Box::new(planned.clone()));
        cloud.observer.begin_write(what).end(Ok(written)).unwrap();
        if changed {
            cloud.meddle(&cloud.lb());
        }
        let deleted = cloud.writer.delete_load_balancer(&cloud.lb(), &planned, URGENCY).await;
        let there = cloud.world.azure().document(cloud.lb().as_str()).is_some();
        match changed {
            true => {
                assert_eq!((class(deleted), cloud.requests()), (ArmErrorClass::Conflict, vec!["GET kubernetes".to_owned()]))
            }
            false => assert_eq!((deleted.is_ok(), cloud.requests().len()), (true, 2)),
        }
        assert_eq!(there, changed);
    }
}

#[tokio::test(start_paused = true)]
async fn the_public_ip_of_who_had_one_is_read_by_itself_before_it_is_created() {
    for (had_address, requests) in [(false, vec!["PUT b"]), (true, vec!["GET b", "PUT b"])] {
        let cloud = Cloud::served().await;
        cloud.writer.put_public_ip(&cloud.new_ip("b"), had_address, URGENCY).await.unwrap();
        assert_eq!(cloud.requests(), requests);
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_nobody_waits_for_leaves_doubt() {
    let cloud = Cloud::served().await;
    cloud.world.azure().add_fault(Fault::new(Effect::Hang).method("PUT"));
    let given_up = tokio::time::timeout(std::time::Duration::from_secs(1), cloud.put_balancer(&[])).await;
    assert!(given_up.is_err());
    cloud.requests();
    cloud.look().await;
    assert_eq!(cloud.requests(), ["GET kubernetes"]);
}

#[tokio::test(start_paused = true)]
async fn a_pool_changes_its_load_balancer() {
    let cloud = Cloud::served().await;
    let pool = cloud.lb().child("backendAddressPools", "kubernetes");
    let address = json!({"name": "n", "properties": {"ipAddress": "10.224.0.9"}});
    let network = json!({"id": cloud.settings.virtual_network});
    let document = json!({"properties": {"virtualNetwork": network, "loadBalancerBackendAddresses": [address]}});
    let document: BackendAddressPool = serde_json::from_value(document).unwrap();
    cloud.writer.put_pool(&pool, &document, URGENCY).await.unwrap();
    let known = serde_json::to_string(&cloud.observer.cached().load_balancers).unwrap();
    assert!(known.contains("10.224.0.9"), "{known}");
    assert_eq!(class(cloud.put_balancer(&["a"]).await), ArmErrorClass::Conflict);
    assert_eq!(cloud.requests(), ["PUT kubernetes"], "the pool; the etag is an old one");
    cloud.look().await;
    assert_eq!(cloud.requests(), ["GET kubernetes"]);
    cloud.writer.put_pool(&pool, &document, URGENCY).await.unwrap();
    cloud.delete_balancer().await.unwrap();
    assert_eq!(cloud.requests(), ["PUT kubernetes", "GET kubernetes", "DELETE kubernetes"], "members do not matter");
    cloud.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_has_gone_meanwhile_is_not_brought_back() {
    let cloud = Cloud::served().await;
    let (id, pool) = (cloud.lb(), cloud.lb().child("backendAddressPools", "kubernetes"));
    let document: BackendAddressPool = serde_json::from_value(json!({"properties": {}})).unwrap();
    let mut without = cloud.balancer(&["a"]);
    without.properties_mut().backend_address_pools = Some(Vec::new());
    let (balancer, written) = tokio::join!(
        cloud.writer.put_load_balancer(&id, &without, URGENCY),
        cloud.writer.put_pool(&pool, &document, URGENCY)
    );
    balancer.unwrap();
    assert!(!written.unwrap());
    assert_eq!(cloud.requests(), ["PUT kubernetes"], "the load balancer");
    cloud.delete_balancer().await.unwrap();
    assert!(!cloud.writer.put_pool(&pool, &document, URGENCY).await.unwrap());
    assert_eq!(cloud.requests(), ["DELETE kubernetes"]);
}
