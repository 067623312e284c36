//! The shipped manifests: complete, with minimal privileges, and accepted by the program that they start.
//!
//! `tests/e2e` runs the manager with the shipped rights, so they suffice. These tests compare them with the calls of the code, so they
//! grant nothing else.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs,
    path::Path,
    time::Duration,
};

use cloud_controller_manager::{
    app::rights::{MANAGER_RIGHTS, RightRow, VIEWER_RIGHTS},
    cli::{self, CliCommand},
    providers::{
        azure::{config_source::default_secret, diagnostics::RIGHTS as AZURE_RIGHTS},
        fake::FakeConfig,
    },
    runtime::yaml,
};
use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment},
        core::v1::{ConfigMap, Container, Pod, PodSpec, Probe},
        policy::v1::PodDisruptionBudget,
        rbac::v1::PolicyRule,
    },
    apimachinery::pkg::util::intstr::IntOrString,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::chart::{
    objects::{check, round_trip, without_unknown_fields},
    programs::{NO_CLOUD, manager_config, node_manager_config, parse, start},
};

#[path = "manifests/accounts.rs"]
mod accounts;
#[path = "manifests/admission.rs"]
mod admission;
#[path = "manifests/azure_admission.rs"]
mod azure_admission;
#[path = "manifests/helm.rs"]
mod helm;
#[path = "manifests/image_credentials.rs"]
mod image_credentials;
#[path = "manifests/installation.rs"]
mod installation;
#[path = "manifests/probe_proxy.rs"]
mod probe_proxy;
use crate::shipped;
#[path = "manifests/single_file.rs"]
mod single_file;
#[path = "manifests/webhooks.rs"]
mod webhooks;
#[path = "manifests/windows.rs"]
mod windows;

const FOLDER: &str = "manifests";
const KUSTOMIZATION: &str = "kustomization.yaml";
/// File with an extension that kubectl does not read: applying the folder creates no Pod.
const STATIC_POD: &str = "static-pod.manifest";
const NAME: &str = "cloud-controller-manager";
const NAMESPACE: &str = "kube-system";
const NON_ROOT: i64 = 65532;

/// Returns the calls of the code: scope of the grant, API group, resource, object name (`*`: any), verbs.
fn calls() -> impl Iterator<Item = RightRow> {
    MANAGER_RIGHTS.iter().chain(AZURE_RIGHTS).copied()
}

/// Bound role of Kubernetes: serving/authentication/lookup.rs reads the ConfigMap that it allows.
const BOUND_FOREIGN_ROLE: &str = "extension-apiserver-authentication-reader";
/// API groups of documents for other programs than the API server.
const FILE_FORMATS: [&str; 2] = ["kustomize.config.k8s.io/", "kubelet.config.k8s.io/"];

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(FOLDER).join(file)).unwrap()
}

/// Returns the documents of a file. Checks that objects have no unknown fields.
fn documents(file: &str) -> Vec<Value> {
    let documents: Vec<Value> = yaml::documents(&read(file)).unwrap();
    for document in &documents {
        let version = document["apiVersion"].as_str().unwrap_or_default();
        if !version.is_empty() && !FILE_FORMATS.iter().any(|format| version.starts_with(format)) {
            assert_eq!(&without_unknown_fields(file, document), document, "{file}: fields that Kubernetes does not know");
        }
    }
    documents
}

/// Returns the only document of a file.
fn only_document<K: DeserializeOwned>(file: &str) -> K {
    let [document] = <[Value; 1]>::try_from(documents(file)).unwrap();
    serde_json::from_value(document).unwrap()
}

/// Returns the kustomization of a component.
fn component(folder: &str) -> Value {
    let component: Value = only_document(&format!("{folder}/{KUSTOMIZATION}"));
    assert_eq!(component["kind"], "Component", "{folder}");
    component
}

fn files() -> BTreeSet<String> {
    let entries = fs::read_dir(FOLDER).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_file());
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

/// Returns every object of every manifest, with its file.
fn objects() -> Vec<(String, Value)> {
    let files = files().into_iter().filter(|file| file != KUSTOMIZATION);
    files.flat_map(|file| documents(&file).into_iter().map(move |document| (file.clone(), document))).collect()
}

/// Returns the objects of one kind in all files.
fn of_kind<K: DeserializeOwned>(kind: &str) -> Vec<K> {
    let matching = objects().into_iter().filter(|(_, object)| object["kind"] == kind);
    let found: Vec<K> = matching.map(|(_, object)| serde_json::from_value(object).unwrap()).collect();
    assert!(!found.is_empty(), "no {kind}");
    found
}

/// Returns pod specs and the kinds of their objects.
fn pod_specs() -> Vec<(String, PodSpec)> {
    let deployments = of_kind::<Deployment>("Deployment").into_iter();
    let deployed = deployments.map(|object| ("Deployment".to_owned(), object.spec.template.spec.unwrap()));
    deployed.chain(of_kind::<Pod>("Pod").into_iter().map(|pod| ("Pod".to_owned(), pod.spec.unwrap()))).collect()
}

fn containers() -> Vec<Container> {
    let all =
        pod_specs().into_iter().flat_map(|(_, spec)| spec.init_containers.into_iter().flatten().chain(spec.containers));
    all.collect()
}

#[test]
fn every_object_has_its_schema_a_name_and_our_namespace() {
    objects().iter().for_each(|(file, object)| check(file, object));
}

#[test]
fn kustomization_lists_every_file_but_the_static_pod() {
    let kustomization = documents(KUSTOMIZATION).remove(0);
    let listed: BTreeSet<_> =
        kustomization["resources"].as_array().unwrap().iter().map(|file| file.as_str().unwrap().to_owned()).collect();
    let mut expected = files();
    assert!(expected.remove(STATIC_POD) && expected.remove(KUSTOMIZATION));
    assert_eq!(listed, expected);
}

/// Returns the Deployment with the changes of these components.
fn deployment_with(components: &[&str]) -> Deployment {
    let object = shipped::deployment(components);
    assert_eq!(without_unknown_fields("deployment.yaml", &object), object, "fields that Kubernetes does not know");
    serde_json::from_value(object).unwrap()
}

fn pod_with(components: &[&str]) -> PodSpec {
    deployment_with(components).spec.template.spec.unwrap()
}

#[test]
fn the_azure_component_reads_the_secret_that_is_mounted() {
    let component = component("azure");
    let [changes, removal] = component["patches"].as_array().unwrap().as_slice() else { panic!("{component}") };
    assert_eq!(changes["path"], "deployment.yaml");
    assert_eq!(changes["target"]["name"], NAME);
    let removed: Value = yaml::parse(removal["patch"].as_str().unwrap()).unwrap();
    let [map] = <[ConfigMap; 1]>::try_from(of_kind("ConfigMap")).unwrap();
    assert_eq!((removed["metadata"]["name"].as_str(), &removed["$patch"]), (map.metadata.name.as_deref(), &"delete".into()));

    let pod = pod_with(&["azure"]);
    let config = manager_config(start(&pod.containers[0]));
    assert_eq!((config.cloud.provider.as_str(), &config.notices), ("azure", &Vec::new()), "flags without effect");
    assert!(config.leader_election.enabled && !config.cloud.configure_cloud_routes, "this provider has no routes yet");
    let [volume] = <[_; 1]>::try_from(pod.volumes.unwrap()).unwrap();
    let [mount] = <[_; 1]>::try_from(pod.containers[0].volume_mounts.clone().unwrap()).unwrap();
    let secret = volume.secret.unwrap();
    let [item] = <[_; 1]>::try_from(secret.items.unwrap()).unwrap();
    assert_eq!(config.cloud.config.cloud_config.unwrap(), Path::new(&mount.mount_path).join(item.path));
    assert_eq!((&volume.name, volume.config_map), (&mount.name, None));
    let of_flags = default_secret();
    assert_eq!((secret.secret_name.unwrap(), item.key), (of_flags.name, of_flags.key), "the same as with the flags");
}

/// Scope, API group, resource, object name and verb.
type Grant = (String, String, String, String, String);

fn grant(words: [&str; 5]) -> Grant {
    words.map(str::to_owned).into()
}

/// Returns the rights that these calls need.
fn needed(calls: impl IntoIterator<Item = RightRow>) -> BTreeSet<Grant> {
    let of_call = |(scope, group, resource, name, verbs): RightRow| {
        verbs.iter().map(move |verb| grant([scope, group, resource, name, verb]))
    };
    calls.into_iter().flat_map(of_call).collect()
}

/// Returns the rights that a role grants. Checks that none is granted twice.
fn grants(role: &Value) -> BTreeSet<Grant> {
    let scope = role["metadata"]["namespace"].as_str().unwrap_or("cluster");
    let rules: Vec<PolicyRule> = serde_json::from_value(role["rules"].clone()).unwrap();
    let mut grants = Vec::new();
    for rule in rules {
        assert!(rule.non_resource_urls.is_none(), "the code calls no such URL");
        let names = rule.resource_names.unwrap_or_else(|| vec!["*".into()]);
        for group in rule.api_groups.as_deref().unwrap() {
            for resource in rule.resources.as_deref().unwrap() {
                for name in &names {
                    grants.extend(rule.verbs.iter().map(|verb| grant([scope, group, resource, name, verb])));
                }
            }
        }
    }
    let distinct: BTreeSet<Grant> = grants.iter().cloned().collect();
    assert_eq!(distinct.len(), grants.len(), "granted twice: {grants:?}");
    distinct
}

/// Returns the rights of each account. Checks that every role is bound to one account, and that every binding binds one of the roles.
fn rights(objects: &[Value]) -> BTreeMap<String, BTreeSet<Grant>> {
    let of_kind = |end: &str| objects.iter().filter(|it| it["kind"].as_str().unwrap().ends_with(end)).collect::<Vec<_>>();
    let (roles, bindings) = (of_kind("Role"), of_kind("RoleBinding"));
    assert_eq!(roles.len(), bindings.len());
    let mut rights: BTreeMap<String, BTreeSet<Grant>> = BTreeMap::new();
    for role in roles {
        let (kind, name) = (&role["kind"], &role["metadata"]["name"]);
        let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
        let binding =
            bindings.iter().find(|binding| binding["roleRef"] == reference).unwrap_or_else(|| panic!("{reference}"));
        assert_eq!(binding["metadata"]["namespace"], role["metadata"]["namespace"], "{reference}");
        let account = binding["subjects"][0]["name"].as_str().unwrap();
        let subjects = json!([{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}]);
        assert_eq!(binding["subjects"], subjects, "{reference}");
        let own = rights.entry(account.to_owned()).or_default();
        grants(role).into_iter().for_each(|grant| assert!(own.insert(grant), "{reference}: granted twice"));
    }
    rights
}

#[test]
fn the_secret_may_be_read_by_the_account_and_no_other() {
    let secret = default_secret();
    let read = grant([&secret.namespace, "", "secrets", &secret.name, "get"]);
    let expected = BTreeMap::from([(NAME.to_owned(), BTreeSet::from([read]))]);
    assert_eq!(rights(&documents("azure/secret-reader.yaml")), expected);
}

#[test]
fn rights_are_those_that_the_code_uses() {
    let mut objects: Vec<Value> = objects().into_iter().map(|(_, object)| object).collect();
    assert_eq!(objects.iter().filter(|object| object["kind"] == "ServiceAccount").count(), 1);
    objects.push(json!({"kind": "Role", "metadata": {"name": BOUND_FOREIGN_ROLE, "namespace": NAMESPACE}, "rules": []}));
    assert_eq!(rights(&objects), BTreeMap::from([(NAME.to_owned(), needed(calls()))]));
}

/// Panics if a container has privileges, may write to its files, or has no resource limits.
fn assert_confined(container: &Container) {
    let security = container.security_context.as_ref().unwrap();
    assert_eq!(security.allow_privilege_escalation, Some(false));
    assert_eq!(security.read_only_root_filesystem, Some(true));
    assert_eq!((security.privileged, security.run_as_user, security.run_as_non_root), (None, None, None));
    let capabilities = security.capabilities.as_ref().unwrap();
    assert_eq!((&capabilities.add, &capabilities.drop), (&None, &Some(vec!["ALL".to_owned()])));
    assert!(container.volume_mounts.iter().flatten().all(|mount| mount.read_only == Some(true)));
    let resources = container.resources.as_ref().unwrap();
    let requests = resources.requests.as_ref().unwrap();
    assert!(requests.contains_key("cpu") && requests.contains_key("memory"));
    assert!(resources.limits.as_ref().unwrap().contains_key("memory"));
}

#[test]
fn pods_have_no_privileges() {
    let node_manager = daemon_set("daemonset.yaml").spec.template.spec.unwrap();
    for (owner, spec) in pod_specs().into_iter().chain([("DaemonSet".to_owned(), node_manager)]) {
        let pod = spec.security_context.unwrap();
        assert_eq!(pod.run_as_non_root, Some(true), "{owner}");
        assert_eq!((pod.run_as_user, pod.run_as_group), (Some(NON_ROOT), Some(NON_ROOT)), "{owner}");
        assert_eq!(pod.seccomp_profile.unwrap().type_, "RuntimeDefault", "{owner}");
        assert!(spec.host_pid.is_none() && spec.host_ipc.is_none(), "{owner}");
        spec.init_containers.iter().flatten().chain(&spec.containers).for_each(assert_confined);
    }
}

#[test]
fn pods_can_run_before_the_cluster_works() {
    for (owner, spec) in pod_specs() {
        assert_eq!((spec.host_network, spec.dns_policy.as_deref()), (Some(true), Some("Default")), "{owner}");
        assert!(spec.priority_class_name.unwrap().starts_with("system-"), "{owner}");
        let grace = Duration::from_secs(spec.termination_grace_period_seconds.unwrap().try_into().unwrap());
        let ends_in_time = |container: &Container| manager_config(start(container)).shutdown_grace_period * 2 <= grace;
        assert!(spec.containers.iter().all(ends_in_time), "{owner}");
    }
    let pod = pod_with(&[]);
    assert_eq!(pod.service_account_name.as_deref(), Some(NAME));
    let tolerated: BTreeSet<_> = pod.tolerations.unwrap().into_iter().map(|toleration| toleration.key.unwrap()).collect();
    for taint in [
        "node.cloudprovider.kubernetes.io/uninitialized",
        "node.kubernetes.io/network-unavailable",
        "node.kubernetes.io/not-ready",
        "node-role.kubernetes.io/control-plane",
        "node-role.kubernetes.io/master",
    ] {
        assert!(tolerated.contains(taint), "{taint}");
    }
}

#[test]
fn a_rollout_frees_a_port_before_it_takes_one() {
    let spec = deployment_with(&[]).spec;
    let rolling = spec.strategy.unwrap().rolling_update.unwrap();
    assert_eq!((rolling.max_surge, rolling.max_unavailable), (Some(IntOrString::Int(0)), Some(IntOrString::Int(1))));

    let [budget] = <[PodDisruptionBudget; 1]>::try_from(of_kind("PodDisruptionBudget")).unwrap();
    let budget = budget.spec.unwrap();
    let Some(IntOrString::Int(available)) = budget.min_available else { panic!("{:?}", budget.min_available) };
    assert!(available < spec.replicas.unwrap(), "a drain must be able to end");
    assert_eq!(budget.selector.unwrap(), spec.selector);
    assert_eq!(spec.template.metadata.unwrap().labels, spec.selector.match_labels);
}

#[test]
fn probes_request_health_paths_on_the_served_port() {
    for container in containers() {
        let served = manager_config(start(&container)).serving.port;
        let [port] = <[_; 1]>::try_from(container.ports.unwrap()).unwrap();
        assert_eq!(port.container_port, i32::from(served));
        let probe = |probe: Option<Probe>| {
            let request = probe.unwrap().http_get.unwrap();
            assert_eq!(request.scheme.as_deref(), Some("HTTPS"));
            assert_eq!(request.port, IntOrString::String(port.name.clone().unwrap()));
            request.path.unwrap()
        };
        assert_eq!(probe(container.startup_probe), "/livez");
        assert_eq!(probe(container.liveness_probe), "/livez");
        assert_eq!(probe(container.readiness_probe), "/readyz");
    }
}

#[test]
fn arguments_are_accepted_and_name_files_that_are_mounted() {
    for (owner, spec) in pod_specs() {
        for container in spec.containers {
            let config = manager_config(start(&container));
            assert_eq!(config.notices, Vec::<String>::new(), "{owner}: flags without effect");
            assert!(config.leader_election.enabled, "{owner}: two replicas must not both write");
            let mounts = container.volume_mounts.unwrap();
            for file in [config.cloud.config.cloud_config.clone(), config.kube_api.kubeconfig.clone()].into_iter().flatten()
            {
                assert!(mounts.iter().any(|mount| file.starts_with(&mount.mount_path)), "{owner}: {}", file.display());
            }
            let volumes: BTreeSet<_> = spec.volumes.iter().flatten().map(|volume| volume.name.as_str()).collect();
            assert_eq!(mounts.iter().map(|mount| mount.name.as_str()).collect::<BTreeSet<_>>(), volumes, "{owner}");
            // A pod with an account finds the API server without a kubeconfig. A static pod has no account.
            assert_eq!(config.kube_api.kubeconfig.is_none(), spec.service_account_name.is_some(), "{owner}");
        }
    }
}

#[test]
fn manifests_name_no_cloud_and_the_program_says_what_to_set() {
    for container in containers() {
        let words = std::iter::once(NAME.to_owned()).chain(container.args.unwrap()).map(OsString::from);
        let error = cli::parse(words, &["azure", "fake"], &[]).unwrap_err().to_string();
        for part in [NO_CLOUD, "--cloud-provider", "azure, fake", "components"] {
            assert!(error.contains(part), "{error}");
        }
    }
    assert_eq!(
        shipped::deployment(&["azure"])["spec"]["template"]["spec"]["containers"][0]["args"][0],
        "--cloud-provider=azure"
    );
}

#[test]
fn the_fake_cloud_knows_every_node() {
    assert_eq!(component("fake")["patches"][1]["path"], "cloud-config.yaml");
    let map: ConfigMap = only_document("fake/cloud-config.yaml");
    let [placeholder] = <[ConfigMap; 1]>::try_from(of_kind("ConfigMap")).unwrap();
    assert_eq!(map.metadata, placeholder.metadata);
    let (name, data) = (map.metadata.name.unwrap(), map.data.unwrap());
    let spec = pod_with(&["fake"]);
    assert!(spec.containers[0].args.iter().flatten().any(|word| word == "--cloud-provider=fake"));
    let mounted = spec.volumes.unwrap().into_iter().filter_map(|volume| volume.config_map);
    assert_eq!(mounted.map(|source| source.name).collect::<Vec<_>>(), [name.as_str()]);
    let config = manager_config(start(&spec.containers[0]));
    let file = config.cloud.config.cloud_config.unwrap();
    let cloud = FakeConfig::parse(&data[file.file_name().unwrap().to_str().unwrap()]).unwrap();
    assert!(cloud.any_instance.is_some() && !cloud.allow_foreign_nodes);
    assert_eq!(cloud.routes.enabled, config.cloud.configure_cloud_routes);
    assert!(cloud.state_file.is_none(), "the volume cannot be written");
}

/// Calls of cloud-node-manager.
#[rustfmt::skip]
const NODE_MANAGER_CALLS: &[RightRow] = &[
    // The informer; `ObjectWriter::get` and `PatchTarget::Object` in the node controller.
    ("cluster", "", "nodes", "*", &["get", "list", "watch", "patch"]),
    // `PatchTarget::Status` there.
    ("cluster", "", "nodes/status", "*", &["patch"]),
    // runtime/events/sink.rs
    ("cluster", "", "events", "*", &["create", "patch"]),
];

const NODE_MANAGER: &str = "cloud-node-manager";

fn daemon_set(file: &str) -> DaemonSet {
    only_document(&format!("{NODE_MANAGER}/{file}"))
}

#[test]
fn the_node_manager_has_exactly_the_rights_that_it_uses() {
    let used = needed(NODE_MANAGER_CALLS.iter().copied());
    assert_eq!(rights(&documents("cloud-node-manager/rbac.yaml")), BTreeMap::from([(NODE_MANAGER.to_owned(), used)]));
}

#[test]
fn node_managers_run_on_every_node_before_it_works() {
    let set = daemon_set("daemonset.yaml").spec;
    assert_eq!(set.template.metadata.clone().unwrap().labels, set.selector.match_labels);
    let pod = set.template.spec.unwrap();
    assert_eq!((pod.host_network, pod.service_account_name.as_deref()), (Some(true), Some(NODE_MANAGER)));
    assert_eq!(pod.priority_class_name.as_deref(), Some("system-node-critical"));
    assert_eq!(pod.node_selector.unwrap()["kubernetes.io/os"], "linux");
    let [toleration] = <[_; 1]>::try_from(pod.tolerations.unwrap()).unwrap();
    assert_eq!((toleration.operator.as_deref(), toleration.key), (Some("Exists"), None), "any taint");

    let [container] = <[Container; 1]>::try_from(pod.containers).unwrap();
    let [variable] = <[_; 1]>::try_from(container.env.clone().unwrap()).unwrap();
    let field = variable.value_from.unwrap().field_ref.unwrap().field_path;
    assert_eq!((variable.name.as_str(), field.as_str()), ("NODE_NAME", "spec.nodeName"));
    let config = node_manager_config(start(&container));
    assert_eq!((config.node_name.as_deref(), &config.notices), (Some("node-1"), &Vec::new()));
    assert!(config.provider == "azure" && config.use_instance_metadata && config.serving.port == 0);
}

#[test]
fn node_managers_replace_the_node_controller() {
    let component = component(NODE_MANAGER);
    for file in component["resources"].as_array().unwrap() {
        assert!(!documents(&format!("{NODE_MANAGER}/{}", file.as_str().unwrap())).is_empty());
    }
    let [patch] = component["patches"].as_array().unwrap().as_slice() else { panic!("{component}") };
    assert_eq!((&patch["target"]["kind"], &patch["target"]["name"]), (&"Deployment".into(), &NAME.into()));
    let config = manager_config(start(&pod_with(&["azure", NODE_MANAGER]).containers[0]));
    assert!(!config.controllers.contains("cloud-node-controller"));
    assert!(config.controllers.contains("cloud-node-lifecycle-controller"), "deleted machines are still detected");
}
