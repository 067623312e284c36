//! Admission webhook `pv-labeler`: labels a statically created volume with its location, and schedules Pods that use it
//! there.
//!
//! In: a PersistentVolume that a user creates, and the [`PvLabeler`] of a provider. Out: a patch of its labels and required
//! node affinity, or the reason why it is denied. The patch is idempotent. Upstream: the admission plugin
//! `PersistentVolumeLabel` (`plugin/pkg/admission/storage/persistentvolume/label` of Kubernetes before 1.31), and
//! `cloud.go`, `PVLabeler`.

mod patch;

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::PersistentVolume;

use super::{AdmissionAnswer, AdmissionRequest, AdmissionWebhook, CloudResult};

/// Name of the webhook in `--webhooks`.
pub const PV_LABELER: &str = "pv-labeler";
/// HTTP path of the webhook.
pub const PV_LABELER_PATH: &str = "/label-v1-persistentvolume";

/// Source of the locations of volumes. Upstream: `cloud.go`, `PVLabeler`.
#[async_trait]
pub trait PvLabeler: Send + Sync {
    /// Returns the labels of the location of `volume`, such as its zone; empty if the volume belongs to another cloud.
    ///
    /// Upstream: `GetLabelsForVolume`.
    ///
    /// # Errors
    ///
    /// Any error means that the webhook denies the creation of the volume.
    async fn labels_for_volume(&self, volume: &PersistentVolume) -> CloudResult<BTreeMap<String, String>>;
}

/// Admission webhook that labels volumes with the result of a [`PvLabeler`].
pub struct PvLabelWebhook {
    labeler: Arc<dyn PvLabeler>,
}

impl PvLabelWebhook {
    /// Creates the webhook that uses `labeler`.
    pub fn new(labeler: Arc<dyn PvLabeler>) -> Self {
        Self { labeler }
    }
}

#[async_trait]
impl AdmissionWebhook for PvLabelWebhook {
    fn name(&self) -> &'static str {
        PV_LABELER
    }

    fn path(&self) -> &'static str {
        PV_LABELER_PATH
    }

    async fn review(&self, request: &AdmissionRequest) -> Result<AdmissionAnswer, String> {
        let Some(volume) = patch::volume_to_label(request) else { return Ok(AdmissionAnswer::allowed()) };
        let labels = match patch::labels_of_provisioner(&volume) {
            Some(labels) => Ok(labels),
            None => self.labeler.labels_for_volume(&volume).await.map_err(|error| error.to_string()),
        };
        Ok(match labels.and_then(|labels| patch::patch(&volume, &labels)) {
            Ok(patch) => AdmissionAnswer { patch, ..AdmissionAnswer::allowed() },
            Err(reason) => AdmissionAnswer::refused(format!("cannot determine the location of the volume: {reason}")),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{cloud_provider::CloudError, runtime::admission::AdmissionType};

    /// Labeler that fails for every volume.
    struct FailingLabeler;

    #[async_trait]
    impl PvLabeler for FailingLabeler {
        async fn labels_for_volume(&self, _: &PersistentVolume) -> CloudResult<BTreeMap<String, String>> {
            Err(CloudError::failed("invalid volume"))
        }
    }

    #[tokio::test]
    async fn without_labels_only_provisioned_volumes_are_allowed() {
        let webhook = PvLabelWebhook::new(Arc::new(FailingLabeler));
        let request = |annotations: serde_json::Value| {
            let labels = json!({"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"});
            let object = json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": {}});
            let kind =
                AdmissionType { version: "v1".to_owned(), kind: "persistentvolumes".to_owned(), ..Default::default() };
            let operation = "CREATE".to_owned();
            AdmissionRequest { resource: kind, operation, object: object.into(), ..AdmissionRequest::default() }
        };
        let refused = webhook.review(&request(json!({}))).await.unwrap().refusal.unwrap();
        assert!(
            refused.starts_with("cannot determine the location of the volume: ") && refused.ends_with("invalid volume"),
            "{refused}"
        );
        let allowed = webhook.review(&request(json!({"pv.kubernetes.io/provisioned-by": "x"}))).await.unwrap();
        assert_eq!((allowed.refusal, allowed.patch.len()), (None, 1), "the patch adds its node affinity");
        assert_eq!(allowed.patch[0]["path"], "/spec/nodeAffinity");
    }
}
