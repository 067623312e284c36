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

/// Name for `--webhooks`.
pub const PV_LABELER: &str = "pv-labeler";
/// Where it is served.
pub const PV_LABELER_PATH: &str = "/label-v1-persistentvolume";

/// What a cloud knows of volumes.
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
    /// The webhook that asks `labeler`.
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
        Ok(match self.labeler.labels_for_volume(&volume).await {
            Ok(labels) => AdmissionAnswer { patch: patch::patch(&volume, &labels), ..AdmissionAnswer::allowed() },
            Err(error) => AdmissionAnswer::refused(format!("cannot tell where the volume is: {error}")),
        })
    }
}
