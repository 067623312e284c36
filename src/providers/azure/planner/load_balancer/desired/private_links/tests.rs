use serde_json::{Value, json};

use super::super::{
    load_balancers::{PublicIpAssignment, plan_load_balancers},
    samples::*,
};
use super::*;
use std::sync::Arc;

mod heirs;

use crate::providers::azure::{
    config::BackendPoolType,
    model::network::{ArmLoadBalancer, PrivateLinkService},
    planner::load_balancer::{
        desired::{
            ServiceRequest,
            load_balancers::{LoadBalancerPlan, LoadBalancerWrite},
        },
        observed::ObservedNetwork,
        settings::LoadBalancerSettings,
        spec::{PerFamily, PrivateLinkSpec, ServiceSpec},
    },
};

/// Observed state, requests, and Services that are not planned.
#[derive(Clone)]
struct Scene {
    observed: ObservedNetwork,
    requests: Vec<ServiceRequest>,
    others: Vec<Arc<ServiceSpec>>,
    settings: LoadBalancerSettings,
}

/// Returns an internal Service that requests a private link service with the options that `change` sets.
fn linked(name: &str, change: impl FnOnce(&mut PrivateLinkSpec)) -> ServiceSpec {
    let mut link = plain_private_link(settings().private_link_group);
    change(&mut link);
    ServiceSpec { private_link: Some(link), ..internal(name) }
}

const OTHER_SUBSCRIPTIONS: &str = "other subscriptions see it or are let in unasked";

fn plain(name: &str) -> ServiceSpec {
    linked(name, |_| {})
}

fn at(address: &str, spec: ServiceSpec) -> ServiceSpec {
    let name = spec.identity.key.clone();
    // Services that share a frontend must have different ports.
    let offset = i32::from(name.bytes().last().unwrap_or_default());
    let ports = spec.ports.iter().map(|port| crate::providers::azure::planner::load_balancer::spec::PortSpec {
        port: port.port + offset,
        ..port.clone()
    });
    ServiceSpec { ports: ports.collect(), pinned: PerFamily { v4: address.parse().ok(), v6: None }, ..spec }
}

impl Scene {
    fn new(requests: &[ServiceSpec]) -> Self {
        let mut there = observed(Vec::new());
        there.private_links.groups.insert(settings().private_link_group);
        let requests = requests.iter().map(ensure).collect();
        Self { observed: there, requests, others: Vec::new(), settings: settings() }
    }

    /// Returns the state after all requests of these Services were applied.
    fn settled(specs: &[ServiceSpec]) -> Self {
        let mut scene = Self::new(specs);
        scene.write();
        scene
    }

    fn asking(&self, specs: &[ServiceSpec]) -> Self {
        Self { requests: specs.iter().map(ensure).collect(), ..self.clone() }
    }

    fn asked(&self, requests: &[ServiceRequest]) -> Self {
        Self { requests: requests.to_vec(), ..self.clone() }
    }

    fn beside(&self, others: &[ServiceSpec]) -> Self {
        Self { others: others.iter().cloned().map(Arc::new).collect(), ..self.clone() }
    }

    fn load_balancers(&self) -> LoadBalancerPlan {
        let none = PublicIpAssignment::new();
        plan_load_balancers(&self.observed, &self.requests, &self.others, &none, &self.settings)
    }

    fn plan(&self) -> (PrivateLinkPlan, PrivateLinkRefusals) {
        let load_balancers = self.load_balancers();
        plan_private_links(&PrivateLinkInput {
            observed: &self.observed,
            requests: &self.requests,
            others: &self.others,
            load_balancers: &load_balancers,
            settings: &self.settings,
        })
    }

    /// Returns the plan, and asserts that no Service is refused.
    fn granted(&self) -> PrivateLinkPlan {
        let (plan, refused) = self.plan();
        assert_eq!(refused, PrivateLinkRefusals::new());
        plan
    }

    /// Returns the refusals: for each Service the field and the message.
    fn refused(&self) -> Vec<String> {
        let refused = self.plan().1;
        refused.iter().map(|(who, refusal)| format!("{}: {refusal}", who.key)).collect()
    }

    /// Applies the plan to the observed state.
    fn write(&mut self) {
        let (plan, load_balancers) = (self.granted(), self.load_balancers());
        for gone in &plan.deletions {
            self.observed.private_links.services.retain(|link| !link.is(&gone.id));
        }
        for change in &load_balancers.changes {
            self.observed.load_balancers.retain(|known| !known.is(&change.id));
            if let LoadBalancerWrite::Put(document) = &change.write {
                let id = Some(change.id.as_str().to_owned());
                self.observed.load_balancers.push(ArmLoadBalancer { id, ..document.as_ref().clone() });
            }
        }
        for change in &plan.subnets {
            let subnet = self.observed.subnets.get_mut(change.id.name()).unwrap();
            let properties = subnet.properties.as_mut().unwrap();
            properties.private_link_service_network_policies = Some("Disabled".to_owned());
        }
        for change in plan.writes {
            let services = &mut self.observed.private_links.services;
            services.retain(|link| !link.is(&change.id));
            let id = Some(change.id.as_str().to_owned());
            let mut document = PrivateLinkService { id, etag: Some("1".to_owned()), ..change.document };
            document.properties.get_or_insert_default().provisioning_state = None;
            services.push(document);
        }
    }

    fn link(&mut self) -> &mut PrivateLinkService {
        &mut self.observed.private_links.services[0]
    }

    fn properties(&self) -> Value {
        serde_json::to_value(&self.observed.private_links.services[0].properties).unwrap()
    }
}

fn set(link: &mut PrivateLinkService, change: impl FnOnce(&mut Value)) {
    let mut document = serde_json::to_value(&*link).unwrap();
    change(&mut document);
    *link = serde_json::from_value(document).unwrap();
}

#[test]
fn whatever_differs_is_changed_in_place() {
    let all = |link: &mut PrivateLinkSpec| {
        link.address_count = 3;
        link.addresses = vec!["10.0.0.9".parse().unwrap(), "10.0.0.7".parse().unwrap()];
        link.fqdns = vec!["a".into(), "b".into()];
        link.proxy_protocol = true;
        link.visibility = vec!["s1".into()];
        link.auto_approval = vec!["s1".into()];
    };
    let mut scene = Scene::settled(&[linked("web", all)]);
    let names: Vec<_> =
        scene.properties()["ipConfigurations"].as_array().unwrap().iter().map(|it| it["name"].clone()).collect();
    let ends = names.iter().map(|name| name.as_str().unwrap().rsplit("0-").next().unwrap().to_owned());
    assert_eq!(ends.collect::<Vec<_>>(), ["static-10.0.0.9", "static-10.0.0.7", "dynamic-0"]);
    let (addresses, failed) = ("other addresses: 3 in subnet nodes", "write it again, since its last change failed");
    for (change, reason) in [
        (|document: &mut Value| document["properties"]["fqdns"] = json!(["B", "a"]), None),
        (|document| document["properties"]["fqdns"] = json!(["a"]), Some("other DNS names")),
        (|document| document["properties"]["enableProxyProtocol"] = json!(false), Some("switch the proxy header on")),
        (|document| document["properties"]["visibility"]["subscriptions"] = json!([]), Some(OTHER_SUBSCRIPTIONS)),
        (|document| document["properties"]["autoApproval"]["subscriptions"] = json!(["s2"]), Some(OTHER_SUBSCRIPTIONS)),
        (|document| drop(document["properties"]["ipConfigurations"].as_array_mut().unwrap().pop()), Some(addresses)),
        (
            |document| {
                document["properties"]["ipConfigurations"][0]["properties"]["primary"] = json!(false);
                document["properties"]["ipConfigurations"][1]["properties"]["primary"] = json!(true);
            },
            Some(addresses),
        ),
        (
            |document| {
                // Azure chose this address.
                document["properties"]["ipConfigurations"][2]["name"] = json!("other");
                document["properties"]["ipConfigurations"][2]["properties"]["privateIPAddress"] = json!("10.0.0.44");
            },
            None,
        ),
        (|document| document["properties"]["provisioningState"] = json!("Failed"), Some(failed)),
        (
            |document| {
                document["tags"] = json!({"K8S-azure-cluster-name": "Kubernetes", "k8s-azure-owner-service": "Default/web"})
            },
            None,
        ),
        (|document| document["properties"]["accessMode"] = json!("Restricted"), None),
    ] as [(fn(&mut Value), Option<&str>); 11]
    {
        let before = scene.link().clone();
        set(scene.link(), change);
        let reasons: Vec<_> = scene.granted().writes.into_iter().flat_map(|change| change.reasons).collect();
        assert_eq!(reasons, reason.into_iter().collect::<Vec<_>>());
        scene.write();
        assert!(scene.granted().is_empty());
        *scene.link() = before;
    }
}

#[test]
fn what_nobody_models_goes_back_as_it_came() {
    let mut scene = Scene::settled(&[plain("web")]);
    set(scene.link(), |document| document["properties"]["destinationIPAddress"] = json!("10.9.9.9"));
    let scene = scene.asking(&[linked("web", |link| link.fqdns = vec!["a".into()])]);
    let change = &scene.granted().writes[0];
    let sent = serde_json::to_value(&change.document).unwrap();
    assert_eq!((&sent["properties"]["destinationIPAddress"], &sent["etag"]), (&json!("10.9.9.9"), &json!("1")));
}

#[test]
fn the_name_and_the_group_cannot_change() {
    let named = |name: &str| linked("web", |link| link.name = Some(name.into()));
    let scene = Scene::settled(&[named("Mine")]);
    assert!(scene.asking(&[named("mINE")]).granted().is_empty());
    assert!(scene.asking(&[plain("web")]).granted().is_empty(), "its name stays");
    assert!(scene.asking(&[named("other")]).refused()[0].contains("is called Mine, not other"));
    let elsewhere = |names_group| {
        linked("web", |link| (link.group, link.names_group) = (ResourceId::group_of("SUB", "other"), names_group))
    };
    assert!(scene.asking(&[elsewhere(true)]).refused()[0].contains("is in resource group RG"));
    assert!(scene.asking(&[elsewhere(false)]).granted().is_empty(), "the configuration moves nothing");
}

#[test]
fn services_that_share_a_front_end_share_it() {
    let (a, b) = (at("10.0.0.9", plain("a")), at("10.0.0.9", plain("b")));
    let picky = |spec: &ServiceSpec| {
        let mut spec = spec.clone();
        let link = spec.private_link.as_mut().unwrap();
        (link.fqdns, link.owners_only) = (vec!["x".into()], vec!["azure-pls-fqdns"]);
        spec
    };
    let both = Scene::settled(&[a.clone(), b.clone()]);
    assert_eq!(owner(&both.observed.private_links.services[0]), Some("default/a"), "created at once: the first by name");
    assert_eq!(both.observed.private_links.services.len(), 1);
    let guest = both.asking(&[picky(&b)]).beside(std::slice::from_ref(&a));
    let message = "default/b: azure-pls-fqdns: the private link service of this front end belongs to Service default/a";
    assert!(guest.refused()[0].starts_with(message));
    let of_owner = both.asking(&[picky(&a), b.clone()]);
    assert_eq!(of_owner.granted().writes[0].reasons, ["other DNS names"]);
    let change = &Scene::new(&[picky(&a), b.clone()]).granted().writes[0];
    let fqdns = &change.document.properties.as_ref().unwrap().fqdns;
    assert_eq!(*fqdns, Some(vec!["x".to_owned()]), "who says how it shall be");
    assert_eq!(change.services.len(), 2, "both wait for it");
    assert!(Scene::new(&[a.clone(), picky(&b)]).refused()[0].starts_with("default/b: azure-pls-fqdns"), "a guest");
    assert_eq!(Scene::new(&[picky(&a), picky(&b)]).refused().len(), 1, "only one may");
}

/// The private link service would publish all ports of the owner.
#[test]
fn a_guest_adds_no_private_link_service_to_the_frontend_of_another() {
    let owner = ServiceSpec { private_link: None, ..at("10.0.0.9", plain("a")) };
    let guest = at("10.0.0.9", plain("b"));
    let scene = Scene::settled(std::slice::from_ref(&owner));
    for scene in [
        scene.asking(std::slice::from_ref(&guest)).beside(std::slice::from_ref(&owner)),
        scene.asking(&[owner.clone(), guest.clone()]),
    ] {
        let refused = scene.refused();
        assert!(refused.len() == 1 && refused[0].contains("belongs to Service default/a"), "{refused:?}");
    }
    let shared = scene.asking(&[at("10.0.0.9", plain("a")), guest]);
    assert_eq!(shared.granted().writes.len(), 1, "the owner adds it for both");
}

#[test]
fn one_of_somebody_else_is_left_alone() {
    for tags in [json!({}), json!({"k8s-azure-cluster-name": "other", "k8s-azure-owner-service": "default/web"})] {
        let mut scene = Scene::settled(&[plain("web")]);
        set(scene.link(), |document| document["tags"] = tags.clone());
        assert!(scene.refused()[0].contains("made, leads to the front end: delete it first"), "{:?}", scene.refused());
        let gone = scene.asked(&[remove(&internal("web"))]);
        assert!(gone.granted().deletions.is_empty());
        let plan = gone.load_balancers();
        let retained = &plan.services[&internal("web").identity].as_ref().unwrap().retained_frontends;
        assert!(retained.len() == 1 && retained[0].uses[0].kind == "private link service", "{retained:?}");
        let moved = scene.asking(&[ServiceSpec { subnet: Some("apps".into()), ..internal("web") }]);
        let refusal = &moved.plan().1[&internal("web").identity];
        assert!(refusal.message.contains("cannot be removed") && refusal.message.contains("leads to it"), "{refusal}");
        assert!(scene.asking(&[internal("web")]).granted().is_empty(), "nobody asks for it");
    }
}

#[test]
fn it_goes_before_its_front_end_does() {
    let scene = Scene::settled(&[plain("web"), plain("other")]);
    let other = ServiceSpec { subnet: Some("apps".into()), ..plain("web") };
    let pinned = pinned("10.0.0.77", plain("web"));
    let external = ServiceSpec { internal: false, floating_ip: false, ..plain("web") };
    for request in [remove(&internal("web")), ensure(&other), ensure(&pinned)] {
        let asked = scene.asked(std::slice::from_ref(&request)).beside(&[plain("other")]);
        let plan = asked.granted();
        assert_eq!(plan.deletions.len(), 1, "{request:?}");
        assert_eq!(plan.deletions[0].services, [internal("web").identity]);
        let comes_back = matches!(request, ServiceRequest::Ensure(_));
        assert_eq!(plan.writes.len(), usize::from(comes_back), "and is made anew at the new one");
        assert!(plan.writes.iter().all(|change| change.document.etag.is_none()), "as a new one");
    }
    let flipped = scene.asking(&[external]);
    assert_eq!(flipped.plan().0.deletions.len(), 0, "without a public IP nothing moves");
}

#[test]
fn connections_are_told_before_they_are_cut() {
    let mut scene = Scene::settled(&[plain("web")]);
    let connection =
        |status: &str| json!({"name": status, "properties": {"privateLinkServiceConnectionState": {"status": status}}});
    let list = json!([connection("Approved"), connection("Pending"), connection("approved")]);
    set(scene.link(), |document| document["properties"]["privateEndpointConnections"] = list);
    let plan = scene.asked(&[remove(&internal("web"))]).granted();
    assert_eq!(plan.deletions[0].approved_connections(), 2);
    assert_eq!(plan.deletions[0].reasons[1], "private endpoint connections that are deleted with it: 3, approved: 2");
}

#[test]
fn a_name_is_taken_once() {
    let named = |service: &str| linked(service, |link| link.name = Some("mine".into()));
    assert!(Scene::new(&[named("a"), named("b")]).refused()[0].starts_with("default/b: service.beta"));
    let mut orphan = Scene::settled(&[named("a")]).asking(&[named("b")]);
    orphan.observed.load_balancers.clear();
    let plan = orphan.granted();
    assert_eq!((plan.deletions.len(), plan.writes.len()), (1, 1), "its front end is gone");
    set(orphan.link(), |document| document["tags"]["k8s-azure-cluster-name"] = json!("other"));
    assert_eq!(orphan.refused().len(), 1);
}

#[test]
fn a_load_balancer_has_room_for_eight() {
    let many: Vec<ServiceSpec> = (0..9).map(|place| plain(&format!("s{place}"))).collect();
    let refused = Scene::new(&many).refused();
    let expected = "more than 8 private link services (maximumPrivateLinkServiceCount)";
    assert!(refused.len() == 1 && refused[0].contains(expected), "{refused:?}");
    let mut roomy = Scene::new(&many);
    roomy.settings.private_links_per_load_balancer = 9;
    assert_eq!(roomy.granted().writes.len(), 9);
    let full = Scene::settled(&many[..8]);
    let swap = full.asked(&[remove(&many[0]), ensure(&many[8])]).beside(&many[1..8]);
    assert_eq!(swap.granted().writes.len(), 1, "one goes");
}

#[test]
fn addresses_have_to_be_in_the_subnet_and_the_subnet_in_the_network() {
    let subnet = |name: &str| linked("web", |link| link.subnet = Some(("azure-pls-ip-configuration-subnet", name.into())));
    assert!(Scene::new(&[subnet("none")]).refused()[0].contains("virtual network vnet has no subnet none"));
    assert_eq!(Scene::new(&[subnet("APPS")]).granted().subnets[0].id.name(), "apps");
    let fixed = linked("web", |link| link.addresses = vec!["10.0.1.7".parse().unwrap()]);
    assert!(Scene::new(&[fixed]).refused()[0].contains("10.0.1.7 is not in subnet nodes"));
}

#[test]
fn long_names_are_cut() {
    let subnet = "s".repeat(80);
    let spec = ServiceSpec { subnet: Some(subnet.clone()), ..plain("web") };
    let mut scene = Scene::new(std::slice::from_ref(&spec));
    let mut document = scene.observed.subnets["nodes"].clone();
    (document.name, document.id) = (Some(subnet.clone()), Some(network(&format!("virtualNetworks/vnet/subnets/{subnet}"))));
    scene.observed.subnets.insert(subnet.clone(), document);
    scene.requests = vec![ensure(&linked("web", |link| link.subnet = Some(("x", subnet))))];
    let change = &scene.granted().writes[0];
    let properties = change.document.properties.as_ref().unwrap();
    let name = properties.ip_configurations.as_ref().unwrap()[0].name.clone().unwrap();
    assert!(name.len() == 80 && name.ends_with("-dynamic-0"), "{name}");
    assert!(change.id.name().len() <= 80);
}

#[test]
fn a_front_end_of_a_former_load_balancer_stays_while_one_of_somebody_else_leads_to_it() {
    let former = LoadBalancerSettings { load_balancer_name: "old".into(), pool_type: BackendPoolType::NodeIp, ..settings() };
    let mut scene = Scene { settings: former, ..Scene::new(&[plain("web")]) };
    scene.write();
    scene.settings.load_balancer_name = String::new();
    let asking = |scene: &Scene, specs: &[ServiceSpec]| scene.asking(specs).beside(&[plain("web")]);
    let touches_old = |scene: &Scene| scene.load_balancers().changes.iter().any(|change| change.id.name() == "old-internal");
    let unasked = asking(&scene, &[internal("api")]);
    assert!(unasked.granted().deletions.is_empty() && !touches_old(&unasked), "its Service does not ask");
    let own = asking(&scene, &[internal("api"), plain("web")]).granted();
    assert_eq!(own.deletions[0].services, [internal("web").identity]);
    set(scene.link(), |document| document["tags"] = json!({}));
    let foreign = asking(&scene, &[internal("api")]);
    assert!(foreign.granted().deletions.is_empty() && !touches_old(&foreign));
    let refused = asking(&scene, &[internal("api"), internal("web")]).refused();
    assert!(refused.len() == 1 && refused[0].starts_with("default/web"), "{refused:?}");
}
