//! Fields that accept a few words only. Letter case does not matter.

use serde_json::Value as Json;

use super::{
    document::{YamlNode, YamlValue},
    reader::FieldReader,
    values::FieldValue,
};

macro_rules! choices {
    ($($(#[$doc:meta])* $name:ident $(else $fallback:ident)? { $($(#[$variant_doc:meta])* $variant:ident = $text:literal),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$variant_doc])* $variant),* }

        impl $name {
            /// Every accepted spelling; letter case does not matter.
            pub const ALL: &[(&str, Self)] = &[$(($text, Self::$variant)),*];
            /// Meaning of any other word; `None`: the word is refused.
            const FALLBACK: Option<Self> = { let fallback: Option<Self> = None; $(let _ = fallback; let fallback = Some(Self::$fallback);)? fallback };

            /// Returns the value's spelling in the file.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }
        }

        impl FieldValue for $name {
            const EMPTY_IS_DEFAULT: bool = true;

            fn kind() -> String {
                format!("one of {}", Self::ALL.iter().map(|(text, _)| *text).collect::<Vec<_>>().join(", "))
            }
            fn read(node: &YamlNode, reader: &mut FieldReader<'_>) -> Option<Self> {
                choose(Self::ALL, Self::FALLBACK, &Self::kind(), node, reader)
            }
            fn default_from(text: &str) -> Self {
                Self::ALL.iter().find(|(name, _)| *name == text).map_or(Self::ALL[0].1, |(_, value)| *value)
            }
            fn to_json(&self) -> Json {
                self.as_str().into()
            }
        }
    )*};
}

/// Returns the value with this spelling. Like upstream, accepts some unknown words as the fallback, with a warning, because
/// such files must remain usable.
fn choose<T: Copy>(
    all: &[(&str, T)],
    fallback: Option<T>,
    kind: &str,
    node: &YamlNode,
    reader: &mut FieldReader<'_>,
) -> Option<T> {
    let YamlValue::Text(text) = &node.value else { return reader.type_error(node, kind) };
    let found = all.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, value)| *value);
    match (found, fallback) {
        (None, None) => reader.type_error(node, kind),
        (None, Some(value)) => {
            reader.warn(node, &format!("expected {kind}; any other word counts as {}", all[0].0));
            Some(value)
        }
        (found, _) => found,
    }
}

choices! {
    /// `cloudConfigType`.
    CloudConfigType {
        /// The file only.
        File = "file",
        /// The Secret only.
        Secret = "secret",
        /// The file, with the Secret's fields over it.
        Merge = "merge",
    }
    /// `vmType`. Upstream: `pkg/provider/azure.go`.
    VmType else Standard {
        /// Availability sets and standalone machines.
        Standard = "standard",
        /// Uniform scale sets, in addition to the other kinds.
        Vmss = "vmss",
        /// Flexible scale sets.
        VmssFlex = "vmssflex",
    }
    /// `loadBalancerSku`.
    LoadBalancerSku else Basic {
        Basic = "basic",
        Standard = "standard",
        Service = "service",
    }
    /// `loadBalancerBackendPoolConfigurationType`.
    BackendPoolType {
        /// IP configurations of network interfaces.
        NodeIpConfiguration = "nodeIPConfiguration",
        /// Addresses of nodes.
        NodeIp = "nodeIP",
        /// Addresses of pods.
        PodIp = "podIP",
    }
    /// `clusterServiceLoadBalancerHealthProbeMode`.
    HealthProbeMode {
        /// One probe per Service port.
        ServiceNodePort = "servicenodeport",
        /// One probe for all Services.
        Shared = "shared",
    }
    /// `driftPolicy`.
    DriftPolicy {
        /// Report and revert external changes.
        Repair = "repair",
        /// Report external changes, and leave them.
        Report = "report",
    }
}
