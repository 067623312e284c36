//! Kustomizations in the README and the guides: they name the image in one place, fit the manifests, and can run next to a Go program.

use super::*;

/// Pages with kustomizations to copy.
const TEXTS: &[&str] = &[
    "README.md",
    "docs/guides/installing.md",
    "docs/guides/azure.md",
    "docs/guides/cloud-node-manager.md",
    "docs/guides/health-probe-proxy.md",
    "docs/guides/kubeadm.md",
    "docs/guides/webhooks.md",
];
/// Ports of the Go program: its default, the port of Azure's examples, and the port of Azure's Helm chart.
const GO_PORTS: [u16; 3] = [10258, 10267, 10268];
const BESIDE_GO: &str = "beside-go";

/// Returns the kustomizations in `text`, without the indentation of their first line.
fn shown(text: &str) -> Vec<Value> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.find(|line| line.trim_start() == "apiVersion: kustomize.config.k8s.io/v1beta1") {
        let indent = line.len() - line.trim_start().len();
        let ends = |line: &&str| !["EOF", "```"].contains(&line.trim());
        let block: String =
            lines.by_ref().take_while(ends).map(|line| format!("{}\n", line.get(indent..).unwrap_or(""))).collect();
        found.push(yaml::parse(&block).unwrap());
    }
    found
}

/// Returns every shipped container of all manifests and components.
fn shipped_containers() -> Vec<Container> {
    let set = daemon_set("daemonset.yaml").spec.template.spec.unwrap();
    let windows = windows::pod().containers;
    containers().into_iter().chain(set.containers).chain(windows).chain([probe_proxy::container()]).collect()
}

/// Returns `true` if the kubelet refuses the name without a request to a registry: only registries and tags may contain capitals.
fn is_no_image(name: &str) -> bool {
    !name.contains(['/', ':']) && name.chars().any(|letter| letter.is_ascii_uppercase())
}

#[test]
fn every_image_is_the_same_placeholder_that_no_kubelet_accepts() {
    let images: BTreeSet<_> = shipped_containers().into_iter().map(|container| container.image.unwrap()).collect();
    assert_eq!(images.len(), 1, "{images:?}");
    assert!(is_no_image(images.first().unwrap()), "{images:?}");
}

#[test]
fn kustomizations_to_copy_fit_and_name_the_image_in_one_place() {
    let placeholder = shipped_containers().remove(0).image.unwrap();
    for text in TEXTS {
        let all = shown(&fs::read_to_string(text).unwrap());
        assert!(!all.is_empty(), "{text} shows none");
        for kustomization in all {
            assert_eq!(kustomization["resources"], json!(["../manifests"]), "{text}");
            for path in kustomization["components"].as_array().into_iter().flatten() {
                let folder = path.as_str().unwrap().strip_prefix("../manifests/").unwrap();
                component(folder);
            }
            let [image] = kustomization["images"].as_array().unwrap().as_slice() else { panic!("{text}: {kustomization}") };
            assert_eq!(image["name"], placeholder, "{text}");
            assert!(is_no_image(image["newName"].as_str().unwrap()) && image["newTag"].is_string(), "{text}: {image}");
        }
    }
}

#[test]
fn the_migration_uses_the_cloud_of_go_and_other_ports() {
    let guide = fs::read_to_string("docs/guides/installing.md").unwrap();
    let beside = |value: &Value| {
        value["components"].as_array().is_some_and(|all| all.iter().any(|path| path == "../manifests/beside-go"))
    };
    let [kustomization] = <[Value; 1]>::try_from(shown(&guide).into_iter().filter(beside).collect::<Vec<_>>()).unwrap();
    assert_eq!(kustomization["components"], json!(["../manifests/azure", "../manifests/beside-go"]));

    let [usual, next] = [&["azure"][..], &["azure", BESIDE_GO]].map(|all| pod_with(all).containers.remove(0));
    let [before, after] = [&usual, &next].map(|container| manager_config(start(container)));
    assert!(!GO_PORTS.contains(&after.serving.port), "{}", after.serving.port);
    assert_eq!(i32::from(after.serving.port), next.ports.unwrap()[0].container_port);
    assert_eq!(after.leader_election, before.leader_election, "one lease");
    assert_eq!((after.cloud, after.controllers), (before.cloud, before.controllers));
    let component = component(BESIDE_GO);
    assert_eq!(component["nameSuffix"], "-next");
    assert_eq!(component["labels"][0]["includeSelectors"], true, "selectors must not match pods of the other Deployment");
}

/// Returns the cluster-wide read rights of the manager. Shadow managers and viewers get exactly these.
fn read_grants() -> BTreeSet<Grant> {
    let roles = objects().into_iter().filter(|(_, object)| object["kind"] == "ClusterRole");
    roles.flat_map(|(_, role)| grants(&role)).filter(|grant| ["get", "list", "watch"].contains(&grant.4.as_str())).collect()
}

#[test]
fn a_shadow_manager_writes_nothing_and_may_write_nothing() {
    let [usual, shadow] = [&["azure"][..], &["azure", "shadow"]].map(deployment_with);
    assert_eq!(shadow.spec.replicas, Some(1));
    let [usual, shadow] = [usual, shadow].map(|deployment| deployment.spec.template.spec.unwrap().containers.remove(0));
    let [before, after] = [&usual, &shadow].map(|container| manager_config(start(container)));
    assert!(after.dry_run && after.cloud.config.read_only && !before.dry_run);
    let used_ports = [GO_PORTS.to_vec(), vec![before.serving.port, 10278]].concat();
    assert!(!used_ports.contains(&after.serving.port), "{}", after.serving.port);
    assert_eq!(i32::from(after.serving.port), shadow.ports.unwrap()[0].container_port);
    assert_eq!((after.cloud.provider, after.controllers), (before.cloud.provider, before.controllers));
    let component = component("shadow");
    assert_eq!(component["nameSuffix"], "-shadow");
    let rights = documents("shadow/read-only.yaml").remove(0);
    let may = grants(&json!({"rules": rights[0]["value"]}));
    let (reviews, reads): (BTreeSet<Grant>, _) = may.into_iter().partition(|grant| grant.2.ends_with("reviews"));
    assert_eq!(reads, read_grants());
    let review_rights: Vec<_> = reviews.iter().map(|grant| (grant.2.as_str(), grant.4.as_str())).collect();
    assert_eq!(review_rights, [("tokenreviews", "create"), ("subjectaccessreviews", "create")]);
    let deleted = component["patches"].as_array().unwrap().iter().filter_map(|patch| patch["patch"].as_str());
    let deleted: Vec<Value> = deleted.map(|patch| yaml::parse(patch).unwrap()).collect();
    let lease = |object: &Value| object["kind"] == "Role" && object["$patch"] == "delete";
    assert!(deleted.iter().any(lease), "the right to the Lease is not removed: {deleted:?}");
}

#[test]
fn a_viewer_has_only_read_access() {
    let role: Value = only_document("viewer/rbac.yaml");
    let rules = role["rules"].as_array().unwrap().iter().cloned();
    let (urls, rules): (Vec<Value>, Vec<Value>) = rules.partition(|rule| rule["nonResourceURLs"].is_array());
    assert!(urls.iter().all(|rule| rule["verbs"] == json!(["get"])), "{urls:?}");
    let mut read = needed(VIEWER_RIGHTS.iter().copied());
    read.extend(read_grants());
    assert!(read.iter().all(|grant| ["get", "list", "watch"].contains(&grant.4.as_str())), "{read:?}");
    assert_eq!(grants(&json!({"rules": rules})), read);
}
