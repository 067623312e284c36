//! Rights, plans, warnings and status pages agree with the requests of the program.

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
    cluster::{Cluster, MINUTE, Manager, is_ready, run_paused},
    services::{annotate, dual_stack, external, internal, with},
};

/// Returns the action for which ARM requires a permission.
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
fn every_request_is_covered_by_check_config() {
    let kinds = [PoolKind::Uniform, PoolKind::Flexible, PoolKind::AvailabilitySet];
    let cases = kinds.map(|kind| (kind, "nodeIPConfiguration")).into_iter().chain([(PoolKind::Uniform, "nodeIP")]);
    for (kind, pools) in cases {
        run_paused(async {
            let topology = Topology::new().dual_stack().pools(kind, 1, 2);
            let (cluster, manager) = Cluster::new(topology, AzureOptions::default())
                .configured("loadBalancerBackendPoolConfigurationType", pools)
                .serving(&[external("web"), internal("inside"), dual_stack("both")])
                .await;
            ["web", "inside", "both"].iter().for_each(|name| cluster.delete(name));
            cluster.until_all_deleted(10 * MINUTE).await;
            manager.stop().await;

            let needs = required_permissions(&cluster.config(), false);
            let requests = cluster.azure().requests();
            let to_arm = requests.iter().filter(|request| !matches!(request.class, Class::Other | Class::Poll));
            let sent: Vec<_> = to_arm.collect();
            assert!(sent.len() > 20, "{kind:?} {pools}: only {} requests", sent.len());
            let uncovered: Vec<_> =
                sent.iter().filter(|request| !needs.iter().any(|need| covers(need, request))).take(3).collect();
            assert!(uncovered.is_empty(), "{kind:?} {pools}: {uncovered:?}");
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_public_ip_in_foreign_use_is_reported_at_deletion() {
    let (cluster, _manager) = Cluster::with_two_nodes().serving(&[external("web")]).await;
    let public_ips = || cluster.public_ips();
    let own = public_ips().into_iter().find(|document| document["tags"]["k8s-azure-service"] == "default/web").unwrap();
    let gateway = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/natGateways/out";
    cluster.azure().change_document(own["id"].as_str().unwrap(), |document| {
        document["properties"]["natGateway"] = serde_json::json!({"id": gateway});
    });
    cluster.settle().await;
    cluster.remove("web").await;
    let warnings = cluster.warnings("web");
    let report = warnings.iter().find(|(reason, _)| reason == "KeptPublicIPAddress");
    assert!(report.is_some_and(|(_, message)| message.contains("natGateways/out")), "{warnings:?}");
    assert!(public_ips().iter().any(|document| document["id"] == own["id"]));
}

#[tokio::test(start_paused = true)]
async fn a_frontend_in_foreign_use_is_reported_at_deletion() {
    let (cluster, _manager) = Cluster::with_two_nodes().serving(&["web", "other"].map(external)).await;
    let uid = cluster.service("web").unwrap().metadata.uid.unwrap().replace('-', "");
    let balancer = cluster.balancers().remove(0);
    let id = balancer["id"].as_str().unwrap();
    let frontends = balancer["properties"]["frontendIPConfigurations"].as_array().unwrap();
    let own = frontends.iter().find(|it| it["name"].as_str().unwrap().contains(&uid[..8])).unwrap()["id"].clone();
    cluster.azure().change_document(id, |balancer| {
        balancer["properties"]["outboundRules"] = serde_json::json!([{"name": "out", "properties": {
            "frontendIPConfigurations": [{"id": own}], "protocol": "All",
            "backendAddressPool": {"id": format!("{id}/backendAddressPools/kubernetes")},
        }}]);
    });
    cluster.settle().await;
    cluster.remove("web").await;
    let warnings = cluster.warnings("web");
    let report = warnings.iter().find(|(reason, _)| reason == "DeletingFrontendIPConfiguration");
    assert!(report.is_some_and(|(_, message)| message.contains("out")), "{warnings:?}");
}

/// Returns a lease that AKS holds for an hour from now on.
fn lease_of_aks(cluster: &Cluster) -> Lease {
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
async fn the_status_page_lists_waiting_and_refused_services() {
    let cluster = Cluster::with_two_nodes();
    cluster.server.create::<Lease>(&lease_of_aks(&cluster));
    cluster.create(&external("web"));
    cluster.create(&with(external("odd"), "azure-pip-prefix-id", "here"));
    let manager = cluster.start();
    let has_problem = |service: &str| manager.unsettled(service)["problem"].is_string();
    cluster.until("both have a problem", 2 * MINUTE, |_| has_problem("web") && has_problem("odd")).await;
    let (web, odd) = (manager.unsettled("web"), manager.unsettled("odd"));
    assert_eq!(web["stage"], "waiting for the lease", "{web}");
    assert!(web["problem"].as_str().is_some_and(|problem| problem.contains("aks-rp")), "{web}");
    assert_eq!(odd["stage"], "refused", "{odd}");
    assert!(odd["problem"].as_str().is_some_and(|problem| problem.contains("azure-pip-prefix-id")), "{odd}");
    let refusal = format!("refuse default/odd: {}", odd["problem"].as_str().unwrap());
    assert_eq!((&odd["changes"], &web["changes"]), (&json!([refusal]), &json!([])));

    cluster.server.delete::<Lease>(NAMESPACE, NAME);
    cluster.change("odd", |odd| annotate(odd, "azure-pip-prefix-id", None));
    cluster.until_ready(10 * MINUTE).await;
    assert!(manager.unsettled("web").is_null() && manager.unsettled("odd").is_null());
}

#[tokio::test(start_paused = true)]
async fn a_plan_matches_the_later_writes() {
    let cluster = Cluster::with_two_nodes();
    cluster.server.create::<Lease>(&lease_of_aks(&cluster));
    let web = cluster.create(&external("web"));
    let manager = cluster.start();
    let waits = || manager.unsettled("web")["stage"] == "waiting for the lease";
    cluster.until("it waits for the lease", MINUTE, |_| waits()).await;
    let hosts = Vec::<Arc<Node>>::new();
    let two_hosts: Vec<Arc<Node>> = cluster.server.list::<Node>().into_iter().map(Arc::new).collect();
    let before = manager.plan(&web, &hosts).await;
    assert!(before.contains("/publicIPAddresses/") && before.contains("/loadBalancers/kubernetes: "), "{before}");
    assert!(before.contains("later: security rules of default/web: public IP "), "{before}");
    let second_plan = manager.plan(&web, &hosts).await;
    assert_eq!(second_plan, before, "planning changes nothing");
    let with_nodes = manager.plan(&web, &two_hosts).await;
    assert_eq!(with_nodes.matches(" joins kubernetes/kubernetes\n").count(), 2, "{with_nodes}");
    assert_eq!(cluster.writes(), Vec::<String>::new());

    cluster.server.delete::<Lease>(NAMESPACE, NAME);
    let mut changes_seen = BTreeSet::new();
    while !cluster.services().iter().all(is_ready) {
        let changes = manager.unsettled("web")["changes"].clone();
        let changes = changes.as_array().cloned().unwrap_or_default();
        changes_seen.extend(changes.iter().filter_map(|change| change.as_str().map(str::to_owned)));
        // Shorter than any write.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let network: Vec<_> = before.lines().filter_map(|line| line.strip_prefix("PUT ")).collect();
    assert!(network.len() >= 2, "{before}");
    for line in network {
        assert!(changes_seen.contains(&format!("put {line}")), "{line} is not on the status page: {changes_seen:#?}");
    }
    let web = cluster.service("web").unwrap();
    assert_eq!(manager.plan(&web, &hosts).await, "");
    assert_eq!(manager.plan(&web, &two_hosts).await, "");
}

/// Returns the state that the process keeps in addition to documents.
fn remembered(manager: &Manager) -> String {
    manager.provider.session().unwrap().load_balancers.clone().unwrap().remembered()
}

#[tokio::test(start_paused = true)]
async fn a_plan_remembers_nothing() {
    let (cluster, first) = Cluster::with_two_nodes()
        .configured("loadBalancerBackendPoolConfigurationType", "nodeIP")
        .serving(&[external("web")])
        .await;
    let plan = async |manager: &Manager| {
        let hosts: Vec<Arc<Node>> = cluster.server.list::<Node>().into_iter().map(Arc::new).collect();
        manager.plan(&cluster.service("web").unwrap(), &hosts).await
    };
    // Each version of a Service is parsed once, by a plan or by a write, so the texts are compared after the first plan.
    let history = |manager: &Manager| remembered(manager).split_once("memory: ").unwrap().1.to_owned();
    let before = history(&first);
    assert!(before.contains("default/web") && before.contains("applied: Some("), "{before}");
    assert_eq!(plan(&first).await, "");
    assert_eq!(history(&first), before, "a plan has been remembered");
    let before = remembered(&first);
    assert_eq!(plan(&first).await, "");
    assert_eq!(remembered(&first), before, "a plan has been remembered");
    first.stop().await;

    // A process that may not write yet has read nothing for a write, and plans add nothing to its state.
    let theirs = lease_of_aks(&cluster).spec;
    cluster.server.update_with::<Lease>(NAMESPACE, NAME, |lease| lease.spec = theirs);
    cluster.change("web", |web| web.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].port = 8081);
    let standby = cluster.start();
    let waits = || standby.unsettled("web")["problem"].is_string();
    cluster.until("it waits for the lease", 5 * MINUTE, |_| waits()).await;
    // The service controller reports the Nodes independently of plans.
    cluster.until("it knows the Nodes", 5 * MINUTE, |_| history(&standby).contains("10.224.0.4")).await;
    let before = history(&standby);
    let planned = plan(&standby).await;
    assert!(planned.contains("/loadBalancers/kubernetes: ") && planned.contains("/networkSecurityGroups/"), "{planned}");
    assert_eq!(history(&standby), before, "a plan has been remembered");
    let before = remembered(&standby);
    assert_eq!(plan(&standby).await, planned);
    assert_eq!(remembered(&standby), before, "a plan has been remembered");
    standby.stop().await;
}
