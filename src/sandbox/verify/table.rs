//! The table of assumptions: a row is a belief about Azure, its source, and the requests that show whether it holds.
//!
//! In: YAML files of `tests/assumptions`. Out: checked rows, or an error that names the row. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::runtime::yaml;

/// The files of the table: topic and text.
const FILES: &[(&str, &str)] = &[
    ("operations", include_str!("../../../tests/assumptions/operations.yaml")),
    ("versions", include_str!("../../../tests/assumptions/versions.yaml")),
    ("missing", include_str!("../../../tests/assumptions/missing.yaml")),
    ("public-ips", include_str!("../../../tests/assumptions/public-ips.yaml")),
    ("load-balancers", include_str!("../../../tests/assumptions/load-balancers.yaml")),
    ("pools", include_str!("../../../tests/assumptions/pools.yaml")),
    ("security-rules", include_str!("../../../tests/assumptions/security-rules.yaml")),
    ("routes", include_str!("../../../tests/assumptions/routes.yaml")),
    ("private-links", include_str!("../../../tests/assumptions/private-links.yaml")),
    ("lists", include_str!("../../../tests/assumptions/lists.yaml")),
    ("compute", include_str!("../../../tests/assumptions/compute.yaml")),
    ("quotas", include_str!("../../../tests/assumptions/quotas.yaml")),
    ("login", include_str!("../../../tests/assumptions/login.yaml")),
    ("metadata", include_str!("../../../tests/assumptions/metadata.yaml")),
];
const DOCUMENTS: &str = include_str!("../../../tests/assumptions/documents.yaml");

/// Evidence for a belief.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AssumptionSource {
    /// Azure's recorded responses: a file of cloud-provider-azure, or a public issue that quotes the response.
    Recording(String),
    /// URL of a page of Azure's documentation.
    Documentation(String),
    /// File of cloud-provider-azure that relies on the belief.
    GoSource(String),
    /// No evidence; the reason for the belief.
    Guess(String),
}

impl AssumptionSource {
    /// Returns the kind and text of the evidence.
    pub fn parts(&self) -> (&'static str, &str) {
        match self {
            Self::Recording(text) => ("recording", text),
            Self::Documentation(text) => ("documentation", text),
            Self::GoSource(text) => ("go-source", text),
            Self::Guess(text) => ("guess", text),
        }
    }

    pub fn is_guess(&self) -> bool {
        matches!(self, Self::Guess(_))
    }
}

/// A belief about Azure.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assumption {
    /// Unique name: lower-case words with hyphens.
    pub id: String,
    /// The belief in one sentence.
    pub belief: String,
    pub source: AssumptionSource,
    /// Requirements of the endpoint in addition to ARM: `metadata` (the metadata service of a machine) or `secret` (a client
    /// secret).
    #[serde(default)]
    pub needs: BTreeSet<String>,
    /// Documents of `documents.yaml` that exist before the first step.
    #[serde(default, rename = "given")]
    pub prerequisites: Vec<String>,
    pub steps: Vec<AssumptionStep>,
    /// Name of its file.
    #[serde(skip)]
    pub topic: String,
}

/// A request and the expected response. Exactly one of the first seven fields is set; it names a document or a path.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AssumptionStep {
    pub put: Option<String>,
    pub patch: Option<String>,
    pub post: Option<String>,
    pub get: Option<String>,
    pub list: Option<String>,
    pub delete: Option<String>,
    /// A request that the ARM client never sends.
    pub raw: Option<RawStep>,
    /// Path of `put`, if it differs from that of the document.
    pub at: Option<String>,
    /// Action that `post` invokes.
    pub action: Option<String>,
    /// `absent`, `exists`, or the etag for `If-Match`.
    #[serde(rename = "if")]
    pub condition: Option<String>,
    /// Body, unless it is that of the document.
    pub body: Option<Value>,
    /// Values by path that the body has in addition.
    #[serde(default)]
    pub with: BTreeMap<String, Value>,
    /// Paths that the body lacks.
    #[serde(default)]
    pub without: Vec<String>,
    #[serde(default)]
    pub query: BTreeMap<String, String>,
    #[serde(default)]
    pub expect: Expectation,
    /// Variables, each with the path of a field of the response.
    #[serde(default)]
    pub save: BTreeMap<String, String>,
    /// Steps that are played between the response to a write and the end of its operation.
    #[serde(default)]
    pub meanwhile: Vec<AssumptionStep>,
}

/// A request that bypasses the ARM client.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawStep {
    /// `arm`, `login` or `metadata`.
    pub to: String,
    #[serde(default = "get")]
    pub method: String,
    pub path: String,
    #[serde(default)]
    pub query: BTreeMap<String, String>,
    /// Form of a POST.
    #[serde(default)]
    pub form: BTreeMap<String, String>,
    /// Headers; for `arm` a token is added unless `authorization` is here.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
}

fn get() -> String {
    "GET".to_owned()
}

/// The expected response. A field that is not set is not compared; without `status` and `code` the response must be a
/// success.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    pub status: Option<ExpectedStatus>,
    /// An error code, anywhere in the error.
    pub code: Option<String>,
    /// Pattern of the message of the outermost error.
    pub message: Option<String>,
    /// [`crate::providers::azure::model::ArmErrorClass`] that the client derives from the response.
    pub class: Option<String>,
    /// Values of headers: see [`super::compare`].
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Values of fields of the body by path: see [`super::compare`].
    #[serde(default)]
    pub fields: BTreeMap<String, Value>,
    /// `status` of the last poll of the operation; `none`: the response is final.
    pub operation: Option<String>,
    /// Names that a list has.
    #[serde(default)]
    pub lists: Vec<String>,
    /// Names that a list lacks.
    #[serde(default)]
    pub lacks: Vec<String>,
}

/// Accepted status codes, one or several.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum ExpectedStatus {
    One(u16),
    AnyOf(Vec<u16>),
}

impl ExpectedStatus {
    pub fn includes(&self, status: u16) -> bool {
        match self {
            Self::One(expected) => *expected == status,
            Self::AnyOf(expected) => expected.contains(&status),
        }
    }

    pub fn text(&self) -> String {
        match self {
            Self::One(status) => status.to_string(),
            Self::AnyOf(all) => all.iter().map(u16::to_string).collect::<Vec<_>>().join(" or "),
        }
    }
}

/// A document that rows create.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AssumedDocument {
    /// Path in the resource group, as `publicIPAddresses/{p}ip` (Microsoft.Network) or with the provider before it.
    pub at: String,
    pub body: Value,
}

/// Action of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepVerb {
    Put,
    Patch,
    Post,
    Get,
    List,
    Delete,
    Raw,
}

impl StepVerb {
    /// Returns the HTTP method, for people.
    pub fn method(self) -> &'static str {
        match self {
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Post => "POST",
            Self::Delete => "DELETE",
            Self::Get | Self::List | Self::Raw => "GET",
        }
    }
}

impl AssumptionStep {
    /// Returns the verb and what it names.
    pub fn verb(&self) -> Result<(StepVerb, &str), String> {
        let raw = self.raw.as_ref().map(|raw| &raw.path);
        let all = [
            (StepVerb::Put, self.put.as_ref()),
            (StepVerb::Patch, self.patch.as_ref()),
            (StepVerb::Post, self.post.as_ref()),
            (StepVerb::Get, self.get.as_ref()),
            (StepVerb::List, self.list.as_ref()),
            (StepVerb::Delete, self.delete.as_ref()),
            (StepVerb::Raw, raw),
        ];
        let mut set = all.into_iter().filter_map(|(verb, target)| Some((verb, target?.as_str())));
        match (set.next(), set.next()) {
            (Some(step), None) => Ok(step),
            _ => Err("a step needs exactly one of put, patch, post, get, list, delete and raw".to_owned()),
        }
    }

    /// Returns this step and all that are played during it.
    pub fn all(&self) -> Vec<&Self> {
        std::iter::once(self).chain(self.meanwhile.iter().flat_map(Self::all)).collect()
    }
}

/// Rows, and the documents that they name.
#[derive(Debug, Clone)]
pub struct AssumptionTable {
    pub rows: Vec<Assumption>,
    pub documents: BTreeMap<String, AssumedDocument>,
}

impl AssumptionTable {
    /// Returns the table of the program.
    pub fn built_in() -> Result<Self, String> {
        Self::of(FILES)
    }

    /// Returns the documents of the program with the rows of one other file.
    pub fn of_file(text: &str) -> Result<Self, String> {
        Self::of(&[("file", text)])
    }

    fn of(files: &[(&str, &str)]) -> Result<Self, String> {
        let documents = parsed("documents", DOCUMENTS)?;
        let mut rows = Vec::new();
        for (topic, text) in files {
            let found: Vec<Assumption> = parsed(topic, text)?;
            rows.extend(found.into_iter().map(|row| Assumption { topic: (*topic).to_owned(), ..row }));
        }
        let table = Self { rows, documents };
        table.check()?;
        Ok(table)
    }

    fn check(&self) -> Result<(), String> {
        let mut ids = BTreeSet::new();
        for row in &self.rows {
            let refuse = |problem: String| Err(format!("row {}: {problem}", row.id));
            if !ids.insert(&row.id) {
                return refuse("another row has this id".to_owned());
            }
            if let Some(invalid) = row.needs.iter().find(|need| !["metadata", "secret"].contains(&need.as_str())) {
                return refuse(format!("unknown need {invalid:?}"));
            }
            if let Some(invalid) = row.prerequisites.iter().find(|name| !self.documents.contains_key(*name)) {
                return refuse(format!("documents.yaml has no {invalid:?}"));
            }
            for step in row.steps.iter().flat_map(AssumptionStep::all) {
                let (verb, target) = step.verb().map_err(|problem| format!("row {}: {problem}", row.id))?;
                let has_body = step.body.is_some() || self.documents.contains_key(target);
                if matches!(verb, StepVerb::Put) && !has_body {
                    return refuse(format!("put {target}: neither a body nor a document of documents.yaml"));
                }
            }
        }
        Ok(())
    }

    /// Returns the rows whose ID or topic matches a pattern; all without patterns.
    pub fn select(mut self, patterns: &[String], excluded_needs: &[String]) -> Self {
        let matches = |row: &Assumption| {
            patterns.is_empty()
                || patterns.iter().any(|pattern| {
                    [&row.id, &row.topic].iter().any(|text| crate::sandbox::azure::faults::glob(pattern, text))
                })
        };
        self.rows.retain(|row| matches(row) && !row.needs.iter().any(|need| excluded_needs.contains(need)));
        self
    }
}

/// Parses YAML by way of JSON, so that a map with one entry is a variant of an enum.
fn parsed<T: serde::de::DeserializeOwned>(topic: &str, text: &str) -> Result<T, String> {
    let value: Value = yaml::parse(text).map_err(|error| format!("{topic}.yaml: {error}"))?;
    serde_json::from_value(value).map_err(|error| format!("{topic}.yaml: {error}"))
}

/// Sets or removes a field by a dotted path; missing objects on the path are created.
pub fn set_field(target: &mut Value, path: &str, value: Option<Value>) {
    let Some((first, rest)) = path.split_once('.') else {
        match (target, value) {
            (Value::Object(fields), Some(value)) => drop(fields.insert(path.to_owned(), value)),
            (Value::Object(fields), None) => drop(fields.remove(path)),
            (Value::Array(items), value) => replace_item(items, path, value),
            _ => {}
        }
        return;
    };
    if let Value::Array(items) = target {
        let index = first.parse::<usize>().ok();
        if let Some(item) = index.and_then(|index| items.get_mut(index)) {
            set_field(item, rest, value);
        }
        return;
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    set_field(&mut target[first], rest, value);
}

fn replace_item(items: &mut Vec<Value>, index: &str, value: Option<Value>) {
    let Ok(index) = index.parse::<usize>() else { return };
    match value {
        Some(value) if index < items.len() => items[index] = value,
        Some(value) => items.push(value),
        None if index < items.len() => drop(items.remove(index)),
        None => {}
    }
}
