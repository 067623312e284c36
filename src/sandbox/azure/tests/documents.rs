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
    let raw = |url: &str, token: &str| {
        let request = Request::builder().uri(url).header("authorization", token).body(Bytes::new()).unwrap();
        let transport = Arc::clone(&client.transport);
        async move { reply(transport.send(request).await.unwrap()) }
    };
    let group = canonical::expand("https://m.test$RGS/rg-test");
    let answer = raw(&format!("{group}?api-version=2025-05-01"), "").await;
    assert_eq!((answer.status, answer.code()), (401, "AuthenticationFailed"));
    assert!(answer.header("www-authenticate").starts_with("Bearer "));
    for (url, status, code) in [
        (group.clone(), 400, "MissingApiVersionParameter"),
        (format!("{group}?api-version=soon"), 400, "InvalidApiVersionParameter"),
        (format!("{group}x?api-version=2025-05-01"), 404, "ResourceGroupNotFound"),
        ("https://m.test/subscriptions/other?api-version=2025-05-01".to_owned(), 404, "SubscriptionNotFound"),
    ] {
        let answer = raw(&url, "Bearer t").await;
        assert_eq!((answer.status, answer.code()), (status, code), "{url}");
        assert!(!answer.header("x-ms-correlation-request-id").is_empty());
    }
    let denied = client.get(LB).await;
    assert_eq!((denied.status, denied.code()), (403, "AuthorizationFailed"));
    let message = denied.body["error"]["message"].as_str().unwrap();
    assert!(message.contains("microsoft.network/loadbalancers/read") && message.contains("/loadBalancers/lb'"), "{message}");
    client.azure.check_tokens(Arc::new(|token| (token != "good").then(|| "unknown".to_owned())));
    assert_eq!(client.get("$RGS/rg-test").await.code(), "InvalidAuthenticationToken");
}

#[tokio::test(start_paused = true)]
async fn missing_things_are_told_apart() {
    let client = Client::new(AzureOptions::immediate());
    for (path, code) in [
        ("$RGS/other", "ResourceGroupNotFound"),
        ("$RGS/other/providers/Microsoft.Network/loadBalancers/x", "ResourceGroupNotFound"),
        ("$NET/loadBalancers/x", "ResourceNotFound"),
        ("$NET/loadBalancers/x/probes/p", "ParentResourceNotFound"),
        ("$NET/virtualNetworks/vnet-test/subnets/x", "NotFound"),
        ("$COMPUTE/virtualMachineScaleSets/aks-pool1-vmss/virtualMachines/77", "NotFound"),
        ("$COMPUTE/virtualMachineScaleSets/x/virtualMachines/7", "ParentResourceNotFound"),
        ("$COMPUTE/virtualMachineScaleSets/x/virtualMachines", "ParentResourceNotFound"),
        ("$RGS/other/providers/Microsoft.Compute/virtualMachines", "ResourceGroupNotFound"),
        ("$NET/teapots/x", "InvalidResourceType"),
    ] {
        let reply = client.get(path).await;
        assert_eq!((reply.status, reply.code()), (404, code), "{path}");
    }
    assert_eq!(client.delete("$NET/loadBalancers/x").await.status, 204);
    assert_eq!(client.put("$NET/virtualNetworks/x/subnets/y", json!({})).await.code(), "ParentResourceNotFound");
}

#[tokio::test(start_paused = true)]
async fn documents_live_and_refer_to_each_other() {
    let client = Client::new(AzureOptions::immediate());
    let created = client.put(PIP, public_ip()).await;
    assert_eq!(
        (created.status, &created.body["properties"]["ipAddress"]),
        (201, &json!("20.0.0.2")),
        "one was used for the prefix"
    );
    assert_eq!(client.put(LB, load_balancer()).await.status, 201);
    let balancer = client.get(LB).await.body;
    let properties = &balancer["properties"];
    let rule = canonical::expand(&format!("{LB}/loadBalancingRules/rule"));
    for part in ["frontendIPConfigurations", "backendAddressPools", "probes"] {
        let part = &properties[part][0];
        assert_eq!(part["properties"]["loadBalancingRules"], json!([{"id": rule}]), "{part}");
        assert_eq!(part["etag"], balancer["etag"]);
    }
    assert_eq!(properties["loadBalancingRules"][0]["properties"]["idleTimeoutInMinutes"], 4);
    let pip = client.get(PIP).await.body;
    assert_eq!(pip["properties"]["ipConfiguration"]["id"], properties["frontendIPConfigurations"][0]["id"]);
    let probe = client.get(&format!("{LB}/probes/PROBE")).await.body;
    assert_eq!(probe, properties["probes"][0]);
    assert_eq!(client.delete(LB).await.status, 200);
    assert_eq!(client.get(PIP).await.body["properties"]["ipConfiguration"], Value::Null);
    assert_eq!(client.delete(PIP).await.status, 200);
    assert_eq!(client.get(PIP).await.status, 404);
}

#[tokio::test(start_paused = true)]
async fn etags_guard_writes_and_cross_documents() {
    let client = Client::new(AzureOptions::immediate());
    client.put(PIP, public_ip()).await;
    let alone = client.etag(PIP).await;
    client.put(LB, load_balancer()).await;
    let attached = client.etag(PIP).await;
    assert_ne!(alone, attached, "attaching changes the public IP");
    let stale = client.put_if(PIP, public_ip(), &[("if-match", &alone)]).await;
    assert_eq!((stale.status, stale.code()), (412, "PreconditionFailed"));
    assert_eq!(client.put_if(PIP, public_ip(), &[("if-match", &attached)]).await.status, 200);
    assert_eq!(client.put_if("$NET/publicIPAddresses/new", public_ip(), &[("if-match", "*")]).await.status, 412);
    assert_eq!(client.put_if(PIP, public_ip(), &[("if-none-match", "*")]).await.status, 412);
    let before = client.etag(PIP).await;
    client.put(LB, load_balancer()).await;
    assert_ne!(client.etag(PIP).await, before, "so does every write of its load balancer");
    let before = client.etag(PIP).await;
    assert_eq!(client.delete(LB).await.status, 200);
    assert_ne!(client.etag(PIP).await, before);
}

#[tokio::test(start_paused = true)]
async fn an_instance_joins_a_pool() {
    let client = Client::new(AzureOptions::immediate());
    client.put(PIP, public_ip()).await;
    client.put(LB, load_balancer()).await;
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
    assert_eq!(client.get(LB).await.body["properties"]["backendAddressPools"].as_array().unwrap().len(), 2);
    assert_eq!(client.delete(&pool).await.status, 200);
    assert_eq!(client.delete(&pool).await.status, 204);
    assert_eq!(client.delete(&format!("{LB}/probes/probe")).await.code(), "InvalidResourceReference");
    let subnet = client.delete("$NET/virtualNetworks/vnet-test/subnets/subnet-nodes").await;
    assert_eq!((subnet.status, subnet.code()), (400, "InUseSubnetCannotBeDeleted"));
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
    assert_eq!(client.put("$NET/routeTables/new", json!({"properties": {}})).await.code(), "LocationRequired");
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
