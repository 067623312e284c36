//! External changes on the status page. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Response to an external change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DriftOutcome {
    /// Reverted to the desired state.
    Repaired,
    /// Left unchanged, as configured.
    Reported,
    /// Left unchanged until later, because it keeps coming back.
    Delayed,
}

impl DriftOutcome {
    /// Returns the name for metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Repaired => "repaired",
            Self::Reported => "reported",
            Self::Delayed => "delayed",
        }
    }
}

/// External change to a cloud resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftNote {
    /// Service, `namespace/name`, or Node; empty if the change concerns no object.
    pub about: String,
    /// Time of the finding, to the second.
    pub found: Timestamp,
    /// Response to the change.
    pub outcome: DriftOutcome,
    /// Changed fields, and the time range.
    #[serde(rename = "what")]
    pub detail: String,
}

/// External changes to load balancers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DriftStatus {
    /// Value of `driftPolicy` in the configuration.
    pub policy: String,
    /// Number of Services with changes that are not reverted.
    pub drifted: usize,
    /// The first 100 of these Services, by `namespace/name`.
    pub services: BTreeMap<String, DriftedService>,
    /// Latest changes, including those that were reverted.
    pub latest: Vec<DriftNote>,
}

/// External changes to the resources of one Service that are not reverted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DriftedService {
    /// Time at which everything was last as desired.
    #[serde(rename = "right")]
    pub last_correct: Option<String>,
    /// Time of the finding.
    pub found: String,
    /// Changed resources, with their fields.
    pub documents: Vec<String>,
    /// Time after which they are reverted; `None`: they are only reported.
    pub repair_after: Option<String>,
}
