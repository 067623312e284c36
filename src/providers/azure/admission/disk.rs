//! Location of an Azure disk, for `pv-labeler`.
//!
//! In: a PersistentVolume. Out: region and zone, read from the disk that its `diskURI` names. Volumes of the CSI driver have
//! their own node affinity and are skipped. Any client of the webhook port can cause reads. So only disks of the configured
//! subscriptions are read, with the lowest urgency, few concurrently ([`reads`]), and ARM's error messages are only logged.

mod reads;

use std::{collections::BTreeMap, sync::Arc};

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use k8s_openapi::api::core::v1::PersistentVolume;
use serde::Deserialize;

use super::super::{
    arm::Urgency,
    model::{ArmError, ResourceId, api, spelling},
    session::Session,
    session_proxy::current_session,
};
use crate::{
    cloud_provider::{CloudError, CloudResult, PvLabeler},
    providers::azure::config::AzureConfig,
};
use reads::DiskReads;

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
/// Name of a disk that does not exist yet.
const PLACEHOLDER: &str = "placeholder-for-provisioning";

/// Labeler of volumes, with the current configuration.
pub(in super::super) struct DiskLabeler {
    session: Arc<ArcSwapOption<Session>>,
    reads: DiskReads,
}

impl DiskLabeler {
    pub(in super::super) fn new(session: Arc<ArcSwapOption<Session>>) -> Self {
        Self { session, reads: DiskReads::default() }
    }
}

/// Disk in ARM, with the used fields.
#[derive(Deserialize, Default)]
#[serde(default)]
struct ManagedDisk {
    location: String,
    zones: Vec<String>,
}

#[async_trait]
impl PvLabeler for DiskLabeler {
    async fn labels_for_volume(&self, volume: &PersistentVolume) -> CloudResult<BTreeMap<String, String>> {
        let Some(id) = disk(volume)? else { return Ok(BTreeMap::new()) };
        let session = current_session(&self.session)?;
        if !is_configured(&id, &session.config) {
            return Err(CloudError::refused("spec.azureDisk.diskURI: the disk is in a subscription that is not configured"));
        }
        let read = async || {
            let client = session.compute.with_urgency(Urgency::Resync);
            let disk: ManagedDisk = client.get(&api::DISKS, &id, &[]).await?;
            Ok::<_, ArmError>(labels(&disk))
        };
        self.reads.labels(&id, read).await
    }
}

/// Returns the ID of a volume's Azure disk; `None` for other volumes and for placeholders.
fn disk(volume: &PersistentVolume) -> CloudResult<Option<ResourceId>> {
    let source = volume.spec.as_ref().and_then(|spec| spec.azure_disk.as_ref());
    let Some(source) = source.filter(|source| source.disk_name != PLACEHOLDER) else { return Ok(None) };
    let invalid = || CloudError::refused("spec.azureDisk.diskURI: expected the resource id of a managed disk");
    let id = ResourceId::parse(&source.disk_uri).map_err(|_| invalid())?;
    if id.is_type(api::DISKS.resource_type) { Ok(Some(id)) } else { Err(invalid()) }
}

fn is_configured(id: &ResourceId, config: &AzureConfig) -> bool {
    let configured = [&config.subscription_id, &config.network_resource_subscription_id];
    configured.iter().any(|subscription| spelling::same_word(subscription, id.subscription()))
}

fn labels(disk: &ManagedDisk) -> BTreeMap<String, String> {
    let region = disk.location.to_lowercase();
    let zone = disk.zones.first().map(|zone| (ZONE.to_owned(), format!("{region}-{zone}")));
    zone.into_iter().chain([(REGION.to_owned(), region)]).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn volume(source: &serde_json::Value) -> PersistentVolume {
        serde_json::from_value(json!({"metadata": {"name": "v"}, "spec": source})).unwrap()
    }

    #[test]
    fn only_existing_disks_are_read() {
        let id = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/disks/d";
        let of = |name: &str, uri: &str| volume(&json!({"azureDisk": {"diskName": name, "diskURI": uri}}));
        assert_eq!(disk(&of("d", id)).unwrap().unwrap().as_str(), id);
        assert_eq!(disk(&of(PLACEHOLDER, "x")).unwrap(), None);
        assert_eq!(disk(&volume(&json!({"hostPath": {"path": "/x"}}))).unwrap(), None);
        for uri in ["", "https://a.blob.core.windows.net/vhds/d.vhd", &id.replace("disks", "snapshots")] {
            assert!(disk(&of("d", uri)).is_err(), "{uri}");
        }
    }

    #[test]
    fn only_disks_of_the_configured_subscriptions_are_read() {
        let config = AzureConfig {
            subscription_id: "s-1".to_owned(),
            network_resource_subscription_id: "s-2".to_owned(),
            ..AzureConfig::default()
        };
        let of = |subscription: &str| ResourceId::group_of(subscription, "rg").resource(api::DISKS.resource_type, &["d"]);
        for (subscription, is_read) in [("s-1", true), ("S-1", true), ("s-2", true), ("s-3", false)] {
            assert_eq!(is_configured(&of(subscription), &config), is_read, "{subscription}");
        }
    }

    #[test]
    fn zones_are_named_after_their_region() {
        let of = |zones: &[&str]| {
            let zones = zones.iter().map(|zone| (*zone).to_owned()).collect();
            labels(&ManagedDisk { location: "EastUS".to_owned(), zones })
        };
        let region = (REGION.to_owned(), "eastus".to_owned());
        assert_eq!(of(&[]), BTreeMap::from([region.clone()]));
        assert_eq!(of(&["2"]), BTreeMap::from([region, (ZONE.to_owned(), "eastus-2".to_owned())]));
    }
}
