//! The DaemonSet for Nodes with Windows: it matches the kustomize component, exists in every release with node managers, and follows the
//! values.

use cloud_controller_manager::{cli::CliCommand, runtime::yaml};
use serde_json::{Value, json};

use crate::chart::{
    base::without,
    objects::{cases, find, folder, pod, read, rendered},
    programs::{node_manager_of, start},
};

const NAME: &str = "cloud-node-manager-windows";
const KUBECONFIG: &str = "/var/lib/cpaw/kubeconfig.conf";

fn set(case: &str) -> Value {
    find(&rendered(case), "DaemonSet", NAME).clone()
}

#[test]
fn windows_daemon_sets_are_the_same_in_chart_and_component() {
    let file = folder("../../manifests/cloud-node-manager/windows/daemonset.yaml");
    let base: Value = yaml::documents(&read(&file)).unwrap().remove(0);
    let chart = set("kustomize");
    assert_eq!(chart["spec"]["updateStrategy"], base["spec"]["updateStrategy"]);
    let parts = |set: &Value| {
        let spec = &set["spec"]["template"]["spec"];
        (without(spec, &["containers"]), without(&spec["containers"][0], &["args", "image", "imagePullPolicy"]))
    };
    assert_eq!(parts(&chart), parts(&base));
    assert_eq!(node_manager_of(&chart), node_manager_of(&base));
}

#[test]
fn windows_pods_are_host_processes_without_settings_of_linux() {
    let mut found = 0;
    for (case, objects) in cases() {
        let linux =
            objects.iter().any(|object| object["metadata"]["name"] == "cloud-node-manager" && object["kind"] == "DaemonSet");
        let windows = objects.iter().find(|object| object["kind"] == "DaemonSet" && object["metadata"]["name"] == NAME);
        assert_eq!(windows.is_some(), linux && case != "windows-elsewhere", "{case}");
        let Some(windows) = windows else { continue };
        let pod = pod(windows);
        let own = serde_json::to_value(pod.security_context.unwrap()).unwrap();
        let expected = json!({"windowsOptions": {"hostProcess": true, "runAsUserName": "NT AUTHORITY\\system"}});
        assert_eq!((own, pod.host_network), (expected, Some(true)), "{case}");
        assert_eq!(pod.node_selector.unwrap()["kubernetes.io/os"], "windows", "{case}");
        assert!(pod.containers.iter().all(|container| container.security_context.is_none()), "{case}");
        assert!(pod.init_containers.is_none() && pod.dns_config.is_none() && pod.host_aliases.is_none(), "{case}");
        let config = node_manager_of(windows);
        assert!(config.use_instance_metadata && config.cloud_config.is_none(), "{case}");
        found += 1;
    }
    assert!(found >= 8, "{found} cases");
}

#[test]
fn windows_values_reach_the_windows_pods_alone() {
    let objects = rendered("windows");
    let [windows, linux] = [NAME, "cloud-node-manager"].map(|name| pod(find(&objects, "DaemonSet", name)));
    let images = |pod: &k8s_openapi::api::core::v1::PodSpec| {
        pod.containers.iter().map(|container| container.image.clone().unwrap()).collect::<Vec<_>>()
    };
    let own = "registry.example.com/cloud-controller-manager";
    assert_eq!(images(&windows), [format!("{own}:v0.1.0-windows"), "registry.example.com/proxy:v2".to_owned()]);
    assert_eq!(images(&linux), [format!("{own}:v0.1.0"), format!("{own}:v0.1.0")]);
    assert!(windows.volumes.is_none() && windows.containers[0].volume_mounts.is_none());
    let config = node_manager_of(find(&objects, "DaemonSet", NAME));
    assert_eq!((config.kube_api.kubeconfig, config.kube_api.master.as_deref()), (None, Some("https://192.168.4.20:6443")));
    assert_eq!(config.serving.port, 10280, "windows.extraArgs");
    let CliCommand::ProxyProbes(proxy) = start(&windows.containers[1]) else { panic!("{:?}", windows.containers[1]) };
    assert_eq!(proxy.health_check_port, 10400);
    let resources = serde_json::to_value(windows.containers[0].resources.clone().unwrap()).unwrap();
    assert_eq!(resources, json!({"requests": {"cpu": "100m", "memory": "50Mi"}, "limits": {"cpu": "2", "memory": "256Mi"}}));
    assert_eq!(windows.node_selector.unwrap()["example.com/pool"], "win");
    assert!(!linux.node_selector.unwrap().contains_key("example.com/pool"));
    assert_eq!(windows.containers[0].env.as_ref().unwrap()[1].name, "HTTPS_PROXY");
    assert_eq!(linux.containers[0].env.as_ref().unwrap().len(), 1);

    let defaults = node_manager_of(&set("go-defaults"));
    assert_eq!(defaults.kube_api.kubeconfig.as_deref(), Some(KUBECONFIG.as_ref()));
    let resources = pod(&set("go-defaults")).containers.remove(0).resources.unwrap();
    let expected = json!({"requests": {"cpu": "50m", "memory": "50Mi"}, "limits": {"cpu": "2", "memory": "512Mi"}});
    assert_eq!(serde_json::to_value(resources).unwrap(), expected, "those of Go's chart");
}
