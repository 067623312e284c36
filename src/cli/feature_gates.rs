//! Feature gates: name, default, stage and effect of each, and resolution of `--feature-gates`. Pure.
//!
//! A Go cloud-controller-manager accepts every gate that `k8s.io/apiserver`, `k8s.io/controller-manager` and
//! `k8s.io/component-base` register. Most of them control an API server and have no effect in a client. Each minor version adds, locks and
//! removes some. This program serves many versions, so no gate is an error.

use std::collections::BTreeMap;

use super::value::MapStringBool;
use crate::flags::quoted;

/// Maturity of a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeatureStage {
    /// Off by default, may be removed.
    Alpha,
    /// Usually on by default, may still change in detail.
    Beta,
    Stable,
    /// Removed in a later release.
    Deprecated,
}

impl FeatureStage {
    /// Returns the name on the reference page.
    pub fn name(self) -> &'static str {
        match self {
            FeatureStage::Alpha => "alpha",
            FeatureStage::Beta => "beta",
            FeatureStage::Stable => "stable",
            FeatureStage::Deprecated => "deprecated",
        }
    }

    /// Returns the label `stage` of the metric of feature gates. Upstream leaves it empty for stable features.
    pub fn label(self) -> &'static str {
        match self {
            FeatureStage::Alpha => "ALPHA",
            FeatureStage::Beta => "BETA",
            FeatureStage::Stable => "",
            FeatureStage::Deprecated => "DEPRECATED",
        }
    }
}

/// Row of the table of feature gates.
#[derive(Debug, Clone, Copy)]
pub struct FeatureSpec {
    pub name: &'static str,
    /// Whether the feature is on by default.
    pub default: bool,
    pub stage: FeatureStage,
    /// Effect in this program; `None` if the gate is accepted without effect.
    pub effect: Option<&'static str>,
}

/// Gate of routes that follow node events (KEP-5237).
pub const WATCH_BASED_ROUTES: &str = "CloudControllerManagerWatchBasedRoutesReconciliation";
/// Gate of the admission webhooks of the provider (KEP-2699).
pub const WEBHOOKS: &str = "CloudControllerManagerWebhook";
/// Gate of the page `/statusz`.
pub const STATUSZ: &str = "ComponentStatusz";
/// Gate of the page `/flagz`.
pub const FLAGZ: &str = "ComponentFlagz";

const ALL_ALPHA: &str = "AllAlpha";
const ALL_BETA: &str = "AllBeta";

const fn effective(name: &'static str, default: bool, stage: FeatureStage, effect: &'static str) -> FeatureSpec {
    FeatureSpec { name, default, stage, effect: Some(effect) }
}

const fn ignored(name: &'static str, default: bool, stage: FeatureStage) -> FeatureSpec {
    FeatureSpec { name, default, stage, effect: None }
}

/// Gates of Kubernetes 1.37, ordered by name.
pub const TABLE: &[FeatureSpec] = &[
    ignored("APIResponseCompression", true, FeatureStage::Beta),
    ignored("APIServerIdentity", true, FeatureStage::Beta),
    ignored("APIServerWebhookAuthenticationToken", false, FeatureStage::Alpha),
    ignored("APIServingWithRoutine", false, FeatureStage::Alpha),
    ignored("AggregatedDiscoveryRemoveBetaType", true, FeatureStage::Deprecated),
    effective(ALL_ALPHA, false, FeatureStage::Alpha, "Sets every alpha gate that is not set by name."),
    effective(ALL_BETA, false, FeatureStage::Beta, "Sets every beta gate that is not set by name."),
    ignored("AllowParsingUserUIDFromCertAuth", true, FeatureStage::Beta),
    ignored("AllowUnsafeMalformedObjectDeletion", true, FeatureStage::Beta),
    ignored("AtomicFIFO", true, FeatureStage::Beta),
    ignored("CBORServingAndStorage", false, FeatureStage::Alpha),
    ignored("ClientsAllowCBOR", false, FeatureStage::Alpha),
    ignored("ClientsPreferCBOR", false, FeatureStage::Alpha),
    effective(
        WATCH_BASED_ROUTES,
        true,
        FeatureStage::Alpha,
        "Routes follow node events, and are also compared with the cloud at a long interval. When off, only \
         --route-reconciliation-period applies. Upstream's default is false.",
    ),
    effective(WEBHOOKS, false, FeatureStage::Alpha, "Hosts the admission webhooks that `--webhooks` names."),
    effective(FLAGZ, true, FeatureStage::Beta, "Serves /flagz."),
    effective(STATUSZ, true, FeatureStage::Beta, "Serves /statusz."),
    ignored("ConcurrentWatchObjectDecode", true, FeatureStage::Beta),
    ignored("ConsistentListFromCacheSkipTimeoutFallback", false, FeatureStage::Alpha),
    ignored("ConstrainedImpersonation", true, FeatureStage::Beta),
    ignored("ContextualLogging", true, FeatureStage::Beta),
    ignored("ControllerManagerReleaseLeaderElectionLockOnExit", false, FeatureStage::Alpha),
    ignored("CoordinatedLeaderElection", false, FeatureStage::Beta),
    ignored("DeclarativeValidation", true, FeatureStage::Stable),
    ignored("DeclarativeValidationBeta", true, FeatureStage::Beta),
    ignored("DeclarativeValidationTakeover", false, FeatureStage::Deprecated),
    ignored("DetectCacheInconsistency", true, FeatureStage::Beta),
    ignored("EtcdRangeStream", true, FeatureStage::Beta),
    ignored("ExcludeAdmissionWebhookVirtualResources", true, FeatureStage::Beta),
    ignored("InOrderInformers", true, FeatureStage::Stable),
    ignored("InformerResourceVersion", true, FeatureStage::Stable),
    ignored("KMSv1", false, FeatureStage::Deprecated),
    ignored("ListFromCacheSnapshot", true, FeatureStage::Beta),
    ignored("LoggingAlphaOptions", false, FeatureStage::Alpha),
    ignored("LoggingBetaOptions", true, FeatureStage::Beta),
    ignored("ManifestBasedAdmissionControlConfig", true, FeatureStage::Beta),
    ignored("MutatingAdmissionPolicy", true, FeatureStage::Stable),
    ignored("NativeHistograms", true, FeatureStage::Beta),
    ignored("OpenAPIEnums", true, FeatureStage::Beta),
    ignored("RemoteRequestHeaderUID", true, FeatureStage::Beta),
    ignored("SeparateCacheWatchRPC", false, FeatureStage::Deprecated),
    ignored("ShardedListAndWatch", false, FeatureStage::Alpha),
    ignored("SizeBasedListCostEstimate", true, FeatureStage::Beta),
    ignored("StorageVersionAPI", false, FeatureStage::Alpha),
    ignored("StorageVersionHash", true, FeatureStage::Beta),
    ignored("StructuredAuthenticationConfigurationEgressSelector", true, FeatureStage::Beta),
    ignored("StructuredAuthenticationConfigurationJWKSMetrics", true, FeatureStage::Beta),
    ignored("TokenRequestServiceAccountUIDValidation", true, FeatureStage::Beta),
    ignored("UnauthenticatedHTTP2DOSMitigation", true, FeatureStage::Beta),
    ignored("UnknownVersionInteroperabilityProxy", true, FeatureStage::Beta),
    ignored("WatchCacheInitializationPostStartHook", true, FeatureStage::Stable),
    ignored("WatchList", true, FeatureStage::Beta),
    ignored("WatchListClient", true, FeatureStage::Beta),
    ignored("WatchListCompression", true, FeatureStage::Beta),
    ignored("WebhookRoundTripLoadBalancing", true, FeatureStage::Beta),
];

/// Gate that a Go cloud-controller-manager between 1.26 and 1.36 accepted and that a newer one does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetiredGate {
    pub name: &'static str,
    /// Last release of Kubernetes with the gate: 31 is 1.31.
    pub last_minor: u8,
}

/// Retired gates, ordered by name. They are accepted with any value, so that the flags of an older deployment work.
pub const RETIRED: &[RetiredGate] = &[
    RetiredGate { name: "APIListChunking", last_minor: 32 },
    RetiredGate { name: "APIPriorityAndFairness", last_minor: 30 },
    RetiredGate { name: "APISelfSubjectReview", last_minor: 31 },
    RetiredGate { name: "APIServerTracing", last_minor: 36 },
    RetiredGate { name: "AdmissionWebhookMatchConditions", last_minor: 32 },
    RetiredGate { name: "AdvancedAuditing", last_minor: 27 },
    RetiredGate { name: "AggregatedDiscoveryEndpoint", last_minor: 32 },
    RetiredGate { name: "AnonymousAuthConfigurableEndpoints", last_minor: 36 },
    RetiredGate { name: "AuthorizeWithSelectors", last_minor: 36 },
    RetiredGate { name: "BtreeWatchCache", last_minor: 36 },
    RetiredGate { name: "CloudDualStackNodeIPs", last_minor: 31 },
    RetiredGate { name: "ComponentSLIs", last_minor: 34 },
    RetiredGate { name: "ConsistentListFromCache", last_minor: 36 },
    RetiredGate { name: "ControllerManagerLeaderMigration", last_minor: 26 },
    RetiredGate { name: "CustomResourceValidationExpressions", last_minor: 30 },
    RetiredGate { name: "DryRun", last_minor: 27 },
    RetiredGate { name: "EfficientWatchResumption", last_minor: 32 },
    RetiredGate { name: "IPv6DualStack", last_minor: 26 },
    RetiredGate { name: "InPlacePodVerticalScaling", last_minor: 31 },
    RetiredGate { name: "KMSv2", last_minor: 31 },
    RetiredGate { name: "KMSv2KDF", last_minor: 31 },
    RetiredGate { name: "OpenAPIV3", last_minor: 28 },
    RetiredGate { name: "RemainingItemCount", last_minor: 32 },
    RetiredGate { name: "RemoveSelfLink", last_minor: 29 },
    RetiredGate { name: "ResilientWatchCacheInitialization", last_minor: 36 },
    RetiredGate { name: "RetryGenerateName", last_minor: 36 },
    RetiredGate { name: "ServerSideApply", last_minor: 31 },
    RetiredGate { name: "ServerSideFieldValidation", last_minor: 31 },
    RetiredGate { name: "StableLoadBalancerNodeSet", last_minor: 31 },
    RetiredGate { name: "StreamingCollectionEncodingToJSON", last_minor: 36 },
    RetiredGate { name: "StreamingCollectionEncodingToProtobuf", last_minor: 36 },
    RetiredGate { name: "StrictCostEnforcementForVAP", last_minor: 34 },
    RetiredGate { name: "StrictCostEnforcementForWebhooks", last_minor: 34 },
    RetiredGate { name: "StructuredAuthenticationConfiguration", last_minor: 36 },
    RetiredGate { name: "StructuredAuthorizationConfiguration", last_minor: 35 },
    RetiredGate { name: "ValidatingAdmissionPolicy", last_minor: 31 },
    RetiredGate { name: "WatchBookmark", last_minor: 32 },
    RetiredGate { name: "WatchFromStorageWithoutResourceVersion", last_minor: 35 },
    RetiredGate { name: "ZeroLimitedNominalConcurrencyShares", last_minor: 31 },
];

/// State of every feature gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeatureGates(BTreeMap<&'static str, bool>);

impl Default for FeatureGates {
    fn default() -> Self {
        Self(TABLE.iter().map(|gate| (gate.name, gate.default)).collect())
    }
}

impl FeatureGates {
    /// Returns `true` if the feature with this name is on; `false` if there is no such gate.
    pub fn enabled(&self, name: &str) -> bool {
        self.0.get(name).copied().unwrap_or(false)
    }

    /// Returns all gates, with `true` for those that are on.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, bool)> + '_ {
        self.0.iter().map(|(name, on)| (*name, *on))
    }
}

/// Result of resolving `--feature-gates`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResolvedFeatureGates {
    pub gates: FeatureGates,
    /// Names, in quotes, that no supported release has. A newer release may have them.
    pub unknown_names: Vec<String>,
    /// Gates that were set and have no effect in this program.
    pub without_effect: Vec<&'static str>,
    /// Gates that were set and that current releases of Kubernetes do not have.
    pub retired: Vec<RetiredGate>,
}

/// Applies the requested values to the table. A gate that is set by name takes precedence over `AllAlpha` and `AllBeta`.
pub fn resolve(requested: &MapStringBool) -> ResolvedFeatureGates {
    let mut resolution = ResolvedFeatureGates::default();
    let groups = [(ALL_ALPHA, FeatureStage::Alpha), (ALL_BETA, FeatureStage::Beta)];
    for (group, stage) in groups {
        if let Some(on) = requested.get(group) {
            let members = TABLE.iter().filter(|gate| gate.stage == stage);
            resolution.gates.0.extend(members.map(|gate| (gate.name, *on)));
        }
    }
    // The gate AllBeta is itself beta, so `AllBeta` has changed it. Only its own value counts.
    for (group, _) in groups {
        resolution.gates.0.insert(group, requested.get(group).copied().unwrap_or(false));
    }
    for (name, on) in requested {
        match TABLE.iter().find(|gate| gate.name == name) {
            None => match RETIRED.iter().find(|gate| gate.name == name) {
                Some(gate) => resolution.retired.push(*gate),
                None => resolution.unknown_names.push(quoted(name)),
            },
            Some(gate) => {
                resolution.gates.0.insert(gate.name, *on);
                resolution.without_effect.extend(gate.effect.is_none().then_some(gate.name));
            }
        }
    }
    resolution
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::value::FlagValue;

    fn resolved(text: &str) -> ResolvedFeatureGates {
        resolve(&MapStringBool::parse(text).unwrap())
    }

    #[test]
    fn names_are_unique_and_sorted_as_upstream_sorts() {
        let names: Vec<_> = TABLE.iter().map(|gate| gate.name).collect();
        assert!(names.is_sorted(), "{names:?}");
        assert_eq!(names.len(), FeatureGates::default().iter().count());
    }

    #[test]
    fn gates_that_a_go_deployment_may_set_have_their_defaults() {
        // Facts of the sample binary, except the first, which is on here.
        for (name, default) in [
            (WATCH_BASED_ROUTES, true),
            ("CloudControllerManagerWebhook", false),
            ("ControllerManagerReleaseLeaderElectionLockOnExit", false),
            ("ComponentStatusz", true),
            ("ComponentFlagz", true),
            ("WatchList", true),
            ("WatchListClient", true),
            ("NativeHistograms", true),
            ("CoordinatedLeaderElection", false),
            ("ContextualLogging", true),
            ("LoggingAlphaOptions", false),
            ("LoggingBetaOptions", true),
            ("AllAlpha", false),
            ("AllBeta", false),
        ] {
            let gate = TABLE.iter().find(|gate| gate.name == name).unwrap();
            assert_eq!(gate.default, default, "{name}");
        }
    }

    #[test]
    fn a_gate_set_by_name_beats_all_of_its_stage() {
        let gates = resolved("AllBeta=false,ComponentFlagz=true").gates;
        assert!(gates.enabled(FLAGZ) && !gates.enabled(STATUSZ) && !gates.enabled("AllBeta"));
        let gates = resolved("AllAlpha=true").gates;
        assert!(gates.enabled("CBORServingAndStorage") && gates.enabled("AllAlpha") && !gates.enabled("AllBeta"));
        assert!(!resolved("AllAlpha=false").gates.enabled(WATCH_BASED_ROUTES));
    }

    /// Tests gates of several releases: older ones accept both values of the first two, and only 1.37 has the last two.
    #[test]
    fn gates_of_all_supported_releases_are_known() {
        let resolution = resolved(
            "SeparateCacheWatchRPC=true,DeclarativeValidation=false,APIServerWebhookAuthenticationToken=true,EtcdRangeStream=false",
        );
        assert_eq!(resolution.unknown_names, Vec::<String>::new());
        assert_eq!(resolution.without_effect.len(), 4, "{resolution:?}");
    }

    /// Tests retired gates. Go's 1.27 and 1.28 needed the first for two addresses in `--node-ip`.
    #[test]
    fn gates_of_older_releases_are_accepted() {
        let resolution = resolved("CloudDualStackNodeIPs=true,StableLoadBalancerNodeSet=false,ComponentStatusz=false");
        assert_eq!(resolution.unknown_names, Vec::<String>::new());
        let names: Vec<_> = resolution.retired.iter().map(|gate| (gate.name, gate.last_minor)).collect();
        assert_eq!(names, [("CloudDualStackNodeIPs", 31), ("StableLoadBalancerNodeSet", 31)]);
        assert!(RETIRED.is_sorted_by_key(|gate| gate.name));
        assert!(RETIRED.iter().all(|gate| !TABLE.iter().any(|current| current.name == gate.name)));
    }

    #[test]
    fn gates_without_effect_are_reported() {
        let resolution = resolved("WatchList=false,ComponentStatusz=false");
        assert_eq!(resolution.without_effect, ["WatchList"]);
        assert!(!resolution.gates.enabled(STATUSZ));
    }
}
