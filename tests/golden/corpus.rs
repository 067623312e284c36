//! Reads the cases from the files next to this one. `README.md` describes the encoding.
//!
//! Input: JSON texts. Output: [`Case`]s, or the error in the files: a missing or unused template, a change of a missing object, an unknown
//! field.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use cloud_controller_manager::sandbox::azure::canonical;
use k8s_openapi::api::core::v1::{Node, Service};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use super::case::{Action, Case, Oddities, Outcome, State, Step, state};

type Result<T> = std::result::Result<T, String>;

/// Key that names a template.
const TEMPLATE: &str = "$";
/// Name of the template for the same object before the step.
const PREVIOUS: &str = "previous";

/// Folders of cases that were recorded from Go's controllers, and of our own.
const FOLDERS: [&str; 3] = ["azure-lb", "azure-routes", OWN];
/// Folder of the cases that we wrote.
const OWN: &str = "own";

/// Returns all cases.
pub(crate) fn cases() -> &'static [Case] {
    static CASES: OnceLock<Vec<Case>> = OnceLock::new();
    CASES.get_or_init(|| load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")).unwrap())
}

/// Returns the case at `folder/name`.
pub(crate) fn case(path: &str) -> &'static Case {
    cases().iter().find(|case| case.path == path).unwrap_or_else(|| panic!("no golden case {path}"))
}

fn load(root: &Path) -> Result<Vec<Case>> {
    let templates = Templates::new(&read(&root.join("shared.json"))?)?;
    let mut cases = Vec::new();
    for folder in FOLDERS {
        for file in files(&root.join(folder))? {
            let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let path = format!("{folder}/{name}");
            let case = templates.parse(&read(&file)?).and_then(|raw| decode_case(&templates, &path, raw));
            cases.push(case.map_err(|problem| format!("{path}: {problem}"))?);
        }
    }
    match templates.unused().first() {
        Some(unused) => Err(format!("shared.json: unused template {unused:?}")),
        None => Ok(cases),
    }
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut files: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.sort();
    Ok(files)
}

/// Content of `shared.json`.
struct Templates {
    prefixes: BTreeMap<String, String>,
    table: BTreeMap<String, Value>,
    used: RefCell<BTreeSet<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shared {
    prefixes: BTreeMap<String, String>,
    templates: BTreeMap<String, Value>,
}

impl Templates {
    /// Parses the text of `shared.json`.
    fn new(text: &str) -> Result<Self> {
        let shared: Shared = serde_json::from_str(text).map_err(|error| format!("shared.json: {error}"))?;
        let mut templates = Self { prefixes: shared.prefixes, table: BTreeMap::new(), used: RefCell::default() };
        templates.table = templates.parse::<Shared>(text)?.templates;
        Ok(templates)
    }

    /// Parses a file, with complete resource ids.
    fn parse<T: DeserializeOwned>(&self, text: &str) -> Result<T> {
        let expand =
            |text: String, (short, long): (&String, &String)| text.replace(&format!("\"{short}"), &format!("\"{long}"));
        let text = self.prefixes.iter().fold(text.to_owned(), expand);
        serde_json::from_str(&canonical::expand(&text)).map_err(|error| error.to_string())
    }

    /// Returns `value` with all templates replaced.
    fn decode(&self, value: &Value, previous: Option<&Value>) -> Result<Value> {
        match value {
            Value::Array(items) => items.iter().map(|item| self.decode(item, None)).collect(),
            Value::Object(fields) => self.decode_object(fields, previous),
            other => Ok(other.clone()),
        }
    }

    fn decode_object(&self, fields: &Map<String, Value>, previous: Option<&Value>) -> Result<Value> {
        let own = fields.iter().filter(|(key, _)| *key != TEMPLATE);
        let own = own.map(|(key, value)| Ok((key.clone(), self.decode(value, None)?))).collect::<Result<Map<_, _>>>()?;
        let Some(name) = fields.get(TEMPLATE) else { return Ok(Value::Object(own)) };
        let mut result = match name.as_str().unwrap_or_default() {
            PREVIOUS => previous.cloned().ok_or("a change of an object that did not exist before the step")?,
            name => self.template(name)?,
        };
        json_patch::merge(&mut result, &Value::Object(own));
        Ok(result)
    }

    fn template(&self, name: &str) -> Result<Value> {
        let template = self.table.get(name).ok_or_else(|| format!("there is no template {name:?}"))?;
        self.used.borrow_mut().insert(name.to_owned());
        self.decode(template, None)
    }

    fn document(&self, value: &Value, previous_state: &State) -> Result<Value> {
        let id = value["id"].as_str().unwrap_or_default().to_ascii_lowercase();
        let mut document = self.decode(value, previous_state.get(&id))?;
        complete(&mut document)?;
        Ok(document)
    }

    fn documents(&self, values: &[Value], previous_state: &State) -> Result<Vec<Value>> {
        values.iter().map(|value| self.document(value, previous_state)).collect()
    }

    fn typed<T: DeserializeOwned>(&self, value: &Value) -> Result<T> {
        serde_json::from_value(self.decode(value, None)?).map_err(|error| error.to_string())
    }

    fn unused(&self) -> Vec<&String> {
        let used = self.used.borrow();
        self.table.keys().filter(|name| !used.contains(*name)).collect()
    }
}

/// Completes relative ids, the name of the document and the ids of its parts from the document's id.
fn complete(document: &mut Value) -> Result<()> {
    let id = document["id"].as_str().filter(|id| id.starts_with('/')).ok_or("a document without id")?.to_owned();
    absolute(document, &id);
    let fields = document.as_object_mut().ok_or("a document that is not an object")?;
    fields.entry("name").or_insert_with(|| json!(id.rsplit('/').next()));
    for (list, parts) in fields.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
        for part in parts.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            if let Some(name) = part.get("name").and_then(Value::as_str).map(str::to_owned) {
                part.entry("id").or_insert_with(|| json!(format!("{id}/{list}/{name}")));
            }
        }
    }
    Ok(())
}

fn absolute(value: &mut Value, id: &str) {
    match value {
        Value::String(text) if text.starts_with("@/") => text.replace_range(..1, id),
        Value::Array(items) => items.iter_mut().for_each(|item| absolute(item, id)),
        Value::Object(fields) => fields.values_mut().for_each(|field| absolute(field, id)),
        _ => {}
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCase {
    name: String,
    topic: String,
    #[serde(rename = "description")]
    _description: String,
    #[serde(rename = "notes")]
    _notes: Option<String>,
    #[serde(rename = "why")]
    reason: Option<String>,
    flags: Vec<String>,
    topology: RawTopology,
    config: Value,
    nodes: Vec<Value>,
    before: Vec<Value>,
    steps: Vec<RawStep>,
}

#[derive(Deserialize)]
struct RawTopology {
    region_zones: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawStep {
    name: String,
    actions: Vec<Action>,
    #[serde(default)]
    expect_failure: bool,
    #[serde(default)]
    oddities: Oddities,
    #[serde(default)]
    azure_put: Vec<Value>,
    #[serde(default)]
    azure_delete: Vec<String>,
    nodes: Option<Vec<Value>>,
    #[serde(default)]
    services: Vec<Value>,
    #[serde(default)]
    services_gone: Vec<String>,
    #[serde(default)]
    after: Vec<Value>,
    #[serde(default)]
    after_gone: Vec<String>,
    status: BTreeMap<String, Value>,
}

fn decode_case(templates: &Templates, path: &str, raw: RawCase) -> Result<Case> {
    if !path.ends_with(&format!("/{}", raw.name)) {
        return Err(format!("the file has the name {}", raw.name));
    }
    if raw.reason.is_some() != path.starts_with(&format!("{OWN}/")) {
        return Err("only our own cases have `why`, and all of them must".to_owned());
    }
    let before = state(templates.documents(&raw.before, &State::new())?);
    let mut progress = Progress { after: before.clone(), services: BTreeMap::new() };
    let steps = raw.steps.into_iter().map(|step| {
        let name = step.name.clone();
        decode_step(templates, &mut progress, step).map_err(|problem| format!("{name}: {problem}"))
    });
    Ok(Case {
        path: path.to_owned(),
        is_recorded: raw.reason.is_none(),
        topic: raw.topic,
        config: templates.decode(&raw.config, None)?,
        flags: raw.flags,
        region_zones: raw.topology.region_zones,
        nodes: nodes(templates, &raw.nodes)?,
        before,
        steps: steps.collect::<Result<_>>()?,
    })
}

fn nodes(templates: &Templates, values: &[Value]) -> Result<Vec<Node>> {
    values.iter().map(|value| templates.typed(value)).collect()
}

/// State before the next step, to which its changes are relative.
struct Progress {
    after: State,
    services: BTreeMap<String, Value>,
}

fn decode_step(templates: &Templates, progress: &mut Progress, raw: RawStep) -> Result<Step> {
    change_services(templates, &mut progress.services, &raw.services)?;
    remove(&mut progress.services, raw.services_gone)?;
    let changed = templates.documents(&raw.after, &progress.after)?;
    progress.after.extend(state(changed));
    remove(&mut progress.after, raw.after_gone.iter().map(|id| id.to_ascii_lowercase()))?;
    let service = |(key, value): (&String, &Value)| {
        let service = serde_json::from_value::<Service>(value.clone()).map_err(|error| error.to_string())?;
        Ok((key.clone(), service))
    };
    let outcome = |(key, value): (&String, &Value)| Ok((key.clone(), templates.typed::<Outcome>(value)?));
    Ok(Step {
        name: raw.name,
        actions: raw.actions,
        expect_failure: raw.expect_failure,
        oddities: raw.oddities,
        azure_put: templates.documents(&raw.azure_put, &State::new())?,
        azure_delete: raw.azure_delete,
        nodes: raw.nodes.map(|values| nodes(templates, &values)).transpose()?,
        services: progress.services.iter().map(service).collect::<Result<_>>()?,
        after: progress.after.clone(),
        outcomes: raw.status.iter().map(outcome).collect::<Result<_>>()?,
    })
}

fn change_services(templates: &Templates, services: &mut BTreeMap<String, Value>, changes: &[Value]) -> Result<()> {
    for change in changes {
        let text = |field: &str| change["metadata"][field].as_str();
        let key = format!("{}/{}", text("namespace").unwrap_or("default"), text("name").unwrap_or_default());
        let service = templates.decode(change, services.get(&key))?;
        services.insert(key, service);
    }
    Ok(())
}

fn remove<T>(from: &mut BTreeMap<String, T>, keys: impl IntoIterator<Item = String>) -> Result<()> {
    for key in keys {
        from.remove(&key).ok_or_else(|| format!("{key} is deleted but did not exist"))?;
    }
    Ok(())
}
