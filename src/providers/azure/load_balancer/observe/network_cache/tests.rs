use serde_json::{Value, json};

use super::{
    record::{ListedRead, NetworkReadResult},
    write_back::NetworkWriteResult,
    *,
};
use crate::providers::azure::{
    model::{
        ArmErrorClass,
        network::{ArmLoadBalancer, PublicIpAddress},
    },
    samples::arm_error,
};

const NET: &str = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network";

fn listed(documents: impl ListedRead + 'static) -> NetworkReadResult {
    NetworkReadResult::Listed(Box::new(documents))
}

struct Known {
    knowledge: NetworkCache,
    now: Instant,
    need: NetworkQuery,
}

fn id(text: &str) -> ResourceId {
    ResourceId::parse(&format!("{NET}/{text}")).unwrap()
}

fn group(name: &str) -> ResourceId {
    ResourceId::group_of("s", name)
}

fn lb(name: &str) -> NetworkCacheKey {
    NetworkCacheKey::LoadBalancer(id(&format!("loadBalancers/{name}")))
}

fn balancer(name: &str, etag: &str) -> ArmLoadBalancer {
    serde_json::from_value(json!({"id": id(&format!("loadBalancers/{name}")), "etag": etag})).unwrap()
}

/// Returns load balancer `a` with frontend `f` on this public IP.
fn attached(public_ip: &str) -> ArmLoadBalancer {
    let frontends = json!({"frontendIPConfigurations": [{"id": id("loadBalancers/a/frontendIPConfigurations/f"),
        "properties": {"publicIPAddress": {"id": id(&format!("publicIPAddresses/{public_ip}"))}}}]});
    ArmLoadBalancer { properties: Some(serde_json::from_value(frontends).unwrap()), ..balancer("a", "2") }
}

fn public_ip(name: &str, etag: &str, user: &Value) -> PublicIpAddress {
    let id = id(&format!("publicIPAddresses/{name}"));
    serde_json::from_value(json!({"id": id, "etag": etag, "properties": {"ipConfiguration": user}})).unwrap()
}

impl Known {
    /// Returns a cache right after all reads: load balancer `a`, public IP `p`.
    fn new() -> Self {
        let ttl = Duration::from_secs(120);
        let lifetimes =
            CacheLifetimes { load_balancers: ttl, public_ips: ttl, private_links: ttl, security_group: ttl, subnets: ttl };
        let knowledge = NetworkCache::new(group("rg"), Some(id("networkSecurityGroups/n")), lifetimes);
        let mut known = Self { knowledge, now: Instant::now(), need: NetworkQuery::default() };
        known.list_balancers(vec![balancer("a", "1")]);
        known.list_public_ips(vec![public_ip("p", "1", &Value::Null)]);
        known.read(NetworkCacheKey::SecurityGroup, NetworkReadResult::SecurityGroup(Some(Box::default())));
        known
    }

    fn read(&mut self, what: NetworkCacheKey, answer: NetworkReadResult) {
        let since = self.knowledge.begin_read();
        self.ended(what, since, answer);
    }

    fn list_balancers(&mut self, balancers: Vec<ArmLoadBalancer>) {
        self.read(NetworkCacheKey::LoadBalancers, listed(balancers));
    }

    fn list_public_ips(&mut self, public_ips: Vec<PublicIpAddress>) {
        self.read(NetworkCacheKey::PublicIps(group("rg")), listed(public_ips));
    }

    fn ended(&mut self, what: NetworkCacheKey, since: CacheSequence, answer: NetworkReadResult) {
        self.knowledge.record(what, since, self.now, answer);
        self.knowledge.end_read(since);
    }

    fn due(&mut self) -> Vec<NetworkCacheKey> {
        let asked = self.knowledge.next_sequence();
        self.knowledge.due(&self.need, asked, self.now)
    }

    fn write(&mut self, written: NetworkWriteResult) {
        let since = self.knowledge.next_sequence();
        self.knowledge.write_back(written, since, self.now);
    }

    fn balancers(&self) -> Vec<ArmLoadBalancer> {
        self.knowledge.observed().load_balancers.clone()
    }
}

#[tokio::test]
async fn what_is_old_missing_or_doubted_is_due() {
    let mut known = Known::new();
    assert_eq!(known.due(), []);
    known.need.public_ip_groups.insert(group("other"));
    known.need.subnets.insert("Apps".to_owned());
    assert_eq!(known.due(), [NetworkCacheKey::PublicIps(group("other")), NetworkCacheKey::Subnet("apps".to_owned())]);
    known.read(NetworkCacheKey::PublicIps(group("other")), listed(Vec::<PublicIpAddress>::new()));
    known.read(NetworkCacheKey::Subnet("apps".to_owned()), NetworkReadResult::Subnet(None));
    assert_eq!(known.due(), []);
    known.now += ABSENCE_LIFETIME;
    assert_eq!(known.due(), [NetworkCacheKey::Subnet("apps".to_owned())], "it may be created any moment");
    known.read(NetworkCacheKey::Subnet("apps".to_owned()), NetworkReadResult::Subnet(Some(Box::default())));
    known.knowledge.invalidate(NetworkCacheKey::Subnet("APPS".to_owned()));
    assert_eq!(known.due(), [NetworkCacheKey::Subnet("apps".to_owned())]);
    known.now += Duration::from_secs(120);
    assert_eq!(known.due().len(), 5, "all are too old");
}

#[tokio::test]
async fn few_doubtful_documents_are_read_one_by_one() {
    let mut known = Known::new();
    for (number, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
        assert_eq!(known.due().len(), number);
        known.knowledge.invalidate(lb(name));
    }
    assert_eq!(known.due(), [NetworkCacheKey::LoadBalancers]);
    known.list_balancers(vec![balancer("a", "2")]);
    assert_eq!(known.due(), [], "the list is newer than the doubts");
}

#[tokio::test]
async fn a_doubt_raised_during_a_read_remains() {
    let mut known = Known::new();
    for (what, answer) in [
        (lb("a"), listed(Some(Box::new(balancer("a", "2"))))),
        (NetworkCacheKey::LoadBalancers, listed(vec![balancer("a", "2")])),
    ] {
        let since = known.knowledge.begin_read();
        known.knowledge.invalidate(lb("a"));
        known.ended(what, since, answer);
        assert_eq!(known.due(), [lb("a")]);
    }
    known.read(lb("a"), listed(None::<Box<ArmLoadBalancer>>));
    assert_eq!((known.due(), known.balancers()), (vec![], vec![]), "it is gone");
}

#[tokio::test]
async fn a_read_does_not_undo_a_write_that_it_has_not_seen() {
    let mut known = Known::new();
    let written =
        |name: &str| NetworkWriteResult::LoadBalancer(id(&format!("loadBalancers/{name}")), Box::new(balancer(name, "2")));
    let (list, single) = (known.knowledge.begin_read(), known.knowledge.begin_read());
    known.write(written("a"));
    known.write(written("b"));
    known.write(NetworkWriteResult::LoadBalancerDeleted(id("loadBalancers/c")));
    known.ended(lb("a"), single, listed(Some(Box::new(balancer("a", "1")))));
    known.ended(NetworkCacheKey::LoadBalancers, list, listed(vec![balancer("c", "1"), balancer("a", "1")]));
    assert_eq!(known.balancers(), [balancer("a", "2"), balancer("b", "2")]);
    assert!(known.knowledge.order.updated.is_empty(), "no read is under way that could be too old");
    known.list_balancers(vec![balancer("a", "3")]);
    assert_eq!(known.balancers(), [balancer("a", "3"), balancer("b", "2")]);
    assert_eq!(known.due(), [lb("b")], "the list alone does not say that it is gone");
}

/// Defect A2: because of one empty list, the shared load balancer was created again.
#[tokio::test]
async fn an_accepted_load_balancer_has_an_outdated_etag_until_it_is_read_or_written() {
    let mut known = Known::new();
    let accepted = || NetworkWriteResult::LoadBalancerAccepted(id("loadBalancers/a"), Box::new(balancer("a", "2")));
    let is_outdated = |known: &Known| known.knowledge.cached_version(&lb("a"), Instant::now()).etag_stale;
    let list = || listed(vec![balancer("a", "3")]);
    let early = known.knowledge.begin_read();
    known.write(accepted());
    known.ended(NetworkCacheKey::LoadBalancers, early, list());
    assert!(is_outdated(&known), "the list is older than the write");
    known.read(NetworkCacheKey::LoadBalancers, list());
    assert!(!is_outdated(&known));
    known.write(accepted());
    known.read(lb("a"), listed(Some(Box::new(balancer("a", "3")))));
    assert!(!is_outdated(&known));
    known.write(accepted());
    known.write(NetworkWriteResult::LoadBalancer(id("loadBalancers/a"), Box::new(balancer("a", "4"))));
    assert!(!is_outdated(&known));
}

#[tokio::test]
async fn what_a_list_lacks_is_read_by_itself_however_much_it_is() {
    let mut known = Known::new();
    let names = ["a", "b", "c", "d", "e"];
    let all = || names.map(|name| balancer(name, "1")).to_vec();
    known.list_balancers(all());
    for part in [vec![], all()[..1].to_vec()] {
        let lacking: BTreeSet<String> = names[part.len()..].iter().map(|name| format!("{:?}", lb(name))).collect();
        known.list_balancers(part);
        let due: BTreeSet<String> = known.due().iter().map(|what| format!("{what:?}")).collect();
        assert_eq!((due, known.balancers().len()), (lacking, names.len()));
        assert!(known.knowledge.cached_version(&lb("e"), known.now).invalidated, "nothing is written meanwhile");
    }
    known.read(lb("b"), listed(None::<Box<ArmLoadBalancer>>));
    known.read(lb("c"), listed(Some(Box::new(balancer("c", "2")))));
    assert_eq!((known.due().len(), known.balancers().len()), (2, 4));
    known.list_balancers(all());
    assert_eq!((known.due(), known.balancers()), (vec![], all()), "it was listed again");
}

#[tokio::test]
async fn what_may_be_there_is_read_by_itself_when_no_list_has_it() {
    let mut known = Known::new();
    let p = |name: &str| id(&format!("publicIPAddresses/{name}"));
    known.need.expected = [lb("a"), lb("x"), NetworkCacheKey::PublicIp(p("y"))].into();
    assert_eq!(known.due(), [lb("x"), NetworkCacheKey::PublicIp(p("y"))]);
    known.read(lb("x"), listed(None::<Box<ArmLoadBalancer>>));
    known.write(NetworkWriteResult::PublicIpDeleted(p("y")));
    assert_eq!(known.due(), [], "one read, or our own deletion, is enough for a while");
    assert!(known.knowledge.cached_version(&lb("x"), known.now).absent);
    known.now += ABSENCE_LIFETIME;
    assert_eq!(known.due(), [lb("x"), NetworkCacheKey::PublicIp(p("y"))]);
    known.write(NetworkWriteResult::LoadBalancer(id("loadBalancers/x"), Box::new(balancer("x", "1"))));
    known.read(NetworkCacheKey::PublicIp(p("y")), listed(Some(Box::new(public_ip("y", "1", &Value::Null)))));
    assert_eq!(known.due(), []);
}

#[tokio::test]
async fn a_public_ip_that_a_front_end_refers_to_exists() {
    let mut known = Known::new();
    known.list_balancers(vec![attached("hidden")]);
    assert_eq!(known.due(), [NetworkCacheKey::PublicIp(id("publicIPAddresses/hidden"))]);
}

#[tokio::test]
async fn a_group_that_does_not_exist_has_nothing_in_it() {
    let mut known = Known::new();
    known.list_public_ips(vec![]);
    assert_eq!(known.knowledge.observed().public_ips.len(), 1, "on the word of a list");
    let error = arm_error(ArmErrorClass::ParentNotFound, "ResourceGroupNotFound", "");
    known.read(NetworkCacheKey::PublicIps(group("rg")), NetworkReadResult::GroupMissing(Box::new(error)));
    assert_eq!((known.knowledge.observed().public_ips.len(), known.due()), (0, vec![]));
}

#[tokio::test]
async fn a_load_balancer_makes_the_etags_of_its_public_ips_stale() {
    let mut known = Known::new();
    let p = NetworkCacheKey::PublicIp(id("publicIPAddresses/p"));
    let frontend = id("loadBalancers/a/frontendIPConfigurations/f");
    let writing_p = known.knowledge.next_sequence();
    known.write(NetworkWriteResult::LoadBalancer(id("loadBalancers/a"), Box::new(attached("p"))));
    let stale = CachedVersion { etag: Some(Some("1".to_owned())), etag_stale: true, ..CachedVersion::default() };
    assert_eq!(known.knowledge.cached_version(&p, known.now), stale);
    assert_eq!(known.due(), [], "a stale etag alone is no reason to read");

    // Response to a write that was sent earlier.
    let answer = NetworkWriteResult::PublicIp(id("publicIPAddresses/p"), Box::new(public_ip("p", "0", &Value::Null)));
    known.knowledge.write_back(answer, writing_p, known.now);
    assert!(known.knowledge.cached_version(&p, known.now).etag_stale);
    let user = |known: &Known| known.knowledge.observed().public_ips[0].properties.clone().unwrap().ip_configuration;
    assert!(user(&known).unwrap().refers_to(&frontend));

    known.read(p.clone(), listed(Some(Box::new(public_ip("p", "3", &json!({"id": frontend}))))));
    assert_eq!(
        known.knowledge.cached_version(&p, known.now),
        CachedVersion { etag: Some(Some("3".to_owned())), ..CachedVersion::default() }
    );
    known.write(NetworkWriteResult::LoadBalancerDeleted(id("loadBalancers/a")));
    assert!(known.knowledge.cached_version(&p, known.now).etag_stale && user(&known).is_none());
    known.list_public_ips(vec![public_ip("p", "4", &Value::Null)]);
    assert!(!known.knowledge.cached_version(&p, known.now).etag_stale);
}

#[tokio::test]
async fn a_private_link_service_invalidates_its_load_balancer() {
    let mut known = Known::new();
    let (link, frontend) = (id("privateLinkServices/l"), id("loadBalancers/a/frontendIPConfigurations/f"));
    let properties = json!({"loadBalancerFrontendIpConfigurations": [{"id": frontend}]});
    let document = serde_json::from_value(json!({"id": link, "properties": properties})).unwrap();
    known.write(NetworkWriteResult::PrivateLink(link.clone(), Box::new(document)));
    assert_eq!(known.due(), [lb("a")]);
    known.read(lb("a"), listed(Some(Box::new(balancer("a", "2")))));
    known.write(NetworkWriteResult::PrivateLinkDeleted(link));
    assert_eq!(known.due(), [lb("a")]);
}

#[tokio::test]
async fn the_snapshot_stays_the_same_while_nothing_changes() {
    let mut known = Known::new();
    let before = known.knowledge.observed();
    known.list_balancers(vec![balancer("a", "1")]);
    known.list_public_ips(vec![public_ip("p", "1", &Value::Null)]);
    known.read(NetworkCacheKey::SecurityGroup, NetworkReadResult::SecurityGroup(Some(Box::default())));
    let set_zones = |known: &mut Known, zones: &[String]| {
        known.knowledge.update(|seen| seen.zones == zones, |seen| seen.zones = zones.to_vec());
    };
    set_zones(&mut known, &[]);
    assert!(Arc::ptr_eq(&before, &known.knowledge.observed()));
    set_zones(&mut known, &["1".to_owned()]);
    assert_eq!((known.knowledge.observed().zones.len(), before.zones.len()), (1, 0));
}

#[tokio::test]
async fn what_nobody_needs_is_forgotten_when_it_is_old_or_doubted() {
    for doubted in [false, true] {
        let mut known = Known::new();
        let mut elsewhere = public_ip("x", "1", &Value::Null);
        let of_other = group("other").resource("Microsoft.Network/publicIPAddresses", &["x"]);
        elsewhere.id = Some(of_other.to_string());
        known.read(NetworkCacheKey::PublicIps(group("other")), listed(vec![elsewhere]));
        let look = |known: &mut Known| {
            let asked = known.knowledge.next_sequence();
            known.knowledge.evict(&known.need, asked, known.now, |_| false);
            known.knowledge.observed().public_ips.len()
        };
        assert_eq!(look(&mut known), 2, "it is still good");
        if doubted {
            known.knowledge.invalidate(NetworkCacheKey::PublicIp(of_other))
        } else {
            known.now += Duration::from_secs(120)
        }
        assert_eq!(look(&mut known), 1);
        known.need.public_ip_groups.insert(group("other"));
        assert!(known.due().contains(&NetworkCacheKey::PublicIps(group("other"))));
    }
}
