//! Parser of the file in `--leader-migration-config`, as strict as upstream's (`k8s.io/controller-manager/config`).
//! Pure. In: text. Out: the migration, or an error.

use serde::Deserialize;

use crate::controllers::leader_migration::{LeaderMigration, MigratingController};
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

/// Parses the text of the file. The error names the field.
pub(super) fn parse(text: &str) -> Result<LeaderMigration, String> {
    let file: LeaderMigrationConfiguration = yaml::parse(text).map_err(|error| error.to_string())?;
    let version = file.api_version.strip_prefix(GROUP).unwrap_or_default();
    if file.kind != "LeaderMigrationConfiguration" || !["v1alpha1", "v1beta1", "v1"].contains(&version) {
        return Err(format!("expected kind LeaderMigrationConfiguration of {GROUP}v1alpha1, v1beta1 or v1"));
    }
    let Some(lease_name) = file.leader_name.filter(|name| !name.is_empty()) else {
        return Err("leaderName: must not be empty".to_owned());
    };
    match file.resource_lock.as_deref() {
        Some(_) if version == "v1" => return Err("resourceLock: not a field of v1".to_owned()),
        Some("endpoints") => return Err("resourceLock: locks on Endpoints are not supported; expected leases".to_owned()),
        Some(lock) if lock != "leases" => return Err("resourceLock: expected leases".to_owned()),
        None if version != "v1" => return Err("resourceLock: expected leases".to_owned()),
        Some(_) | None => {}
    }
    let controllers = file.controller_leaders.into_iter().enumerate().map(|(index, leader)| migrating(index, leader));
    Ok(LeaderMigration { lease_name, controllers: controllers.collect::<Result<_, _>>()? })
}

fn migrating(index: usize, leader: ControllerLeader) -> Result<MigratingController, String> {
    let required = |field: &str, value: Option<String>| {
        let value = value.filter(|value| !value.is_empty());
        value.ok_or_else(|| format!("controllerLeaders[{index}].{field}: must not be empty"))
    };
    Ok(MigratingController { name: required("name", leader.name)?, component: required("component", leader.component)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream: `TestReadLeaderMigrationConfiguration`, `TestLeaderMigrationOptions`.
    #[test]
    fn files_are_accepted_as_upstream_accepts_them() {
        let file = |version: &str, rest: &str| {
            format!("apiVersion: controllermanager.config.k8s.io/{version}\nkind: LeaderMigrationConfiguration\n{rest}")
        };
        let leaders = "leaderName: m\ncontrollerLeaders:\n- {name: route-controller, component: '*'}\n\
                       - {name: service-controller, component: kube-controller-manager}\n";
        for (text, error) in [
            (file("v1", leaders), None),
            (file("v1", "leaderName: m\ncontrollerLeaders: []\n"), None),
            (file("v1", "leaderName: m\n"), None),
            (file("v1beta1", &format!("{leaders}resourceLock: leases\n")), None),
            (file("v1alpha1", &format!("{leaders}resourceLock: leases\n")), None),
            (file("v1alpha1", &format!("{leaders}resourceLock: endpoints\n")), Some("locks on Endpoints are not supported")),
            (file("v1", &format!("{leaders}resourceLock: leases\n")), Some("resourceLock")),
            (file("v1beta1", "leaderName: m\nresourceLock: configmaps\n"), Some("resourceLock")),
            (file("v1", "leaderName: ''\n"), Some("leaderName")),
            (file("v1", "leaderName: m\ncontrollerLeaders: [{name: x}]\n"), Some("controllerLeaders[0].component")),
            (file("v1", "leaderName: m\nleadername: m\n"), Some("leadername")),
            (file("v2", "leaderName: m\n"), Some("expected kind")),
            (String::new(), Some("")),
            ("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n".to_owned(), Some("")),
            (file("v1", "leaderName: m\n").replace("LeaderMigration", "Kubelet"), Some("expected kind")),
            (file("v1beta1", "leaderName: ''\nresourceLock: leases\n"), Some("leaderName")),
            (file("v1beta1", "leaderName: m\nresourceLock: invalid\n"), Some("resourceLock")),
            (file("v1alpha1", "leaderName: m\n"), Some("resourceLock")),
            (file("v1", "leaderName: m\ncontrollerLeaders: [{component: x}]\n"), Some("controllerLeaders[0].name")),
            (file("v1", "leaderName: m\ncontrollerLeaders: [{name: x, component: ''}]\n"), Some("[0].component")),
            (file("v1", "leaderName: m\ncontrollerLeaders: [{name: x, component: y, lock: z}]\n"), Some("lock")),
            ("kind: [".to_owned(), Some("")),
        ] {
            match (parse(&text), error) {
                (Ok(migration), None) => {
                    let entry = |name: &str, component: &str| MigratingController {
                        name: name.to_owned(),
                        component: component.to_owned(),
                    };
                    let listed = [entry("route-controller", "*"), entry("service-controller", "kube-controller-manager")];
                    let expected = if text.contains("route-controller") { &listed[..] } else { &[] };
                    assert_eq!((migration.lease_name.as_str(), migration.controllers.as_slice()), ("m", expected), "{text}");
                }
                (Err(message), Some(part)) => assert!(message.contains(part), "{message}"),
                (result, _) => panic!("{text}: {result:?}"),
            }
        }
    }
}
