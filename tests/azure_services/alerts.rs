//! Faults of the cloud fire the alerts that are meant for them, and a cloud without faults fires none: the metrics of a manager, read
//! every minute of simulated time, go through promtool with the alerts that ship.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use cloud_controller_manager::{
    runtime::yaml,
    sandbox::azure::{
        AzureOptions, Effect, Fault, Omission,
        topology::{Pool, PoolKind, Topology},
    },
};
use k8s_openapi::api::core::v1::{Event, Node, NodeCondition};
use serde_json::{Value, json};

use crate::{
    cluster::{Cluster, Life, alone, ten_nodes},
    promtool::promtool,
    services::external,
};

const MINUTE: Duration = Duration::from_secs(60);
const RULES: &str = "manifests/chart/files/alerts.yaml";
/// Alerts about replicas and their port: these lives elect nobody and serve nothing.
const OF_REPLICAS: [&str; 2] = ["NoLeader", "NotReady"];

/// Values of each series, one a minute; none while it was not there.
#[derive(Default)]
struct ScrapedSeries {
    minutes: usize,
    values: BTreeMap<String, Vec<Option<f64>>>,
}

impl ScrapedSeries {
    /// Reads the metrics every minute for so long.
    async fn read(&mut self, life: &Life, minutes: usize) {
        for _ in 0..minutes {
            tokio::time::sleep(MINUTE).await;
            life.metrics.observe();
            let text = life.metrics.render().unwrap();
            for (series, value) in
                text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' '))
            {
                let values = self.values.entry(series.to_owned()).or_default();
                values.resize(self.minutes, None);
                values.push(value.parse().ok());
            }
            self.minutes += 1;
        }
    }

    fn series(&self) -> Vec<Value> {
        let word = |value: &Option<f64>| value.map_or_else(|| "_".to_owned(), |value| value.to_string());
        let words = |values: &[Option<f64>]| values.iter().map(word).collect::<Vec<_>>().join(" ");
        self.values.iter().map(|(name, values)| json!({"series": with_instance(name), "values": words(values)})).collect()
    }

    /// The alerts that fire at some minute.
    fn firing(&self) -> BTreeSet<String> {
        let rules: Value = yaml::parse(&std::fs::read_to_string(RULES).unwrap()).unwrap();
        let groups = rules["groups"].as_array().unwrap().iter();
        let alerts: Vec<Value> = groups.flat_map(|group| group["rules"].as_array().unwrap().clone()).collect();
        let asked = (0..self.minutes).flat_map(|minute| {
            let expect = move |alert: &Value| json!({"eval_time": format!("{minute}m"), "alertname": alert["alert"], "exp_alerts": []});
            alerts.iter().map(expect).collect::<Vec<_>>()
        });
        let test = json!({"interval": "1m", "input_series": self.series(), "alert_rule_test": asked.collect::<Vec<_>>()});
        let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join(RULES);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(
            file.path(),
            json!({"rule_files": [rules], "evaluation_interval": "1m", "tests": [test]}).to_string(),
        )
        .unwrap();
        let (_, told) = promtool(&["test", "rules", file.path().to_str().unwrap()], Path::new("."), "");
        assert!(told.contains("SUCCESS") || told.contains("alertname:"), "{told}");
        let named = told.split("alertname: CloudControllerManager").skip(1).filter_map(|rest| rest.split(',').next());
        named.map(str::to_owned).filter(|name| !OF_REPLICAS.contains(&name.as_str())).collect()
    }
}

/// As Prometheus names whom it has read.
fn with_instance(series: &str) -> String {
    match series.split_once('{') {
        Some((name, labels)) => format!("{name}{{instance=\"a:10258\",{labels}"),
        None => format!("{series}{{instance=\"a:10258\"}}"),
    }
}

fn set(alerts: &[&str]) -> BTreeSet<String> {
    alerts.iter().map(|alert| (*alert).to_owned()).collect()
}

fn ready(node: &mut Node, status: &str) {
    let condition = NodeCondition { type_: "Ready".into(), status: status.into(), ..NodeCondition::default() };
    node.status.get_or_insert_default().conditions = Some(vec![condition]);
}

/// Services that are served.
async fn served(topology: Topology, services: usize) -> (Cluster, Life, ScrapedSeries) {
    let cluster = Cluster::new(topology, AzureOptions::default());
    (0..services).for_each(|index| drop(cluster.create(&external(&format!("s{index}")))));
    let life = cluster.start();
    cluster.until_ready(10 * MINUTE).await;
    let mut scraped = ScrapedSeries::default();
    scraped.read(&life, 5).await;
    (cluster, life, scraped)
}

#[test]
fn a_cloud_without_faults_fires_none() {
    alone(async {
        let (cluster, life, mut scraped) = served(ten_nodes(), 10).await;
        for index in 0..5 {
            cluster.create(&external(&format!("late-{index}")));
            cluster.delete(&format!("s{index}"));
            scraped.read(&life, 10).await;
        }
        assert_eq!(scraped.firing(), set(&[]));
        life.stop().await;
    });
}

#[test]
fn a_role_that_is_taken_away_is_told() {
    alone(async {
        let (cluster, life, mut scraped) = served(ten_nodes(), 3).await;
        cluster.azure().add_fault(Fault::new(Effect::Forbidden));
        (0..5).for_each(|index| drop(cluster.create(&external(&format!("late-{index}")))));
        scraped.read(&life, 90).await;
        let firing = scraped.firing();
        for alert in ["ArmForbidden", "ServicesFailing", "ServiceStuck", "InventoryOld"] {
            assert!(firing.contains(alert), "{alert} is not among {firing:?}");
        }
        life.stop().await;
    });
}

#[test]
fn throttling_is_told() {
    alone(async {
        let (cluster, life, mut scraped) = served(ten_nodes(), 3).await;
        let refuse = Effect::Refuse(429, "TooManyRequests".into(), Some(45));
        cluster.azure().add_fault(Fault::new(refuse).with_probability(0.5).lasting(30 * MINUTE));
        for index in 0..40 {
            cluster.create(&external(&format!("late-{index}")));
            scraped.read(&life, 1).await;
        }
        let firing = scraped.firing();
        for alert in ["ArmThrottled", "BudgetWait"] {
            assert!(firing.contains(alert), "{alert} is not among {firing:?}");
        }
        life.stop().await;
    });
}

#[test]
fn machines_that_azure_denies_are_told() {
    alone(async {
        let pools = [("pool0", 60), ("pool1", 40)].map(|(name, count)| Pool::new(PoolKind::Uniform, name, count));
        let topology = pools.into_iter().fold(Topology::new(), Topology::pool);
        let (cluster, life, mut scraped) = served(topology, 1).await;
        for machine in cluster.world.machines() {
            let status = if machine.pool.name == "pool0" { "Unknown" } else { "True" };
            cluster.server.update_with::<Node>("", &machine.computer_name(), |node| ready(node, status));
        }
        // They exist. ARM says that they do not, and lists half of them.
        let (machines, lists) = ("*/virtualMachineScaleSets/pool0/virtualMachines/*", "*/pool0/virtualMachines");
        cluster.azure().add_fault(Fault::refuse(404, "ResourceNotFound").path(machines));
        cluster.azure().add_fault(Fault::new(Effect::PartialList(Omission::EveryOther)).path(lists));
        scraped.read(&life, 30).await;
        let (firing, events) = (scraped.firing(), cluster.server.list::<Event>());
        let reasons: BTreeSet<_> = events.iter().filter_map(|event| event.reason.clone()).collect();
        assert!(firing.contains("MassDeletionHeld"), "{firing:?} {reasons:?}");
        life.stop().await;
    });
}

#[test]
fn nodes_that_wait_for_their_machine_are_told() {
    alone(async {
        let (cluster, life, mut scraped) = served(ten_nodes(), 1).await;
        let pool = cluster.world.machines()[0].pool.name.clone();
        let names = cluster.world.scale_out(&pool, 3).unwrap();
        for name in &names {
            cluster.server.create::<Node>(&cluster.world.uninitialized_node(name).unwrap());
        }
        scraped.read(&life, 10).await;
        assert_eq!(scraped.firing(), set(&[]), "they are initialised");

        // Azure does not show their machines for half an hour.
        let names = cluster.world.scale_out(&pool, 3).unwrap();
        cluster.azure().add_fault(Fault::refuse(500, "InternalServerError").lasting(30 * MINUTE));
        for name in &names {
            cluster.server.create::<Node>(&cluster.world.uninitialized_node(name).unwrap());
        }
        scraped.read(&life, 45).await;
        let firing = scraped.firing();
        for alert in ["NodesUninitialized", "NodesSlow"] {
            assert!(firing.contains(alert), "{alert} is not among {firing:?}");
        }
        life.stop().await;
    });
}
