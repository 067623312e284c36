//! The fake cloud as files: the configuration that scenarios edit, and the state that survives the end of the manager.

use std::{
    fs,
    path::{Path, PathBuf},
};

use cloud_controller_manager::runtime::yaml;
use serde_json::{Value, json};

/// Fake cloud of one scenario.
pub(crate) struct Cloud {
    config: Value,
    path: PathBuf,
    state: PathBuf,
}

impl Cloud {
    /// Creates a cloud without instances. `name` is unique among the scenarios of a cluster.
    pub(crate) fn new(folder: &Path, name: &str) -> Self {
        let state = folder.join(format!("{name}.state"));
        let config = json!({"stateFile": state, "instances": {}, "calls": {}});
        let this = Self { config, path: folder.join(format!("{name}.yaml")), state };
        this.write();
        this
    }

    /// Adds an instance per name.
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

    /// Returns the resources of `section`: `loadBalancers`, `routes` or `addresses`.
    pub(crate) fn resources(&self, section: &str) -> serde_json::Map<String, Value> {
        let text = fs::read_to_string(&self.state).unwrap_or_default();
        let state: Value = yaml::parse(&text).unwrap_or_default();
        state.get(section).and_then(Value::as_object).cloned().unwrap_or_default()
    }

    /// Returns the load balancer of Service `namespace/name`.
    pub(crate) fn load_balancer_of(&self, service: &str) -> Option<Value> {
        self.resources("loadBalancers")
            .into_iter()
            .map(|(_, balancer)| balancer)
            .find(|balancer| balancer["service"] == service)
    }

    /// Returns `true` if no Service has resources.
    pub(crate) fn is_clean(&self) -> bool {
        self.resources("loadBalancers").is_empty() && self.resources("addresses").is_empty()
    }

    fn write(&self) {
        // JSON is YAML. A rename is atomic: a running manager never reads half a file.
        let next = self.path.with_extension("next");
        fs::write(&next, serde_json::to_string_pretty(&self.config).expect("JSON")).expect("cloud config");
        fs::rename(&next, &self.path).expect("cloud config");
    }
}
