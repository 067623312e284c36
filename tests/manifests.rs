//! The manifests that ship: complete, harmless, and accepted by the program they start.
//!
//! That the rights suffice is shown by `tests/e2e`, which runs the manager under them; here they are compared with what the code
//! calls, so that nothing is granted beyond it.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{collections::BTreeSet, ffi::OsString, fs, path::Path, time::Duration};

use cloud_controller_manager::{
    app::rights::{MANAGER_RIGHTS, RightRow, VIEWER_RIGHTS},
    cli::{self, CliCommand, config::ManagerConfig},
    providers::{
        azure::{config::ConfigSecretRef, diagnostics::RIGHTS as AZURE_RIGHTS},
        fake::FakeConfig,
    },
    runtime::yaml,
};
use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment},
        core::v1::{ConfigMap, Container, Pod, PodSpec, Probe, SecurityContext, ServiceAccount},
        policy::v1::PodDisruptionBudget,
        rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject},
    },
    apimachinery::pkg::util::intstr::IntOrString,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

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
/// Has an ending that kubectl does not read, so that applying the folder makes no Pod.
const STATIC_POD: &str = "static-pod.manifest";
const NAME: &str = "cloud-controller-manager";
const NAMESPACE: &str = "kube-system";
const NON_ROOT: i64 = 65532;

/// What the code calls: where it is granted, API group, resource, object name (`*`: any), verbs.
fn calls() -> impl Iterator<Item = RightRow> {
    MANAGER_RIGHTS.iter().chain(AZURE_RIGHTS).copied()
}

/// Roles of Kubernetes' own that are bound: serving/authentication/lookup.rs reads the ConfigMap that this one is about.
const BOUND_FOREIGN_ROLES: &[&str] = &["extension-apiserver-authentication-reader"];

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(FOLDER).join(file)).unwrap()
}

fn documents(file: &str) -> Vec<Value> {
    let text = read(file);
    yaml::documents(&text).unwrap()
}

fn files() -> BTreeSet<String> {
    let entries = fs::read_dir(FOLDER).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_file());
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

/// Every object of every manifest, with its file.
fn objects() -> Vec<(String, Value)> {
    let files = files().into_iter().filter(|file| file != KUSTOMIZATION);
    files.flat_map(|file| documents(&file).into_iter().map(move |document| (file.clone(), document))).collect()
}

/// The objects of one kind, over all files.
fn of_kind<K: DeserializeOwned>(kind: &str) -> Vec<K> {
    let matching = objects().into_iter().filter(|(_, object)| object["kind"] == kind);
    let found: Vec<K> = matching.map(|(_, object)| serde_json::from_value(object).unwrap()).collect();
    assert!(!found.is_empty(), "no {kind}");
    found
}

/// Reads and writes again. What the type does not know is lost on the way.
fn round_trip<K: DeserializeOwned + Serialize>(object: &Value) -> Value {
    serde_json::to_value(serde_json::from_value::<K>(object.clone()).unwrap()).unwrap()
}

/// Pod specs and what they are part of.
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

/// What stands for the cloud until a component replaces it.
const NO_CLOUD: &str = "CLOUD-NOT-SET";

/// The configuration that the arguments make, with a cloud where they name none.
fn config(container: &Container) -> ManagerConfig {
    assert!(container.command.is_none(), "the image has an entry point");
    let given = container.args.iter().flatten().map(|word| OsString::from(word.replace(NO_CLOUD, "fake")));
    let args = std::iter::once(OsString::from(NAME)).chain(given);
    match cli::parse(args, &["azure", "fake"], &[]) {
        Ok(CliCommand::Run(config)) => *config,
        other => panic!("{:?}: {other:?}", container.args),
    }
}

#[test]
fn every_object_has_its_schema_a_name_and_our_namespace() {
    for (file, object) in objects() {
        let (version, kind) = (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        assert!(!name.is_empty(), "{file}: a {kind} without a name");
        let known = match (version, kind) {
            ("v1", "ServiceAccount") => round_trip::<ServiceAccount>(&object),
            ("v1", "ConfigMap") => round_trip::<ConfigMap>(&object),
            ("v1", "Pod") => round_trip::<Pod>(&object),
            ("apps/v1", "Deployment") => round_trip::<Deployment>(&object),
            ("policy/v1", "PodDisruptionBudget") => round_trip::<PodDisruptionBudget>(&object),
            ("rbac.authorization.k8s.io/v1", "ClusterRole") => round_trip::<ClusterRole>(&object),
            ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding") => round_trip::<ClusterRoleBinding>(&object),
            ("rbac.authorization.k8s.io/v1", "Role") => round_trip::<Role>(&object),
            ("rbac.authorization.k8s.io/v1", "RoleBinding") => round_trip::<RoleBinding>(&object),
            other => panic!("{file}: {other:?} is not known to this test"),
        };
        assert_eq!(known, object, "{file}: {kind} {name} has fields that Kubernetes does not know");
        let namespace = if kind.starts_with("Cluster") { Value::Null } else { NAMESPACE.into() };
        assert_eq!(object["metadata"]["namespace"], namespace, "{file}: {kind} {name}");
    }
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

type Grant = (String, String, String, String, String);

/// The Deployment with the changes of these components.
fn deployment_with(components: &[&str]) -> Deployment {
    let object = shipped::deployment(components);
    let deployment: Deployment = serde_json::from_value(object.clone()).unwrap();
    assert_eq!(serde_json::to_value(&deployment).unwrap(), object, "fields that Kubernetes does not know");
    deployment
}

#[test]
fn the_azure_component_reads_the_secret_that_is_mounted() {
    let component = documents("azure/kustomization.yaml").remove(0);
    assert_eq!(component["kind"], "Component");
    let [changes, removal] = component["patches"].as_array().unwrap().as_slice() else { panic!("{component}") };
    assert_eq!(changes["path"], "deployment.yaml");
    assert_eq!(changes["target"]["name"], NAME);
    let removed: Value = yaml::parse(removal["patch"].as_str().unwrap()).unwrap();
    let [map] = <[ConfigMap; 1]>::try_from(of_kind("ConfigMap")).unwrap();
    assert_eq!((removed["metadata"]["name"].as_str(), &removed["$patch"]), (map.metadata.name.as_deref(), &"delete".into()));

    let pod = deployment_with(&["azure"]).spec.template.spec.unwrap();
    let config = config(&pod.containers[0]);
    assert_eq!((config.cloud.provider.as_str(), &config.notices), ("azure", &Vec::new()), "flags without effect");
    assert!(config.leader_election.enabled && !config.cloud.configure_cloud_routes, "this provider has no routes yet");
    let [volume] = <[_; 1]>::try_from(pod.volumes.unwrap()).unwrap();
    let [mount] = <[_; 1]>::try_from(pod.containers[0].volume_mounts.clone().unwrap()).unwrap();
    let secret = volume.secret.unwrap();
    let [item] = <[_; 1]>::try_from(secret.items.unwrap()).unwrap();
    assert_eq!(config.cloud.config.cloud_config.unwrap(), Path::new(&mount.mount_path).join(item.path));
    assert_eq!((&volume.name, volume.config_map), (&mount.name, None));
    let of_flags = ConfigSecretRef::default();
    assert_eq!((secret.secret_name.unwrap(), item.key), (of_flags.name, of_flags.key), "the same as with the flags");
}

#[test]
fn the_secret_may_be_read_by_the_account_and_no_other() {
    let [role, binding] = <[Value; 2]>::try_from(documents("azure/secret-reader.yaml")).unwrap();
    assert_eq!((round_trip::<Role>(&role), round_trip::<RoleBinding>(&binding)), (role.clone(), binding.clone()));
    let role: Role = serde_json::from_value(role).unwrap();
    let binding: RoleBinding = serde_json::from_value(binding).unwrap();
    let secret = ConfigSecretRef::default();
    let granted = grants(role.metadata.namespace.as_deref().unwrap(), role.rules);
    let expected: Grant = [secret.namespace.as_str(), "", "secrets", &secret.name, "get"].map(str::to_owned).into();
    assert_eq!(granted, [expected]);
    assert_eq!((binding.role_ref.kind.as_str(), Some(&binding.role_ref.name)), ("Role", role.metadata.name.as_ref()));
    let [subject] = <[Subject; 1]>::try_from(binding.subjects.unwrap()).unwrap();
    let who = (subject.kind.as_str(), subject.name.as_str(), subject.namespace.as_deref());
    assert_eq!(who, ("ServiceAccount", NAME, Some(NAMESPACE)));
}

fn grants(scope: &str, rules: Option<Vec<PolicyRule>>) -> Vec<Grant> {
    let mut grants = Vec::new();
    for rule in rules.unwrap_or_default() {
        assert!(rule.non_resource_urls.is_none(), "the code calls no such URL");
        let names = rule.resource_names.unwrap_or_else(|| vec!["*".into()]);
        for group in rule.api_groups.unwrap() {
            for resource in rule.resources.as_deref().unwrap() {
                for name in &names {
                    let to = |verb: &String| (scope.into(), group.clone(), resource.clone(), name.clone(), verb.clone());
                    grants.extend(rule.verbs.iter().map(to));
                }
            }
        }
    }
    grants
}

#[test]
fn rights_are_those_that_the_code_uses() {
    let cluster = of_kind::<ClusterRole>("ClusterRole").into_iter().flat_map(|role| grants("cluster", role.rules));
    let namespaced = of_kind::<Role>("Role").into_iter();
    let namespaced = namespaced.flat_map(|role| grants(&role.metadata.namespace.unwrap(), role.rules));
    let granted: Vec<Grant> = cluster.chain(namespaced).collect();

    let used = calls().flat_map(|(scope, group, resource, name, verbs)| {
        verbs.iter().map(move |verb| [scope, group, resource, name, verb].map(str::to_owned).into())
    });
    let used: BTreeSet<Grant> = used.collect();
    assert_eq!(granted.iter().cloned().collect::<BTreeSet<_>>(), used);
    assert_eq!(granted.len(), used.len(), "nothing is granted twice");
}

#[test]
fn every_role_is_bound_to_the_account_and_no_other() {
    let account = |subjects: Option<Vec<Subject>>| {
        let [subject] = <[Subject; 1]>::try_from(subjects.unwrap()).unwrap();
        let who = (subject.kind.as_str(), subject.name.as_str(), subject.namespace.as_deref());
        assert_eq!(who, ("ServiceAccount", NAME, Some(NAMESPACE)));
    };
    let mut bound: BTreeSet<(String, String)> = BTreeSet::new();
    let mut bind = |role: RoleRef, subjects| {
        account(subjects);
        assert_eq!(role.api_group.as_deref(), Some("rbac.authorization.k8s.io"));
        bound.insert((role.kind, role.name));
    };
    of_kind::<ClusterRoleBinding>("ClusterRoleBinding").into_iter().for_each(|one| bind(one.role_ref, one.subjects));
    of_kind::<RoleBinding>("RoleBinding").into_iter().for_each(|one| bind(one.role_ref, one.subjects));

    let cluster = of_kind::<ClusterRole>("ClusterRole").into_iter().map(|role| ("ClusterRole", role.metadata.name.unwrap()));
    let namespaced = of_kind::<Role>("Role").into_iter().map(|role| ("Role", role.metadata.name.unwrap()));
    let foreign = BOUND_FOREIGN_ROLES.iter().map(|name| ("Role", (*name).to_owned()));
    let expected = cluster.chain(namespaced).chain(foreign).map(|(kind, name)| (kind.to_owned(), name)).collect();
    assert_eq!(bound, expected);
    assert_eq!(of_kind::<ServiceAccount>("ServiceAccount").len(), 1);
}

#[test]
fn pods_have_no_privileges() {
    for (owner, spec) in pod_specs() {
        let pod = spec.security_context.unwrap();
        assert_eq!(pod.run_as_non_root, Some(true), "{owner}");
        assert_eq!((pod.run_as_user, pod.run_as_group), (Some(NON_ROOT), Some(NON_ROOT)), "{owner}");
        assert_eq!(pod.seccomp_profile.unwrap().type_, "RuntimeDefault", "{owner}");
        assert!(spec.host_pid.is_none() && spec.host_ipc.is_none(), "{owner}");
    }
    for container in containers() {
        let security: SecurityContext = container.security_context.unwrap();
        assert_eq!(security.allow_privilege_escalation, Some(false));
        assert_eq!(security.read_only_root_filesystem, Some(true));
        assert_eq!((security.privileged, security.run_as_user, security.run_as_non_root), (None, None, None));
        let capabilities = security.capabilities.unwrap();
        assert_eq!((capabilities.add, capabilities.drop), (None, Some(vec!["ALL".to_owned()])));
        assert!(container.volume_mounts.unwrap().iter().all(|mount| mount.read_only == Some(true)));
    }
}

#[test]
fn pods_can_run_before_the_cluster_works() {
    for (owner, spec) in pod_specs() {
        assert_eq!((spec.host_network, spec.dns_policy.as_deref()), (Some(true), Some("Default")), "{owner}");
        assert!(spec.priority_class_name.unwrap().starts_with("system-"), "{owner}");
        let grace = Duration::from_secs(spec.termination_grace_period_seconds.unwrap().try_into().unwrap());
        assert!(spec.containers.iter().all(|container| config(container).shutdown_grace_period * 2 <= grace), "{owner}");
        for container in &spec.containers {
            let resources = container.resources.as_ref().unwrap();
            let requests = resources.requests.as_ref().unwrap();
            assert!(requests.contains_key("cpu") && requests.contains_key("memory"), "{owner}");
            assert!(resources.limits.as_ref().unwrap().contains_key("memory"), "{owner}");
        }
    }
    let [deployment] = <[Deployment; 1]>::try_from(of_kind("Deployment")).unwrap();
    let pod = deployment.spec.template.spec.unwrap();
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
    let [deployment] = <[Deployment; 1]>::try_from(of_kind("Deployment")).unwrap();
    let spec = deployment.spec;
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
fn probes_ask_for_what_they_decide_on_the_port_that_is_served() {
    for container in containers() {
        let served = config(&container).serving.port;
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
            let config = config(&container);
            assert_eq!(config.notices, Vec::<String>::new(), "{owner}: flags without effect");
            assert!(config.leader_election.enabled, "{owner}: two replicas must not both write");
            let mounts = container.volume_mounts.unwrap();
            for file in [config.cloud.config.cloud_config.clone(), config.kube_api.kubeconfig.clone()].into_iter().flatten()
            {
                assert!(mounts.iter().any(|mount| file.starts_with(&mount.mount_path)), "{owner}: {}", file.display());
            }
            let volumes: BTreeSet<_> = spec.volumes.iter().flatten().map(|volume| volume.name.as_str()).collect();
            assert_eq!(mounts.iter().map(|mount| mount.name.as_str()).collect::<BTreeSet<_>>(), volumes, "{owner}");
            // A pod with an account finds the API server by itself; a static pod has none.
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
    let component = documents("fake/kustomization.yaml").remove(0);
    assert_eq!((&component["kind"], &component["patches"][1]["path"]), (&"Component".into(), &"cloud-config.yaml".into()));
    let [object] = <[Value; 1]>::try_from(documents("fake/cloud-config.yaml")).unwrap();
    assert_eq!(round_trip::<ConfigMap>(&object), object);
    let map: ConfigMap = serde_json::from_value(object).unwrap();
    let [placeholder] = <[ConfigMap; 1]>::try_from(of_kind("ConfigMap")).unwrap();
    assert_eq!(map.metadata, placeholder.metadata);
    let (name, data) = (map.metadata.name.unwrap(), map.data.unwrap());
    let spec = deployment_with(&["fake"]).spec.template.spec.unwrap();
    assert!(spec.containers[0].args.iter().flatten().any(|word| word == "--cloud-provider=fake"));
    let mounted = spec.volumes.unwrap().into_iter().filter_map(|volume| volume.config_map);
    assert_eq!(mounted.map(|source| source.name).collect::<Vec<_>>(), [name.as_str()]);
    let config = config(&spec.containers[0]);
    let file = config.cloud.config.cloud_config.unwrap();
    let cloud = FakeConfig::parse(&data[file.file_name().unwrap().to_str().unwrap()]).unwrap();
    assert!(cloud.any_instance.is_some() && !cloud.allow_foreign_nodes);
    assert_eq!(cloud.routes.enabled, config.cloud.configure_cloud_routes);
    assert!(cloud.state_file.is_none(), "the volume cannot be written");
}

/// What cloud-node-manager calls: resource and verbs, all cluster-wide in the core group.
#[rustfmt::skip]
const NODE_MANAGER_CALLS: &[(&str, &[&str])] = &[
    // The informer; `ObjectWriter::get` and `PatchTarget::Object` in the node controller.
    ("nodes", &["get", "list", "watch", "patch"]),
    // `PatchTarget::Status` there.
    ("nodes/status", &["patch"]),
    // runtime/events/sink.rs
    ("events", &["create", "patch"]),
];

const NODE_MANAGER: &str = "cloud-node-manager";

fn daemon_set(file: &str) -> DaemonSet {
    let [object] = <[Value; 1]>::try_from(documents(&format!("{NODE_MANAGER}/{file}"))).unwrap();
    assert_eq!(round_trip::<DaemonSet>(&object), object, "{file}: fields that Kubernetes does not know");
    serde_json::from_value(object).unwrap()
}

fn node_manager_config(container: &Container) -> cli::NodeManagerConfig {
    let given = container.args.iter().flatten().map(|word| OsString::from(word.replace("$(NODE_NAME)", "Node-1")));
    match cli::parse(std::iter::once(OsString::from(NAME)).chain(given), &["azure", "fake"], &[]) {
        Ok(CliCommand::ManageNode(config)) => *config,
        other => panic!("{:?}: {other:?}", container.args),
    }
}

#[test]
fn the_node_manager_may_do_what_it_calls_and_no_more() {
    let [account, role, binding] = <[Value; 3]>::try_from(documents("cloud-node-manager/rbac.yaml")).unwrap();
    assert_eq!(round_trip::<ServiceAccount>(&account), account);
    assert_eq!(
        (round_trip::<ClusterRole>(&role), round_trip::<ClusterRoleBinding>(&binding)),
        (role.clone(), binding.clone())
    );
    let role: ClusterRole = serde_json::from_value(role).unwrap();
    let binding: ClusterRoleBinding = serde_json::from_value(binding).unwrap();
    let granted = grants("cluster", role.rules);
    let used = NODE_MANAGER_CALLS.iter().flat_map(|(resource, verbs)| {
        verbs.iter().map(|verb| -> Grant { ["cluster", "", *resource, "*", *verb].map(str::to_owned).into() })
    });
    let used: BTreeSet<Grant> = used.collect();
    assert_eq!((granted.len(), granted.into_iter().collect::<BTreeSet<_>>()), (used.len(), used));
    assert_eq!((binding.role_ref.kind.as_str(), Some(binding.role_ref.name)), ("ClusterRole", role.metadata.name));
    let [subject] = <[Subject; 1]>::try_from(binding.subjects.unwrap()).unwrap();
    let who = (subject.kind.as_str(), subject.name.as_str(), subject.namespace.as_deref());
    assert_eq!(who, ("ServiceAccount", NODE_MANAGER, Some(NAMESPACE)));
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
    let config = node_manager_config(&container);
    assert_eq!((config.node_name.as_deref(), &config.notices), (Some("node-1"), &Vec::new()));
    assert!(config.provider == "azure" && config.use_instance_metadata && config.serving.port == 0);
    let resources = container.resources.unwrap();
    assert!(resources.limits.unwrap().contains_key("memory") && resources.requests.unwrap().contains_key("memory"));

    let security = pod.security_context.unwrap();
    assert_eq!((security.run_as_non_root, security.run_as_user), (Some(true), Some(NON_ROOT)));
    let own = container.security_context.unwrap();
    assert_eq!((own.allow_privilege_escalation, own.read_only_root_filesystem), (Some(false), Some(true)));
    assert_eq!(own.capabilities.unwrap().drop, Some(vec!["ALL".to_owned()]));
}

#[test]
fn with_node_managers_the_deployment_leaves_nodes_alone() {
    let component = documents("cloud-node-manager/kustomization.yaml").remove(0);
    assert_eq!(component["kind"], "Component");
    for file in component["resources"].as_array().unwrap() {
        assert!(!documents(&format!("{NODE_MANAGER}/{}", file.as_str().unwrap())).is_empty());
    }
    let [patch] = component["patches"].as_array().unwrap().as_slice() else { panic!("{component}") };
    assert_eq!((&patch["target"]["kind"], &patch["target"]["name"]), (&"Deployment".into(), &NAME.into()));
    let config = config(&deployment_with(&["azure", NODE_MANAGER]).spec.template.spec.unwrap().containers[0]);
    assert!(!config.controllers.contains("cloud-node-controller"));
    assert!(config.controllers.contains("cloud-node-lifecycle-controller"), "gone machines are still noticed");
}
