//! The chart and the kustomize base install the same rights, pods, budgets and settings, except for the differences below.

use std::{env, fs};

use cloud_controller_manager::runtime::yaml;
use serde_json::{Value, json};

use crate::chart::{
    objects::{find, folder, read, rendered},
    programs::{manager, node_manager, start},
    shipped,
};

const CASE: &str = "kustomize";
const NAME: &str = "cloud-controller-manager";
const NODES: &str = "cloud-node-manager";

/// Fields in which the pods of the manager differ: the selector of Go's chart is immutable, arguments have another order, and the file has
/// another folder. Tests compare their parsed values.
const POD_DIFFERS: [&str; 4] = ["affinity", "topologySpreadConstraints", "volumes", "containers"];
const CONTAINER_DIFFERS: [&str; 4] = ["args", "volumeMounts", "image", "imagePullPolicy"];

fn documents(file: &str) -> Vec<Value> {
    yaml::documents(&read(&folder("../../manifests").join(file))).unwrap()
}

pub(crate) fn without(value: &Value, fields: &[&str]) -> Value {
    let mut value = value.clone();
    fields.iter().for_each(|field| {
        value.as_object_mut().unwrap().remove(*field);
    });
    value
}

/// Returns the pod and, separately, its only container for comparison. The order of tolerations has no meaning.
fn parts(pod: &Value) -> (Value, Value) {
    let mut rest = without(pod, &POD_DIFFERS);
    if let Some(tolerations) = rest["tolerations"].as_array_mut() {
        tolerations.sort_by_key(Value::to_string);
    }
    let mut container = without(&pod["containers"][0], &CONTAINER_DIFFERS);
    for port in container["ports"].as_array_mut().into_iter().flatten() {
        port["protocol"] = "TCP".into();
    }
    (rest, container)
}

#[test]
fn deployments_are_the_same() {
    let (chart, base) = (rendered(CASE), shipped::deployment(&["azure", NODES]));
    let deployment = find(&chart, "Deployment", NAME);
    for field in ["replicas", "strategy"] {
        assert_eq!(deployment["spec"][field], base["spec"][field], "{field}");
    }
    let pod = |deployment: &Value| deployment["spec"]["template"]["spec"].clone();
    assert_eq!(parts(&pod(deployment)), parts(&pod(&base)));
    let secret = |pod: &Value| pod["volumes"][0]["secret"].clone();
    assert_eq!(secret(&pod(deployment)), secret(&pod(&base)));

    let (ours, theirs) = (manager(&chart), manager(std::slice::from_ref(&base)));
    let mut cloud = ours.cloud.clone();
    cloud.config.cloud_config.clone_from(&theirs.cloud.config.cloud_config);
    assert_eq!((cloud, &ours.controllers), (theirs.cloud.clone(), &theirs.controllers));
    assert_eq!((&ours.leader_election, &ours.kube_api), (&theirs.leader_election, &theirs.kube_api));
    assert_eq!((&ours.serving, &ours.logging), (&theirs.serving, &theirs.logging));
    assert_eq!((&ours.node, &ours.node_lifecycle, &ours.service), (&theirs.node, &theirs.node_lifecycle, &theirs.service));
}

#[test]
fn daemon_sets_are_the_same() {
    let chart = rendered(CASE);
    let base = documents("cloud-node-manager/daemonset.yaml").remove(0);
    let set = find(&chart, "DaemonSet", NODES);
    assert_eq!(set["spec"]["updateStrategy"], base["spec"]["updateStrategy"]);
    let pod = |set: &Value| set["spec"]["template"]["spec"].clone();
    assert_eq!(parts(&pod(set)), parts(&pod(&base)));
    assert_eq!(node_manager(&chart), node_manager(&[base]));

    let proxy = &documents("health-probe-proxy/container.yaml").remove(0)[0]["value"];
    let own = &pod(set)["containers"][1];
    assert_eq!(without(own, &CONTAINER_DIFFERS), without(proxy, &CONTAINER_DIFFERS));
    let container = |value: &Value| start(&serde_json::from_value(value.clone()).unwrap());
    assert_eq!(format!("{:?}", container(own)), format!("{:?}", container(proxy)));
}

/// Returns the rules of the matching roles without their names, because Go's chart has its own names.
fn rules(objects: &[Value], is_included: impl Fn(&Value) -> bool) -> Vec<(Value, Value)> {
    let roles = objects.iter().filter(|object| object["kind"] == "ClusterRole" || object["kind"] == "Role");
    let included = roles.filter(|role| is_included(&role["metadata"]["name"]));
    let mut rules: Vec<(Value, Value)> = included.map(|role| (role["kind"].clone(), role["rules"].clone())).collect();
    rules.sort_by_key(|(kind, _)| kind.to_string());
    rules
}

#[test]
fn rights_are_the_same() {
    let chart = rendered(CASE);
    let is_of = |program: &'static str| move |name: &Value| name.as_str().unwrap().contains(program);
    assert_eq!(rules(&chart, is_of(NAME)), rules(&documents("rbac.yaml"), is_of(NAME)));
    assert_eq!(rules(&chart, is_of(NODES)), rules(&documents("cloud-node-manager/rbac.yaml"), is_of(NODES)));
    let policy = documents("cloud-node-manager/admission/policy.yaml");
    for object in &policy {
        assert_eq!(find(&chart, object["kind"].as_str().unwrap(), NODES), object);
    }
    let bindings = chart.iter().filter(|object| object["kind"].as_str().unwrap().ends_with("RoleBinding"));
    for binding in bindings {
        assert_eq!(binding["subjects"].as_array().unwrap().len(), 1, "{binding}");
    }
}

#[test]
fn options_add_their_rights_and_no_others() {
    let chart = rendered("every-option");
    let reader = find(&chart, "Role", "system:cloud-controller-manager:cloud-config");
    let expected = &documents("azure/secret-reader.yaml")[0]["rules"];
    assert_eq!(reader["rules"][0]["resourceNames"], json!(["my-azure-config"]));
    assert_eq!(without(&reader["rules"][0], &["resourceNames"]), without(&expected[0], &["resourceNames"]));
    let subjects_of = |objects: &[Value], kind: &str, name: &str| find(objects, kind, name)["subjects"].clone();
    let manager = subjects_of(&chart, "ClusterRoleBinding", "system:cloud-controller-manager");
    for mut object in documents("azure/service-accounts.yaml") {
        let (kind, name) = (object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
        let found = find(&chart, kind, name).clone();
        if (kind, name) == ("RoleBinding", "system:cloud-controller-manager:service-accounts") {
            object["subjects"] = manager.clone();
        }
        assert_eq!(found, object);
    }
    // The Secret has another name than in the rights of the provider's account.
    let provider = json!({"kind": "ServiceAccount", "name": "azure-cloud-provider", "namespace": "kube-system"});
    let readers = [manager.as_array().unwrap().as_slice(), &[provider]].concat();
    assert_eq!(subjects_of(&chart, "RoleBinding", "system:cloud-controller-manager:cloud-config"), json!(readers));
    let alone = subjects_of(&rendered("manager-only"), "RoleBinding", "system:cloud-controller-manager:cloud-config");
    assert_eq!(alone.as_array().unwrap().len(), 1, "no other account acts as the provider's");
    let minimal = rendered("minimal");
    let names = |objects: &[Value]| objects.iter().filter(|object| object["kind"] == "Role").count();
    assert_eq!((names(&minimal), names(&chart)), (1, 4));
    let alone = subjects_of(&minimal, "ClusterRoleBinding", "system:cloud-controller-manager");
    assert_eq!(alone.as_array().unwrap().len(), 1);
    assert_eq!(manager[1]["kind"], "User", "the possible user of the kubeconfig");
}

#[test]
fn the_budget_keeps_one_replica_of_several() {
    let base = documents("deployment.yaml").remove(1);
    let chart = rendered("minimal");
    let budget = find(&chart, "PodDisruptionBudget", NAME);
    assert_eq!(without(&budget["spec"], &["selector"]), without(&base["spec"], &["selector"]));
    assert_eq!(budget["spec"]["selector"], find(&chart, "Deployment", NAME)["spec"]["selector"]);
    for case in ["go-defaults", "additions"] {
        assert!(rendered(case).iter().all(|object| object["kind"] != "PodDisruptionBudget"), "{case}");
    }
}

/// Files of the chart that are copies of manifests, because the chart must not depend on other folders.
const COPIES: [(&str, &str); 9] = [
    ("admission-policy.yaml", "cloud-node-manager/admission/policy.yaml"),
    ("manager-rbac.yaml", "rbac.yaml"),
    ("node-manager-rbac.yaml", "cloud-node-manager/rbac.yaml"),
    ("service-accounts.yaml", "azure/service-accounts.yaml"),
    ("webhooks/configuration.yaml", "webhooks/configuration.yaml"),
    ("webhooks/pv-labeler/configuration.yaml", "webhooks/pv-labeler/configuration.yaml"),
    ("webhooks/pv-labeler/rbac.yaml", "webhooks/pv-labeler/rbac.yaml"),
    ("webhooks/rbac.yaml", "webhooks/rbac.yaml"),
    ("webhooks/service.yaml", "webhooks/service.yaml"),
];

#[test]
fn copies_in_the_chart_are_current() {
    let (chart, manifests) = (folder("../../manifests/chart/files"), folder("../../manifests"));
    for (copy, source) in COPIES {
        let (copy, source) = (chart.join(copy), manifests.join(source));
        if env::var_os("UPDATE_DOCS").is_some() {
            fs::copy(&source, &copy).unwrap();
        }
        assert!(read(&copy) == read(&source), "{} is out of date, `make docs` writes it again", copy.display());
    }
}

#[test]
fn no_file_of_the_chart_is_a_link() {
    let mut folders = vec![folder("../../manifests/chart")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let kind = entry.file_type().unwrap();
            assert!(!kind.is_symlink(), "{}", entry.path().display());
            folders.extend(kind.is_dir().then(|| entry.path()));
        }
    }
}
