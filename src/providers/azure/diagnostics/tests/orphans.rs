//! Resources that look like orphans and are none: those of a Service that is created while Azure is read, and those of
//! another cluster.

use std::convert::Infallible;

use http::{Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use tower::{BoxError, ServiceExt};

use super::*;
use crate::runtime::client::client_over_service;

/// Transport of the simulated cloud that triggers an event after the first list of public IPs.
struct EventfulTransport<F>(Arc<dyn ArmTransport>, Mutex<Option<F>>);

#[async_trait]
impl<F: FnOnce() + Send> ArmTransport for EventfulTransport<F> {
    async fn send(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, ArmTransportError> {
        let is_list = request.uri().path().ends_with("/publicIPAddresses");
        let response = self.0.send(request).await;
        let event = is_list.then(|| self.1.lock().take()).flatten();
        event.into_iter().for_each(|event| event());
        response
    }
}

/// An API server with these Services, or without the right to list them.
fn api_server(services: Option<Vec<Value>>) -> kube::Client {
    let (status, response) = match services {
        Some(items) => (200, json!({"apiVersion": "v1", "kind": "ServiceList", "metadata": {}, "items": items})),
        None => {
            (403, json!({"kind": "Status", "status": "Failure", "message": "no right", "reason": "Forbidden", "code": 403}))
        }
    };
    let service = tower::service_fn(move |_: Request<Body>| {
        let response = Response::builder().status(status).body(Body::from(response.to_string().into_bytes())).unwrap();
        async move { Ok::<_, Infallible>(response) }
    });
    client_over_service(service.map_err(BoxError::from), None)
}

/// A rule of the cluster's security group that leads to this address.
fn plant_security_rule(cloud: &World, address: &str) {
    let name = cloud.topology().security_group;
    let id = format!("{}/providers/Microsoft.Network/networkSecurityGroups/{name}", group(cloud));
    let properties = json!({"priority": 500, "direction": "Inbound", "access": "Allow", "protocol": "Tcp", "sourcePortRange": "*",
        "sourceAddressPrefix": "Internet", "destinationPortRange": "80", "destinationAddressPrefix": address});
    let rule = json!({"name": "k8s-azure-lb_allow_IPv4_0123456789abcdef0123456789abcdef", "properties": properties});
    let document = json!({"id": id, "name": name, "location": "eastus", "properties": {"securityRules": [rule]}});
    cloud.azure().put_document(document).unwrap();
}

async fn reported(cloud: &World, wire: Arc<dyn ArmTransport>, before: Vec<Value>, now: Option<Vec<Value>>) -> OrphanReport {
    let folder = tempfile::tempdir().unwrap();
    let request = DiagnosticRequest { client: Some(api_server(now)), ..request(&cloud.config(), &folder, before) };
    AzureDiagnostics::over(wire, BTreeMap::new()).examine(&request).await.orphans
}

#[tokio::test(start_paused = true)]
async fn resources_of_a_service_of_either_list_are_no_orphans() {
    let (cloud, web) = (cloud(), service("web", json!({})));
    plant_public_ip(&cloud, "of-web", "default/web");
    let none = Vec::new;
    for (name, before, now, orphans, unread) in [
        ("in none", none(), Some(none()), 1, 0),
        ("created meanwhile", none(), Some(vec![web.clone()]), 0, 0),
        ("deleted meanwhile", vec![web], Some(none()), 0, 0),
        ("not listed again", none(), None, 0, 1),
    ] {
        let report = reported(&cloud, cloud.azure().transport(), before, now).await;
        assert_eq!((report.orphans.len(), report.unread.len()), (orphans, unread), "{name}: {report:#?}");
    }
    let group = "service.beta.kubernetes.io/azure-load-balancer-resource-group";
    let elsewhere = service("api", json!({group: "another"}));
    let report = reported(&cloud, cloud.azure().transport(), none(), Some(vec![elsewhere])).await;
    assert!(report.orphans.is_empty() && report.unread[0].contains("public IPs of another"), "{report:#?}");
}

#[tokio::test(start_paused = true)]
async fn rules_of_a_service_that_is_created_meanwhile_are_no_orphans() {
    let cloud = Arc::new(cloud());
    plant_security_rule(&cloud, "20.0.0.8");
    let report = reported(&cloud, cloud.azure().transport(), Vec::new(), Some(Vec::new())).await;
    assert_eq!(report.orphans.len(), 1, "the rule leads to nothing: {report:#?}");
    let planted = Arc::clone(&cloud);
    let security_group = cloud.topology().security_group.clone();
    let id = format!("{}/providers/Microsoft.Network/networkSecurityGroups/{security_group}", group(&cloud));
    let empty = json!({"id": id, "name": security_group, "location": "eastus", "properties": {"securityRules": []}});
    cloud.azure().put_document(empty).unwrap();
    let event = move || {
        plant_public_ip(&planted, "of-web", "default/web");
        plant_security_rule(&planted, "20.0.0.9");
    };
    let wire = Arc::new(EventfulTransport(cloud.azure().transport(), Mutex::new(Some(event))));
    let report = reported(&cloud, wire.clone(), Vec::new(), Some(vec![service("web", json!({}))])).await;
    assert!(report.orphans.is_empty() && report.unread.is_empty(), "{report:#?}");
    assert!(wire.1.lock().is_none(), "the event took place");
}

#[tokio::test(start_paused = true)]
async fn resources_of_other_clusters_are_reported_as_such() {
    let cloud = cloud();
    let network = format!("{}/providers/Microsoft.Network", group(&cloud));
    let id = plant_public_ip(&cloud, "lost", "default/gone");
    let balancer = |name: &str| {
        let frontend = json!({"name": "front", "properties": {"publicIPAddress": {"id": id}}});
        json!({"id": format!("{network}/loadBalancers/{name}"), "name": name, "location": "eastus", "sku": {"name": "Standard"},
            "properties": {"frontendIPConfigurations": [frontend]}})
    };
    let reason = async |balancer: Option<Value>| {
        let id = balancer.as_ref().map(|balancer| balancer["id"].as_str().unwrap().to_owned());
        balancer.into_iter().for_each(|balancer| cloud.azure().put_document(balancer).unwrap());
        let report = reported(&cloud, cloud.azure().transport(), Vec::new(), Some(Vec::new())).await;
        id.iter().for_each(|id| assert!(cloud.azure().delete_document(id)));
        report.orphans.iter().find(|orphan| orphan.kind == "public_ip").unwrap().reason.clone()
    };
    let free = reason(None).await;
    assert!(free.contains("may be another cluster's") && !free.contains("attached"), "{free}");
    let own = reason(Some(balancer("kubernetes"))).await;
    assert!(own.contains("attached to ") && !own.contains("not a frontend of this cluster"), "{own}");
    let other = reason(Some(balancer("theirs"))).await;
    let expected =
        format!("attached to {network}/loadBalancers/theirs/frontendIPConfigurations/front, which is not a frontend");
    assert!(other.to_lowercase().contains(&expected.to_lowercase()), "{other}");
    cloud.azure().put_document(balancer("theirs")).unwrap();
    cloud.azure().deny("Microsoft.Network/loadBalancers/read", "");
    let unread = reason(None).await;
    assert!(unread.contains("attached to ") && !unread.contains("not a frontend of this cluster"), "{unread}");
}
