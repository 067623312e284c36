//! A replacement for the Deployment controller and the kubelets: each replica of a Deployment is a process on this host.
//!
//! Input: Deployments of kube-system. Output: processes with their flags and accounts, and the status that `kubectl rollout status` waits
//! for. Replicas of one Deployment have the same port, at loopback addresses of their own.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::{control_plane::ControlPlane, support::Manager};

/// Replicas by Deployment.
pub(super) struct Kubelet {
    deployments: Api<Deployment>,
    config: PathBuf,
    ca_file: PathBuf,
    running: BTreeMap<String, Vec<Manager>>,
    started: usize,
    /// Deployments of the Go program, which does not release its lease when it ends.
    go: &'static str,
}

impl Kubelet {
    pub(super) async fn new(plane: &ControlPlane, (config, ca_file): (&Path, &Path), go: &'static str) -> Self {
        let deployments = Api::namespaced(plane.admin().await, "kube-system");
        Self {
            deployments,
            config: config.to_owned(),
            ca_file: ca_file.to_owned(),
            running: BTreeMap::new(),
            started: 0,
            go,
        }
    }

    /// Returns the file of the certificate authority of the simulated Azure.
    pub(super) fn ca_file(&self) -> &Path {
        &self.ca_file
    }

    /// Returns the processes of a Deployment.
    pub(super) fn replicas(&self, deployment: &str) -> &[Manager] {
        self.running.get(deployment).map(Vec::as_slice).unwrap_or_default()
    }

    /// Ends a replica as if its pod was deleted. The next `sync` starts another.
    pub(super) async fn delete_pod(&mut self, deployment: &str, index: usize) {
        let replica = self.running.get_mut(deployment).expect("replicas").remove(index);
        replica.stop().await;
    }

    /// Reconciles the processes with all Deployments.
    pub(super) async fn sync(&mut self, plane: &ControlPlane) {
        let deployments = self.deployments.list(&Default::default()).await.expect("Deployments").items;
        let names: BTreeSet<String> = deployments.iter().filter_map(|deployment| deployment.metadata.name.clone()).collect();
        for removed in self.running.keys().filter(|name| !names.contains(*name)).cloned().collect::<Vec<_>>() {
            self.scale(&removed, 0).await;
            self.running.remove(&removed);
        }
        for deployment in deployments {
            let name = deployment.metadata.name.clone().expect("a name");
            let replicas = deployment.spec.replicas.unwrap_or(1);
            self.scale(&name, usize::try_from(replicas).expect("a number")).await;
            self.start_missing(plane, &name, &deployment).await;
            self.write_status(&name, &deployment).await;
        }
    }

    async fn scale(&mut self, name: &str, replicas: usize) {
        while self.replicas(name).len() > replicas {
            let replica = self.running.get_mut(name).and_then(Vec::pop).expect("a replica");
            if name == self.go { replica.kill() } else { replica.stop().await }
        }
    }

    async fn start_missing(&mut self, plane: &ControlPlane, name: &str, deployment: &Deployment) {
        let spec = &deployment.spec;
        let pod = spec.template.spec.as_ref().expect("a pod");
        let account = pod.service_account_name.clone().expect("an account");
        let args = pod.containers[0].args.clone().unwrap_or_default();
        for index in self.replicas(name).len()..usize::try_from(spec.replicas.unwrap_or(1)).expect("a number") {
            let kubeconfig = plane.powerless_kubeconfig(&account).await;
            let number = self.free_number(name, index);
            let address = format!("--bind-address=127.0.0.{number}");
            let shared_flags = args.iter().filter(|flag| !flag.starts_with("--cloud-config=")).map(String::as_str);
            let flags: Vec<&str> = shared_flags.chain([address.as_str()]).collect();
            self.started += 1;
            let log = format!("{name}-{}", self.started);
            let replica = Manager::start_azure(plane, &log, &kubeconfig, (&self.config, &self.ca_file), &flags);
            self.running.entry(name.to_owned()).or_default().push(replica);
        }
    }

    /// Returns the last number of a loopback address that no replica of the Deployment uses.
    fn free_number(&self, name: &str, index: usize) -> usize {
        let used: Vec<&str> = self.replicas(name).iter().map(Manager::host).collect();
        (1..=index + 1).find(|last| !used.contains(&format!("127.0.0.{last}").as_str())).unwrap_or(index + 1)
    }

    async fn write_status(&self, name: &str, deployment: &Deployment) {
        let (all, mut ready) = (self.replicas(name).len(), 0);
        for replica in self.replicas(name) {
            ready += usize::from(replica.is_ready().await);
        }
        let status = json!({"status": {
            "observedGeneration": deployment.metadata.generation, "replicas": all, "updatedReplicas": all,
            "readyReplicas": ready, "availableReplicas": ready,
        }});
        // The Deployment may have just been deleted.
        let _ = self.deployments.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await;
    }
}
