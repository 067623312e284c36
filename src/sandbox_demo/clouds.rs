//! The clouds of the demo: the fake one, and a simulated Azure.
//!
//! In: the demo's arguments. Out: a provider, the Nodes whose kubelets register, and its expected state. The simulated Azure
//! is also served on loopback, so that other processes can read it: `plan`, `doctor`, `orphans`, a shadow manager.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Node;

use crate::{
    cloud_provider::{CloudProvider, registry::ProviderConfig},
    providers::{
        azure::AzureCloud,
        fake::{CallName, FakeCloud, FakeConfig, GeneratedInstances, InstanceSpec},
    },
    runtime::{clock::Clock, shutdown::Shutdown},
    sandbox::{
        azure::{
            AzureOptions,
            topology::{Pool, PoolKind, Topology},
            world::{Serving, World},
        },
        objects,
    },
};

/// Latency of a load balancer in the demo, so that there is something to see.
const LATENCY: Duration = Duration::from_millis(400);

/// The default of `--cluster-name`.
const CLUSTER: &str = "kubernetes";

/// Cloud of the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum CloudName {
    Fake,
    /// The azure provider on a simulated Azure.
    Azure,
}

/// A cloud to run on.
pub(super) struct Cloud {
    /// Value of the flag `--cloud-provider`.
    pub(super) name: &'static str,
    pub(super) provider: Arc<dyn CloudProvider>,
    /// Nodes that kubelets register.
    pub(super) nodes: Vec<Node>,
    /// `--cluster-cidr`: where the pods of its Nodes are.
    pub(super) cluster_cidr: &'static str,
}

/// Files that name the addresses of a simulated Azure.
pub(super) struct AzureFiles<'a> {
    /// The azure provider's configuration.
    pub(super) config: &'a Path,
    /// The certificate of its authority.
    pub(super) authority: &'a Path,
}

/// Creates the cloud with `count` machines, which ends with `stop`.
pub(super) async fn make(name: CloudName, count: u32, files: AzureFiles<'_>, stop: &Shutdown) -> Result<Cloud, String> {
    match name {
        CloudName::Fake => Ok(fake(count)),
        CloudName::Azure => azure(count, files, stop).await,
    }
}

fn fake(count: u32) -> Cloud {
    let instances = GeneratedInstances {
        name_prefix: "demo-node-".into(),
        count,
        zones: vec!["zone-1".into(), "zone-2".into(), "zone-3".into()],
        address_range: ipnet::IpNet::V4(ipnet::Ipv4Net::new_assert(std::net::Ipv4Addr::new(10, 64, 0, 0), 10)),
        template: InstanceSpec::default(),
    };
    // Nodes that a user adds with kubectl find an instance as well.
    let cloud = FakeCloud::new(FakeConfig { generated_instances: vec![instances], ..FakeConfig::any_node() });
    cloud.set_latency(CallName::EnsureLoadBalancer, LATENCY);
    Cloud {
        name: "fake",
        provider: Arc::new(cloud),
        nodes: (0..count).map(fake_node).collect(),
        cluster_cidr: "10.244.0.0/16",
    }
}

fn fake_node(index: u32) -> Node {
    let mut node = objects::uninitialized_node(&format!("demo-node-{index}"));
    let cidr = format!("10.244.{index}.0/24");
    let spec = node.spec.get_or_insert_default();
    spec.pod_cidr = Some(cidr.clone());
    spec.pod_cidrs = Some(vec![cidr]);
    node
}

/// Creates half of the machines in a uniform scale set over three zones, the others of the other kinds.
async fn azure(count: u32, files: AzureFiles<'_>, stop: &Shutdown) -> Result<Cloud, String> {
    let uniform = count.div_ceil(2);
    let flexible = (count - uniform).div_ceil(2);
    let pool = |kind, name: &str, count| Pool::new(kind, name, count);
    let topology = Topology::new()
        .pool(pool(PoolKind::Uniform, "pool1", uniform).zones(&["1", "2", "3"]))
        .pool(pool(PoolKind::Flexible, "flex1", flexible))
        .pool(pool(PoolKind::AvailabilitySet, "as1", count - uniform - flexible));
    let simulation = World::new(topology, AzureOptions::default(), Clock::System).map_err(|error| error.to_string())?;
    let serving = Serving { port: 0, ca_file: Some(files.authority.to_owned()), shutdown: stop.clone() };
    let about =
        |error| format!("the simulated Azure cannot be served, or --azure-ca={}: {error}", files.authority.display());
    simulation.serve(serving).await.map_err(about)?;
    let about = |error: std::io::Error| format!("--azure-json={}: {error}", files.config.display());
    std::fs::write(files.config, format!("{:#}\n", simulation.config())).map_err(about)?;
    let config = ProviderConfig {
        cloud_config: Some(files.config.to_owned()),
        cluster_name: CLUSTER.to_owned(),
        ..ProviderConfig::default()
    };
    let transport = simulation.azure().transport();
    let provider = AzureCloud::new(&config, BTreeMap::new(), transport).map_err(|error| error.to_string())?;
    Ok(Cloud {
        name: "azure",
        provider: Arc::new(provider),
        nodes: simulation.uninitialized_nodes(),
        cluster_cidr: "100.64.0.0/10",
    })
}
