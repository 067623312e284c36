//! cloud-node-manager's DaemonSet for Windows: it differs from that for Linux only where Windows requires it.

use super::*;

const FILE: &str = "windows/daemonset.yaml";

pub(super) fn pod() -> PodSpec {
    daemon_set(FILE).spec.template.spec.unwrap()
}

#[test]
fn windows_node_managers_match_those_of_linux() {
    let [windows, linux] = [FILE, "daemonset.yaml"].map(daemon_set);
    assert_eq!(windows.spec.template.metadata.clone().unwrap().labels, windows.spec.selector.match_labels);
    assert_ne!(windows.spec.selector, linux.spec.selector);
    assert_eq!(windows.spec.update_strategy, linux.spec.update_strategy);
    let [windows, linux] = [windows, linux].map(|set| set.spec.template.spec.unwrap());
    assert_eq!(
        (&windows.service_account_name, &windows.priority_class_name, windows.host_network, &windows.tolerations),
        (&linux.service_account_name, &linux.priority_class_name, linux.host_network, &linux.tolerations)
    );
    assert_eq!(windows.node_selector.unwrap()["kubernetes.io/os"], "windows");
    let [own, other] = [windows.containers, linux.containers].map(|all| <[Container; 1]>::try_from(all).unwrap());
    let [own, other] = [own, other].map(|[container]| container);
    assert_eq!((&own.image, &own.env), (&other.image, &other.env));
    let program = own.command.as_ref().unwrap()[0].rsplit('/').next().unwrap();
    assert!(fs::read_to_string("manifests/cloud-node-manager/windows/Dockerfile").unwrap().contains(program), "{program}");

    let mut config = node_manager_config(start(&own));
    let kubeconfig = config.kube_api.kubeconfig.take().unwrap();
    let expected = node_manager_config(start(&other));
    assert_eq!((config.settings, config.use_instance_metadata), (expected.settings, expected.use_instance_metadata));
    let [mount] = <[_; 1]>::try_from(own.volume_mounts.unwrap()).unwrap();
    assert_eq!(kubeconfig, Path::new(&mount.mount_path).join("kubeconfig.conf"));
    let [volume] = <[_; 1]>::try_from(windows.volumes.unwrap()).unwrap();
    assert_eq!((&volume.name, volume.config_map.unwrap().name), (&mount.name, "kube-proxy".to_owned()));
}

#[test]
fn the_windows_component_adds_one_daemon_set() {
    assert_eq!(component("cloud-node-manager/windows")["resources"], json!(["daemonset.yaml"]));
}
