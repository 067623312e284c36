//! The kinds that the server knows. Every fact about a kind is declared here, once; routing, discovery, storage and patches read
//! it from this table.

use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{ConfigMap, Event, Namespace, Node, Pod, Secret, Service, ServiceAccount},
    discovery::v1::EndpointSlice,
};
use serde::Deserialize;
use serde_json::Value;

/// Treatment of a list by a strategic merge patch. Lists without a rule are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListRule {
    /// Items are objects and merge by this field (`patchMergeKey` in the Kubernetes types).
    Key(&'static str),
    /// Items are scalars and the list is a set (`patchStrategy: merge` without a key).
    Set,
}

/// A list and its rule, by dotted path from the object's root. Lists on the way are passed through.
pub type ListRules = &'static [(&'static str, ListRule)];

/// Kind of objects that the server stores.
#[derive(Debug)]
pub struct Kind {
    /// API group, empty for core.
    pub group: &'static str,
    /// Version in the group.
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub short_names: &'static [&'static str],
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Whether there is a `status` subresource, so that plain writes leave the status alone.
    pub status: bool,
    /// Whether a status sent with a create is kept. Upstream drops it in each strategy's `PrepareForCreate`, but not for Nodes.
    pub status_at_create: bool,
    /// Whether changes of anything but metadata and status count up `metadata.generation`.
    pub generation: bool,
    /// Whether PUT of a missing object creates it (`AllowCreateOnUpdate`).
    pub create_on_update: bool,
    /// Whether PUT may leave out the resourceVersion (`AllowUnconditionalUpdate`).
    pub unconditional_update: bool,
    /// Strategic merge rules in addition to those of the metadata.
    pub lists: ListRules,
    /// Validation of such an object; the message names the invalid field.
    pub check: fn(&Value) -> Result<(), String>,
}

impl Kind {
    /// Returns `apiVersion` of its objects.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Returns `nodes` or `leases.coordination.k8s.io`, as in messages.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Returns the rule of the list at `path`.
    pub fn list_rule(&self, path: &str) -> Option<ListRule> {
        METADATA_LISTS.iter().chain(self.lists).find(|(candidate, _)| *candidate == path).map(|(_, rule)| *rule)
    }
}

/// Rules that apply to every kind. Upstream: `ObjectMeta` in apimachinery.
const METADATA_LISTS: ListRules =
    &[("metadata.finalizers", ListRule::Set), ("metadata.ownerReferences", ListRule::Key("uid"))];

/// Rules of Pods. Upstream: the `patchMergeKey` tags in core/v1 `types.go`.
const POD_LISTS: ListRules = &[
    ("spec.containers", ListRule::Key("name")),
    ("spec.containers.env", ListRule::Key("name")),
    ("spec.containers.ports", ListRule::Key("containerPort")),
    ("spec.containers.volumeMounts", ListRule::Key("mountPath")),
    ("spec.containers.volumeDevices", ListRule::Key("devicePath")),
    ("spec.initContainers", ListRule::Key("name")),
    ("spec.initContainers.env", ListRule::Key("name")),
    ("spec.initContainers.ports", ListRule::Key("containerPort")),
    ("spec.initContainers.volumeMounts", ListRule::Key("mountPath")),
    ("spec.initContainers.volumeDevices", ListRule::Key("devicePath")),
    ("spec.ephemeralContainers", ListRule::Key("name")),
    ("spec.volumes", ListRule::Key("name")),
    ("spec.imagePullSecrets", ListRule::Key("name")),
    ("spec.hostAliases", ListRule::Key("ip")),
    ("spec.topologySpreadConstraints", ListRule::Key("topologyKey")),
    ("spec.resourceClaims", ListRule::Key("name")),
    ("spec.schedulingGates", ListRule::Key("name")),
    ("status.conditions", ListRule::Key("type")),
    ("status.podIPs", ListRule::Key("ip")),
];

fn decodes<K: for<'de> Deserialize<'de>>(object: &Value) -> Result<(), String> {
    K::deserialize(object).map(|_| ()).map_err(|error| error.to_string())
}

const CORE: Kind = Kind {
    group: "",
    version: "v1",
    kind: "",
    plural: "",
    singular: "",
    short_names: &[],
    namespaced: true,
    status: false,
    status_at_create: false,
    generation: false,
    create_on_update: false,
    unconditional_update: true,
    lists: &[],
    check: |_| Ok(()),
};

pub static NODE: Kind = Kind {
    kind: "Node",
    plural: "nodes",
    singular: "node",
    short_names: &["no"],
    namespaced: false,
    status: true,
    status_at_create: true,
    lists: &[
        ("spec.podCIDRs", ListRule::Set),
        ("status.addresses", ListRule::Key("type")),
        ("status.conditions", ListRule::Key("type")),
    ],
    check: decodes::<Node>,
    ..CORE
};

pub static SERVICE: Kind = Kind {
    kind: "Service",
    plural: "services",
    singular: "service",
    short_names: &["svc"],
    status: true,
    create_on_update: true,
    lists: &[("spec.ports", ListRule::Key("port")), ("status.conditions", ListRule::Key("type"))],
    check: decodes::<Service>,
    ..CORE
};

pub static NAMESPACE: Kind = Kind {
    kind: "Namespace",
    plural: "namespaces",
    singular: "namespace",
    short_names: &["ns"],
    namespaced: false,
    status: true,
    lists: &[("status.conditions", ListRule::Key("type"))],
    check: decodes::<Namespace>,
    ..CORE
};

/// Events of the core group.
pub static EVENT: Kind = Kind {
    kind: "Event",
    plural: "events",
    singular: "event",
    short_names: &["ev"],
    create_on_update: true,
    check: decodes::<Event>,
    ..CORE
};

pub static SECRET: Kind = Kind { kind: "Secret", plural: "secrets", singular: "secret", check: decodes::<Secret>, ..CORE };

pub static SERVICE_ACCOUNT: Kind = Kind {
    kind: "ServiceAccount",
    plural: "serviceaccounts",
    singular: "serviceaccount",
    short_names: &["sa"],
    lists: &[("secrets", ListRule::Key("name"))],
    check: decodes::<ServiceAccount>,
    ..CORE
};

pub static CONFIG_MAP: Kind = Kind {
    kind: "ConfigMap",
    plural: "configmaps",
    singular: "configmap",
    short_names: &["cm"],
    check: decodes::<ConfigMap>,
    ..CORE
};

pub static POD: Kind = Kind {
    kind: "Pod",
    plural: "pods",
    singular: "pod",
    short_names: &["po"],
    status: true,
    generation: true,
    lists: POD_LISTS,
    check: decodes::<Pod>,
    ..CORE
};

pub static ENDPOINT_SLICE: Kind = Kind {
    group: "discovery.k8s.io",
    kind: "EndpointSlice",
    plural: "endpointslices",
    singular: "endpointslice",
    generation: true,
    create_on_update: true,
    check: decodes::<EndpointSlice>,
    ..CORE
};

pub static LEASE: Kind = Kind {
    group: "coordination.k8s.io",
    kind: "Lease",
    plural: "leases",
    singular: "lease",
    create_on_update: true,
    unconditional_update: false,
    check: decodes::<Lease>,
    ..CORE
};

/// Kinds that are stored.
pub static KINDS: [&Kind; 10] =
    [&CONFIG_MAP, &EVENT, &NAMESPACE, &NODE, &POD, &SECRET, &SERVICE, &SERVICE_ACCOUNT, &ENDPOINT_SLICE, &LEASE];

/// Returns the kind at `/apis/<group>/<version>/<plural>`.
pub fn by_plural(group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
    KINDS.into_iter().find(|kind| kind.group == group && kind.version == version && kind.plural == plural)
}

/// Returns the kind of an object.
pub fn by_type(api_version: &str, name: &str) -> Option<&'static Kind> {
    KINDS.into_iter().find(|kind| kind.kind == name && kind.api_version() == api_version)
}
