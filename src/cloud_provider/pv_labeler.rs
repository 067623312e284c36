//! `pv-labeler`: a volume made by hand gets the labels of where it is, and pods that use it are kept there.
//!
//! In: a PersistentVolume about to be created, and a provider's [`PvLabeler`]. Out: a patch of its labels and its required node affinity,
//! or why it may not be created. Applying it again changes nothing. Upstream: the admission plugin `PersistentVolumeLabel`
//! (`plugin/pkg/admission/storage/persistentvolume/label` of Kubernetes before 1.31), and `cloud.go`, `PVLabeler`.

mod patch;

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::PersistentVolume;

use super::{AdmissionAnswer, AdmissionRequest, AdmissionWebhook, CloudResult};

/// Value for the flag `--webhooks`.
pub const PV_LABELER: &str = "pv-labeler";
/// Path of the webhook.
pub const PV_LABELER_PATH: &str = "/label-v1-persistentvolume";

/// Cloud metadata of volumes.
#[async_trait]
pub trait PvLabeler: Send + Sync {
    /// Labels of where the volume is; none for volumes that are not this cloud's.
    async fn labels_for_volume(&self, volume: &PersistentVolume) -> CloudResult<BTreeMap<String, String>>;
}

/// The webhook over a provider's labels.
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
            Err(reason) => AdmissionAnswer::refused(format!("cannot tell where the volume is: {reason}")),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{cloud_provider::CloudError, runtime::admission::AdmissionType};

    /// Knows nothing of any volume.
    struct Ignorant;

    #[async_trait]
    impl PvLabeler for Ignorant {
        async fn labels_for_volume(&self, _: &PersistentVolume) -> CloudResult<BTreeMap<String, String>> {
            Err(CloudError::failed("invalid volume"))
        }
    }

    #[tokio::test]
    async fn a_cloud_that_cannot_tell_refuses_unless_the_provisioner_has_told() {
        let webhook = PvLabelWebhook::new(Arc::new(Ignorant));
        let asked = |annotations: serde_json::Value| {
            let labels = json!({"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"});
            let object = json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": {}});
            let kind =
                AdmissionType { version: "v1".to_owned(), kind: "persistentvolumes".to_owned(), ..Default::default() };
            let operation = "CREATE".to_owned();
            AdmissionRequest { resource: kind, operation, object: object.into(), ..AdmissionRequest::default() }
        };
        let refused = webhook.review(&asked(json!({}))).await.unwrap().refusal.unwrap();
        assert!(
            refused.starts_with("cannot tell where the volume is: ") && refused.ends_with("invalid volume"),
            "{refused}"
        );
        let trusted = webhook.review(&asked(json!({"pv.kubernetes.io/provisioned-by": "x"}))).await.unwrap();
        assert_eq!((trusted.refusal, trusted.patch.len()), (None, 1), "its node affinity");
        assert_eq!(trusted.patch[0]["path"], "/spec/nodeAffinity");
    }
}
