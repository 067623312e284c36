//! A configuration that changes while the program runs: load balancers follow it, also those whose Services are being ensured.

use std::time::Duration;

use cloud_controller_manager::sandbox::azure::{AzureOptions, Class, Latencies, Latency};
use serde_json::{Value, json};

use crate::azure_services::{
    cluster::{Cluster, HOUR, Manager, two_nodes},
    services::external,
};

const KINDS: [&str; 3] =
    ["Microsoft.Network/loadBalancers", "Microsoft.Network/publicIPAddresses", "Microsoft.Network/networkSecurityGroups"];
/// Longer than the detection of a change and the list of the machines take.
const NOTICED: Duration = Duration::from_secs(60);
const OPERATION: Duration = Duration::from_secs(300);

struct Setting {
    cluster: Cluster,
    manager: Manager,
    folder: tempfile::TempDir,
}

impl Setting {
    fn with(options: AzureOptions) -> Self {
        let cluster = Cluster::new(two_nodes(), options).configured("tags", "team=old");
        let folder = tempfile::tempdir().unwrap();
        let manager = cluster.start_following(&folder.path().join("azure.json"));
        Self { cluster, manager, folder }
    }

    fn write_tags(&self, tags: &str) {
        let mut config = self.cluster.cloud.config();
        config["tags"] = json!(tags);
        std::fs::write(self.folder.path().join("azure.json"), config.to_string()).unwrap();
    }

    /// Returns the tag `team` of all documents that have one, without repetitions.
    fn teams(&self) -> Vec<Value> {
        let documents = KINDS.iter().flat_map(|kind| self.cluster.azure().documents_of(kind));
        let mut teams: Vec<Value> = documents.filter_map(|document| document["tags"].get("team").cloned()).collect();
        teams.sort_by_key(Value::to_string);
        teams.dedup();
        teams
    }
}

#[tokio::test(start_paused = true)]
async fn services_in_flight_follow_changed_tags() {
    let slow = Latency { respond: Duration::from_millis(50), operation: OPERATION };
    let latencies = Latencies::default().with(Class::Write, "microsoft.network/publicipaddresses", slow);
    let setting = Setting::with(AzureOptions { latencies, ..AzureOptions::default() });
    ["a", "b"].iter().for_each(|name| drop(setting.cluster.create(&external(name))));
    let is_sent = |cluster: &Cluster| cluster.writes().iter().any(|write| write.contains("publicIPAddresses"));
    setting.cluster.until("a public IP is sent", HOUR, is_sent).await;
    setting.write_tags("team=new");
    tokio::time::sleep(NOTICED).await;
    assert_eq!(setting.teams(), [json!("old")], "the operations last longer");
    setting.cluster.until("all documents have the new tag", HOUR, |_| setting.teams() == [json!("new")]).await;
    setting.cluster.until_ready(HOUR).await;
    // The calls that were in progress at the change have ended: they write nothing with the old tag, and created nothing twice.
    setting.cluster.settle().await;
    assert_eq!(setting.teams(), [json!("new")]);
    assert_eq!((setting.cluster.public_ips().len(), setting.cluster.balancers().len()), (2, 1));
    // Services for which nothing is in progress follow, too.
    setting.write_tags("team=newest");
    setting.cluster.until("all documents have the newest tag", HOUR, |_| setting.teams() == [json!("newest")]).await;
    setting.manager.stop().await;
}
