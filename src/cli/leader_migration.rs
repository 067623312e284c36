//! Checks the file of `--leader-migration-config`, which upstream reads strictly (`k8s.io/controller-manager/config`).
//! Pure: text in, what is wrong out. The migration itself means nothing here.

use serde::Deserialize;

use crate::runtime::yaml;

const GROUP: &str = "controllermanager.config.k8s.io/";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct LeaderMigrationConfiguration {
    api_version: String,
    kind: String,
    leader_name: Option<String>,
    resource_lock: Option<String>,
    #[serde(default)]
    controller_leaders: Vec<ControllerLeader>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ControllerLeader {
    name: Option<String>,
    component: Option<String>,
}

/// What is wrong with the file, if anything.
pub(super) fn check(text: &str) -> Result<(), String> {
    let file: LeaderMigrationConfiguration = yaml::parse(text).map_err(|error| error.to_string())?;
    let version = file.api_version.strip_prefix(GROUP).unwrap_or_default();
    if file.kind != "LeaderMigrationConfiguration" || !["v1alpha1", "v1beta1", "v1"].contains(&version) {
        return Err(format!("want kind LeaderMigrationConfiguration of {GROUP}v1alpha1, v1beta1 or v1"));
    }
    if file.leader_name.is_none_or(|name| name.is_empty()) {
        return Err("leaderName: must not be empty".to_owned());
    }
    match file.resource_lock.as_deref() {
        Some(_) if version == "v1" => return Err("resourceLock: not a field of v1".to_owned()),
        Some(lock) if !["leases", "endpoints"].contains(&lock) => {
            return Err("resourceLock: want leases or endpoints".to_owned());
        }
        None if version != "v1" => return Err("resourceLock: want leases or endpoints".to_owned()),
        Some(_) | None => {}
    }
    for (index, leader) in file.controller_leaders.iter().enumerate() {
        for (field, value) in [("name", &leader.name), ("component", &leader.component)] {
            if value.as_ref().is_none_or(String::is_empty) {
                return Err(format!("controllerLeaders[{index}].{field}: must not be empty"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_as_upstream_judges_them() {
        let file = |version: &str, rest: &str| {
            format!("apiVersion: controllermanager.config.k8s.io/{version}\nkind: LeaderMigrationConfiguration\n{rest}")
        };
        let leaders = "leaderName: m\ncontrollerLeaders:\n- {name: route-controller, component: '*'}\n";
        for (text, error) in [
            (file("v1", leaders), None),
            (file("v1beta1", &format!("{leaders}resourceLock: leases\n")), None),
            (file("v1alpha1", &format!("{leaders}resourceLock: endpoints\n")), None),
            (file("v1", &format!("{leaders}resourceLock: leases\n")), Some("resourceLock")),
            (file("v1beta1", "leaderName: m\nresourceLock: configmaps\n"), Some("resourceLock")),
            (file("v1", "leaderName: ''\n"), Some("leaderName")),
            (file("v1", "leaderName: m\ncontrollerLeaders: [{name: x}]\n"), Some("controllerLeaders[0].component")),
            (file("v1", "leaderName: m\nleadername: m\n"), Some("leadername")),
            (file("v2", "leaderName: m\n"), Some("want kind")),
            ("kind: [".to_owned(), Some("")),
        ] {
            match (check(&text), error) {
                (Ok(()), None) => {}
                (Err(message), Some(part)) => assert!(message.contains(part), "{message}"),
                (result, _) => panic!("{text}: {result:?}"),
            }
        }
    }
}
