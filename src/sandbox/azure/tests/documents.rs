//! Documents: reads, lists, writes, etags, back-references.

use proptest::prelude::*;

use super::*;

const SCALE_SET: &str = "$COMPUTE/virtualMachineScaleSets/aks-pool1-vmss";
const INSTANCE: &str = "$COMPUTE/virtualMachineScaleSets/aks-pool1-vmss/virtualMachines/0";

#[test]
fn a_recorded_state_survives_loading() {
    let recorded = canonical::parse(RECORDED).unwrap();
    let azure = Azure::new(AzureOptions::immediate());
    azure.load(recorded.clone()).unwrap();
    let mut expected = recorded;
    expected.iter_mut().for_each(canonical::normalise);
    expected.sort_by_key(|document| document["id"].as_str().unwrap().to_ascii_lowercase());
    pretty_eq(&azure.dump(), &expected);
}

fn pretty_eq(left: &[Value], right: &[Value]) {
    let pretty = |documents: &[Value]| documents.iter().map(|one| format!("{one:#}")).collect::<Vec<_>>();
    assert_eq!(pretty(left), pretty(right));
}

#[tokio::test(start_paused = true)]
async fn gates_refuse_in_arms_words() {
    let client = Client::new(AzureOptions::immediate());
    client.azure.deny("Microsoft.Network/loadBalancers/*", "rg-test");
    let url = canonical::expand("https://m.test$RGS/rg-test?api-version=2025-05-01");
    let request = Request::builder().uri(url).header("authorization", "").body(Bytes::new()).unwrap();
    let anonymous = reply(client.transport.send(request).await.unwrap());
    assert_eq!((anonymous.status, anonymous.code()), (401, "AuthenticationFailed"));
    let denied = client.get(LB).await;
    assert_eq!((denied.status, denied.code()), (403, "AuthorizationFailed"));
    let message = denied.body["error"]["message"].as_str().unwrap();
    assert!(message.contains("microsoft.network/loadbalancers/read") && message.contains("/loadBalancers/lb'"), "{message}");
    client.azure.check_tokens(Arc::new(|token| (token != "good").then(|| "unknown".to_owned())));
    assert_eq!(client.get("$RGS/rg-test").await.code(), "InvalidAuthenticationToken");
}

#[tokio::test(start_paused = true)]
async fn an_instance_joins_a_pool_and_etags_cross_documents() {
    let client = Client::new(AzureOptions::immediate());
    client.put(PIP, public_ip()).await;
    client.put(LB, load_balancer()).await;
    let before = client.etag(PIP).await;
    client.put(LB, load_balancer()).await;
    assert_ne!(client.etag(PIP).await, before, "every write of its load balancer changes a public IP");
    let (set, balancer) = (client.etag(SCALE_SET).await, client.etag(LB).await);
    let instance = client.get(INSTANCE).await.body;
    assert_eq!(instance["properties"]["instanceView"], Value::Null);
    let mut profile = instance["properties"]["networkProfileConfiguration"].clone();
    let configuration = &mut profile["networkInterfaceConfigurations"][0]["properties"]["ipConfigurations"][0];
    configuration["properties"]["loadBalancerBackendAddressPools"] =
        json!([{"id": format!("{LB}/backendAddressPools/pool")}]);
    let body = json!({"location": "eastus", "properties": {"networkProfileConfiguration": profile}});
    assert_eq!(client.put(INSTANCE, body).await.status, 200);
    assert_ne!(client.etag(SCALE_SET).await, set);
    assert_ne!(client.etag(LB).await, balancer);
    let pool = client.get(&format!("{LB}/backendAddressPools/pool")).await.body;
    let member = canonical::expand(&format!("{INSTANCE}/networkInterfaces/aks-pool1-vmss/ipConfigurations/ipconfig1"));
    assert_eq!(pool["properties"]["backendIPConfigurations"], json!([{"id": member}]));
    assert_eq!(pool["properties"]["loadBalancerBackendAddresses"][0]["name"], "rg-test_aks-pool1-vmssipconfig1");
    let kept = client.get(&format!("{INSTANCE}?$expand=instanceView")).await.body;
    assert_eq!(kept["properties"]["instanceView"]["statuses"][1]["code"], "PowerState/running");
    assert_eq!(kept["properties"]["osProfile"]["computerName"], "aks-pool1-vmss000000");
}

#[tokio::test(start_paused = true)]
async fn parts_are_written_by_themselves() {
    let client = Client::new(AzureOptions::immediate());
    client.put(PIP, public_ip()).await;
    client.put(LB, load_balancer()).await;
    let pool = format!("{LB}/backendAddressPools/other");
    let address = json!({"name": "n1", "properties": {"ipAddress": "10.224.0.4"}});
    let body = json!({"properties": {"virtualNetwork": {"id": "$NET/virtualNetworks/vnet-test"}, "loadBalancerBackendAddresses": [address]}});
    assert_eq!(client.put(&pool, body.clone()).await.status, 201);
    let before = client.etag(LB).await;
    assert_eq!(client.put_if(&pool, body, &[("if-match", &before)]).await.status, 200);
    assert_ne!(client.etag(LB).await, before, "a part's etag is its document's");
    assert_eq!(client.get(&pool).await.body["properties"]["loadBalancerBackendAddresses"][0], address);
    assert_eq!(client.delete(&pool).await.status, 200);
    assert_eq!(client.delete(&pool).await.status, 204);
    assert_eq!(client.delete(&format!("{LB}/probes/probe")).await.code(), "InvalidResourceReference");
    let subnet = client.delete("$NET/virtualNetworks/vnet-test/subnets/subnet-nodes").await;
    assert_eq!((subnet.status, subnet.code()), (400, "InUseSubnetCannotBeDeleted"));
    assert_eq!(client.put("$NET/virtualNetworks/x/subnets/y", json!({})).await.code(), "ParentResourceNotFound");
}

#[tokio::test(start_paused = true)]
async fn a_patch_changes_what_it_names() {
    let client = Client::new(AzureOptions::immediate());
    let patch =
        |path: &'static str, body: &'static str| client.send(Method::PATCH, path, &[], Bytes::from_static(body.as_bytes()));
    let patched = patch("$NET/routeTables/rt-test", r#"{"tags": {"a": "b"}}"#).await;
    assert_eq!((patched.status, &patched.body["tags"]["a"]), (200, &json!("b")));
    assert_eq!(patched.body["properties"]["disableBgpRoutePropagation"], false);
    assert_eq!(patch("$NET/routeTables/none", "{}").await.status, 404);
    for body in ["{", "[]"] {
        assert_eq!(patch("$NET/routeTables/rt-test", body).await.code(), "InvalidRequestContent");
    }
}

#[tokio::test(start_paused = true)]
async fn lists_show_scopes_and_filters() {
    let client = Client::new(AzureOptions::immediate());
    let flex = canonical::expand("$COMPUTE/virtualMachineScaleSets/flex");
    for (name, set) in [("a", Some(&flex)), ("b", None)] {
        let id = canonical::expand(&format!("$COMPUTE/virtualMachines/{name}"));
        let mut machine = json!({"id": id, "location": "eastus", "properties": {"instanceView": {"statuses": []}}});
        if let Some(set) = set {
            machine["properties"]["virtualMachineScaleSet"] = json!({"id": set.to_uppercase()});
        }
        client.azure.put_document(machine).unwrap();
    }
    let names = |reply: &Reply| {
        let list = reply.body["value"].as_array().unwrap();
        list.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let subscription = "/subscriptions/00000000-0000-0000-0000-000000000001/providers/Microsoft.Compute/virtualMachines";
    assert_eq!(names(&client.get(subscription).await), ["a", "b"]);
    assert_eq!(names(&client.get("$COMPUTE/virtualMachines").await), ["a", "b"]);
    let filter = format!("{subscription}?$filter='virtualMachineScaleSet/id' eq '{flex}'&$expand=instanceView");
    let filtered = client.get(&filter).await;
    assert_eq!(names(&filtered), ["a"]);
    assert!(filtered.body["value"][0]["properties"]["instanceView"].is_object());
    for path in ["/virtualMachines", "/networkInterfaces", "/virtualMachines/0/networkInterfaces"] {
        let shown = client.get(&format!("{SCALE_SET}{path}")).await;
        assert_eq!(names(&shown).len(), if path.contains('0') { 1 } else { 2 }, "{path}");
    }
    assert_eq!(names(&client.get("$NET/virtualNetworks/vnet-test/subnets").await), ["subnet-nodes"]);
}

proptest! {
    #[test]
    fn pages_together_are_all_documents(count in 0_usize..40, page_size in 1_usize..9, added in 0_usize..3) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let client = Client::new(AzureOptions { page_size, ..AzureOptions::immediate() });
            let put = |name: String| {
                let id = canonical::expand(&format!("$NET/routeTables/{name}"));
                client.azure.put_document(json!({"id": id, "location": "eastus"})).unwrap();
            };
            (0..count).for_each(|number| put(format!("r{number:03}")));
            let (mut next, mut seen, mut pages) = ("$NET/routeTables".to_owned(), Vec::new(), 0);
            while !next.is_empty() {
                let page = client.get(&next).await.body;
                let found = page["value"].as_array().unwrap();
                assert!(found.len() <= page_size);
                seen.extend(found.iter().map(|one| one["name"].as_str().unwrap().to_owned()));
                next = page["nextLink"].as_str().unwrap_or_default().to_owned();
                assert!(next.is_empty() || next.contains("api-version=2025-05-01"), "{next}");
                pages += 1;
                // Documents that come in between do not disturb those that were there.
                (0..added).for_each(|number| put(format!("a{pages}{number}")));
            }
            let wanted: Vec<String> = (0..count).map(|number| format!("r{number:03}")).collect();
            seen.retain(|name| !name.starts_with('a') && name != "rt-test");
            assert_eq!(seen, wanted);
        });
    }

    #[test]
    fn an_etag_is_good_until_the_next_write(writes in proptest::collection::vec(0_usize..3, 1..12)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let client = Client::new(AzureOptions::immediate());
            let path = |table: usize| format!("$NET/routeTables/t{table}");
            let body = || json!({"location": "eastus", "properties": {}});
            for table in 0..3 {
                client.put(&path(table), body()).await;
            }
            let mut etags = Vec::new();
            for table in 0..3 {
                etags.push(client.etag(&path(table)).await);
            }
            for table in writes {
                let old = etags[table].clone();
                let written = client.put_if(&path(table), body(), &[("if-match", &old)]).await;
                assert_eq!(written.status, 200);
                assert_eq!(client.put_if(&path(table), body(), &[("if-match", &old)]).await.status, 412);
                etags[table] = written.body["etag"].as_str().unwrap().to_owned();
            }
        });
    }
}
