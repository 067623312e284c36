//! What is told of rights and plans is what is done.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use cloud_controller_manager::{
    providers::azure::{
        check::{RequiredPermission, required_permissions},
        load_balancer::lease::plan::{NAME, NAMESPACE},
    },
    sandbox::azure::{
        AzureOptions, Class, RequestRecord,
        topology::{PoolKind, Topology},
    },
};
use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::Node,
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use serde_json::json;

use crate::azure_services::{
    cluster::{Cluster, Life, MINUTE, alone, is_ready},
    services::{annotate, dual_stack, external, internal, with},
};

/// The action that ARM asks the right for.
fn action(request: &RequestRecord) -> String {
    let verb = match request.method.as_str() {
        "GET" => "read",
        "PUT" => "write",
        "DELETE" => "delete",
        _ => "action",
    };
    let kind = match request.resource_type.as_str() {
        "" => "microsoft.resources/subscriptions/providers",
        kind => kind,
    };
    format!("{kind}/{verb}")
}

fn covers(need: &RequiredPermission, request: &RequestRecord) -> bool {
    let path = request.path.to_lowercase();
    path.starts_with(&format!("{}/", need.scope).to_lowercase()) && need.action.eq_ignore_ascii_case(&action(request))
}

#[test]
fn every_request_is_one_that_check_config_asks_for() {
    let kinds = [PoolKind::Uniform, PoolKind::Flexible, PoolKind::AvailabilitySet];
    let cases = kinds.map(|kind| (kind, "nodeIPConfiguration")).into_iter().chain([(PoolKind::Uniform, "nodeIP")]);
    for (kind, pools) in cases {
        alone(async {
            let topology = Topology::new().dual_stack().pools(kind, 1, 2);
            let (cluster, life) = Cluster::new(topology, AzureOptions::default())
                .configured("loadBalancerBackendPoolConfigurationType", pools)
                .serving(&[external("web"), internal("inside"), dual_stack("both")])
                .await;
            ["web", "inside", "both"].iter().for_each(|name| cluster.delete(name));
            cluster.until_gone(10 * MINUTE).await;
            life.stop().await;

            let needs = required_permissions(&cluster.config(), false);
            let requests = cluster.azure().requests();
            let to_arm = requests.iter().filter(|request| !matches!(request.class, Class::Other | Class::Poll));
            let asked: Vec<_> = to_arm.collect();
            assert!(asked.len() > 20, "{kind:?} {pools}: only {} requests", asked.len());
            let unknown: Vec<_> =
                asked.iter().filter(|request| !needs.iter().any(|need| covers(need, request))).take(3).collect();
            assert!(unknown.is_empty(), "{kind:?} {pools}: {unknown:?}");
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_public_ip_that_somebody_else_uses_is_told_when_its_service_goes() {
    let (cluster, _life) = Cluster::with_two_nodes().serving(&[external("web")]).await;
    let public_ips = || cluster.public_ips();
    let own = public_ips().into_iter().find(|pip| pip["tags"]["k8s-azure-service"] == "default/web").unwrap();
    let gateway = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/natGateways/out";
    cluster.azure().change_document(own["id"].as_str().unwrap(), |pip| {
        pip["properties"]["natGateway"] = serde_json::json!({"id": gateway});
    });
    cluster.settle().await;
    cluster.remove("web").await;
    let told = cluster.warnings("web");
    let kept = told.iter().find(|(reason, _)| reason == "KeptPublicIPAddress");
    assert!(kept.is_some_and(|(_, message)| message.contains("natGateways/out")), "{told:?}");
    assert!(public_ips().iter().any(|pip| pip["id"] == own["id"]));
}

#[tokio::test(start_paused = true)]
async fn a_front_end_that_somebody_else_uses_is_told_when_its_service_goes() {
    let (cluster, _life) = Cluster::with_two_nodes().serving(&["web", "other"].map(external)).await;
    let uid = cluster.service("web").unwrap().metadata.uid.unwrap().replace('-', "");
    let balancer = cluster.balancers().remove(0);
    let id = balancer["id"].as_str().unwrap();
    let frontends = balancer["properties"]["frontendIPConfigurations"].as_array().unwrap();
    let own = frontends.iter().find(|one| one["name"].as_str().unwrap().contains(&uid[..8])).unwrap()["id"].clone();
    cluster.azure().change_document(id, |balancer| {
        balancer["properties"]["outboundRules"] = serde_json::json!([{"name": "out", "properties": {
            "frontendIPConfigurations": [{"id": own}], "protocol": "All",
            "backendAddressPool": {"id": format!("{id}/backendAddressPools/kubernetes")},
        }}]);
    });
    cluster.settle().await;
    cluster.remove("web").await;
    let told = cluster.warnings("web");
    let kept = told.iter().find(|(reason, _)| reason == "DeletingFrontendIPConfiguration");
    assert!(kept.is_some_and(|(_, message)| message.contains("out")), "{told:?}");
}

/// Held by AKS, from now on for an hour.
fn taken(cluster: &Cluster) -> Lease {
    let spec = LeaseSpec {
        holder_identity: Some("aks-rp".to_owned()),
        lease_duration_seconds: Some(3600),
        renew_time: Some(MicroTime(cluster.now())),
        ..LeaseSpec::default()
    };
    let metadata = ObjectMeta { namespace: Some(NAMESPACE.into()), name: Some(NAME.into()), ..ObjectMeta::default() };
    Lease { metadata, spec: Some(spec) }
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_the_lease_and_who_is_refused_is_on_the_status_page() {
    let cluster = Cluster::with_two_nodes();
    cluster.server.create::<Lease>(&taken(&cluster));
    cluster.create(&external("web"));
    cluster.create(&with(external("odd"), "azure-pip-prefix-id", "here"));
    let life = cluster.start();
    let has_problem = |service: &str| life.unsettled(service)["problem"].is_string();
    cluster.until("both have a problem", 2 * MINUTE, |_| has_problem("web") && has_problem("odd")).await;
    let (web, odd) = (life.unsettled("web"), life.unsettled("odd"));
    assert_eq!(web["stage"], "waiting for the lease", "{web}");
    assert!(web["problem"].as_str().is_some_and(|problem| problem.contains("aks-rp")), "{web}");
    assert_eq!(odd["stage"], "refused", "{odd}");
    assert!(odd["problem"].as_str().is_some_and(|problem| problem.contains("azure-pip-prefix-id")), "{odd}");
    let refusal = format!("refuse default/odd: {}", odd["problem"].as_str().unwrap());
    assert_eq!((&odd["changes"], &web["changes"]), (&json!([refusal]), &json!([])));

    cluster.server.delete::<Lease>(NAMESPACE, NAME);
    cluster.change("odd", |odd| annotate(odd, "azure-pip-prefix-id", None));
    cluster.until_ready(10 * MINUTE).await;
    assert!(life.unsettled("web").is_null() && life.unsettled("odd").is_null());
}

#[tokio::test(start_paused = true)]
async fn a_plan_says_what_is_done_then() {
    let cluster = Cluster::with_two_nodes();
    cluster.server.create::<Lease>(&taken(&cluster));
    let web = cluster.create(&external("web"));
    let life = cluster.start();
    let waits = || life.unsettled("web")["stage"] == "waiting for the lease";
    cluster.until("it waits for the lease", MINUTE, |_| waits()).await;
    let hosts = Vec::<Arc<Node>>::new();
    let two_hosts: Vec<Arc<Node>> = cluster.server.list::<Node>().into_iter().map(Arc::new).collect();
    let before = life.plan(&web, &hosts).await;
    assert!(before.contains("/publicIPAddresses/") && before.contains("/loadBalancers/kubernetes: "), "{before}");
    assert!(before.contains("later: security rules of default/web: public IP "), "{before}");
    let again = life.plan(&web, &hosts).await;
    assert_eq!(again, before, "asking changes nothing");
    let with_nodes = life.plan(&web, &two_hosts).await;
    assert_eq!(with_nodes.matches(" joins kubernetes/kubernetes\n").count(), 2, "{with_nodes}");
    assert_eq!(cluster.writes(), Vec::<String>::new());

    cluster.server.delete::<Lease>(NAMESPACE, NAME);
    let mut told = BTreeSet::new();
    while !cluster.services().iter().all(is_ready) {
        let changes = life.unsettled("web")["changes"].clone();
        let changes = changes.as_array().cloned().unwrap_or_default();
        told.extend(changes.iter().filter_map(|change| change.as_str().map(str::to_owned)));
        // Every write takes longer.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let network: Vec<_> = before.lines().filter_map(|line| line.strip_prefix("PUT ")).collect();
    assert!(network.len() >= 2, "{before}");
    for line in network {
        assert!(told.contains(&format!("put {line}")), "{line} is not on the status page: {told:#?}");
    }
    let web = cluster.service("web").unwrap();
    assert_eq!(life.plan(&web, &hosts).await, "");
    assert_eq!(life.plan(&web, &two_hosts).await, "");
}

/// What the process remembers beside documents.
fn remembered(life: &Life) -> String {
    life.provider.session().unwrap().load_balancers.clone().unwrap().remembered()
}

#[tokio::test(start_paused = true)]
async fn a_plan_remembers_nothing() {
    let (cluster, first) = Cluster::with_two_nodes()
        .configured("loadBalancerBackendPoolConfigurationType", "nodeIP")
        .serving(&[external("web")])
        .await;
    let plan = async |life: &Life| {
        let hosts: Vec<Arc<Node>> = cluster.server.list::<Node>().into_iter().map(Arc::new).collect();
        life.plan(&cluster.service("web").unwrap(), &hosts).await
    };
    // Services are read once per version, whoever needs them first.
    let history = |life: &Life| remembered(life).split_once("memory: ").unwrap().1.to_owned();
    let before = history(&first);
    assert!(before.contains("default/web") && before.contains("applied: Some("), "{before}");
    assert_eq!(plan(&first).await, "");
    assert_eq!(history(&first), before, "a plan has been remembered");
    let before = remembered(&first);
    assert_eq!(plan(&first).await, "");
    assert_eq!(remembered(&first), before, "a plan has been remembered");
    first.stop().await;

    // A process that may not write yet: it has not looked at anything for a write, and learns nothing from plans.
    let theirs = taken(&cluster).spec;
    cluster.server.update_with::<Lease>(NAMESPACE, NAME, |lease| lease.spec = theirs);
    cluster.change("web", |web| web.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].port = 8081);
    let standby = cluster.start();
    let waits = || standby.unsettled("web")["problem"].is_string();
    cluster.until("it waits for the lease", 5 * MINUTE, |_| waits()).await;
    // The service controller tells of the Nodes at its own time, which is no plan's doing.
    cluster.until("it knows the Nodes", 5 * MINUTE, |_| history(&standby).contains("10.224.0.4")).await;
    let before = history(&standby);
    let told = plan(&standby).await;
    assert!(told.contains("/loadBalancers/kubernetes: ") && told.contains("/networkSecurityGroups/"), "{told}");
    assert_eq!(history(&standby), before, "a plan has been remembered");
    let before = remembered(&standby);
    assert_eq!(plan(&standby).await, told);
    assert_eq!(remembered(&standby), before, "a plan has been remembered");
    standby.stop().await;
}
