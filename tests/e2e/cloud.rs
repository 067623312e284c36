//! The fake cloud as files: the configuration that scenarios edit, and the memory that survives the manager's death.

use std::{
    fs,
    path::{Path, PathBuf},
};

use cloud_controller_manager::runtime::yaml;
use serde_json::{Value, json};

/// A fake cloud of one scenario.
pub(crate) struct Cloud {
    config: Value,
    path: PathBuf,
    state: PathBuf,
}

impl Cloud {
    /// A cloud without instances. `name` tells it from those of other scenarios.
    pub(crate) fn new(folder: &Path, name: &str) -> Self {
        let state = folder.join(format!("{name}.state"));
        let config = json!({"stateFile": state, "instances": {}, "calls": {}});
        let this = Self { config, path: folder.join(format!("{name}.yaml")), state };
        this.write();
        this
    }

    /// With an instance per name.
    pub(crate) fn with_instances(mut self, names: &[&str]) -> Self {
        for (index, name) in names.iter().enumerate() {
            self.config["instances"][name] = json!({
                "instanceType": "fake.large", "zone": "zone-1", "region": "region-1",
                "addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": format!("10.1.0.{}", index + 1)}],
            });
        }
        self.write();
        self
    }

    /// Path for `--cloud-config`.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Changes the configuration of a running cloud.
    pub(crate) fn edit(&mut self, change: impl FnOnce(&mut Value)) {
        change(&mut self.config);
        self.write();
    }

    /// Removes an instance of a running cloud.
    pub(crate) fn remove_instance(&mut self, name: &str) {
        self.edit(|config| drop(config["instances"].as_object_mut().expect("instances").remove(name)));
    }

    /// What was made in it, `section` being `loadBalancers`, `routes` or `addresses`; empty when nothing was.
    pub(crate) fn made(&self, section: &str) -> serde_json::Map<String, Value> {
        let text = fs::read_to_string(&self.state).unwrap_or_default();
        let state: Value = yaml::parse(&text).unwrap_or_default();
        state.get(section).and_then(Value::as_object).cloned().unwrap_or_default()
    }

    /// The load balancer of Service `namespace/name`.
    pub(crate) fn load_balancer_of(&self, service: &str) -> Option<Value> {
        self.made("loadBalancers").into_iter().map(|(_, balancer)| balancer).find(|balancer| balancer["service"] == service)
    }

    /// Whether nothing is left of any Service.
    pub(crate) fn is_clean(&self) -> bool {
        self.made("loadBalancers").is_empty() && self.made("addresses").is_empty()
    }

    fn write(&self) {
        // JSON is YAML. Renamed into place, so that a running manager never reads half a file.
        let next = self.path.with_extension("next");
        fs::write(&next, serde_json::to_string_pretty(&self.config).expect("JSON")).expect("cloud config");
        fs::rename(&next, &self.path).expect("cloud config");
    }
}
