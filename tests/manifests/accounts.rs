//! The rights for `--use-service-account-credentials`: what the provider's own account may do, and who may get tokens for whom.

use cloud_controller_manager::{
    controllers::names::{self, TABLE},
    providers::azure::{
        load_balancer::lease::plan::NAME as LEASE_NAME, planner::load_balancer::rule_records::CONFIG_MAP as RECORDS_NAME,
    },
};

use super::*;

const FILE: &str = "azure/service-accounts.yaml";
const ACCOUNT: &str = "azure-cloud-provider";
/// Kubernetes' own `system:controller:route-controller` may list and watch Nodes, not get one.
const ROUTES: &str = names::ROUTE.client;

/// What each account calls: where it is granted, API group, resource, object name, verb.
fn calls(account: &str) -> BTreeSet<Grant> {
    let secret = ConfigSecretRef::default();
    let mut calls: Vec<[&str; 5]> = Vec::new();
    let mut accounts: Vec<&str> = TABLE.iter().map(|names| names.client).collect();
    accounts.push(ACCOUNT);
    if account == NAME {
        // runtime/service_account.rs
        calls.push([NAMESPACE, "", "serviceaccounts", "*", "create"]);
        calls.extend(accounts.iter().map(|name| [NAMESPACE, "", "serviceaccounts", name, "get"]));
        calls.extend(accounts.iter().map(|name| [NAMESPACE, "", "serviceaccounts/token", name, "create"]));
    } else if account == ROUTES {
        // controllers/route/reconcile.rs: a Node that --node-filter-requirements hides
        calls.push(["cluster", "", "nodes", "*", "get"]);
    } else {
        // providers/azure/out_of_service.rs, providers/azure/load_balancer/{lease,engine/rule_record_store}.rs, providers/azure/config/source.rs
        calls.extend(["get", "patch"].map(|verb| ["cluster", "", "nodes", "*", verb]));
        calls.push(["cluster", "", "services", "*", "get"]);
        calls.push([NAMESPACE, "coordination.k8s.io", "leases", "*", "create"]);
        calls.extend(["get", "update"].map(|verb| [NAMESPACE, "coordination.k8s.io", "leases", LEASE_NAME, verb]));
        calls.push([NAMESPACE, "", "configmaps", "*", "create"]);
        calls.extend(["get", "patch"].map(|verb| [NAMESPACE, "", "configmaps", RECORDS_NAME, verb]));
        calls.push([&secret.namespace, "", "secrets", &secret.name, "get"]);
    }
    calls.into_iter().map(|call| call.map(str::to_owned).into()).collect()
}

fn parsed<K: DeserializeOwned + Serialize>(kind: &str) -> Vec<K> {
    let matching = documents(FILE).into_iter().filter(|object| object["kind"] == kind);
    let checked = matching.inspect(|object| assert_eq!(&round_trip::<K>(object), object));
    checked.map(|object| serde_json::from_value(object).unwrap()).collect()
}

/// Whom a binding is for, and whether it binds this kind of role with this name.
fn subject(role: &RoleRef, subjects: Option<Vec<Subject>>, kind: &str, name: Option<&String>) -> Option<String> {
    let [subject] = <[Subject; 1]>::try_from(subjects.unwrap()).unwrap();
    assert_eq!((subject.kind.as_str(), subject.namespace.as_deref()), ("ServiceAccount", Some(NAMESPACE)));
    (role.kind == kind && Some(&role.name) == name).then_some(subject.name)
}

#[test]
fn every_account_may_do_what_it_calls_and_nothing_more() {
    let mut granted: Vec<(String, Vec<Grant>)> = Vec::new();
    for role in parsed::<ClusterRole>("ClusterRole") {
        let whom = |binding: ClusterRoleBinding| {
            subject(&binding.role_ref, binding.subjects, "ClusterRole", role.metadata.name.as_ref())
        };
        let [account] =
            <[_; 1]>::try_from(parsed("ClusterRoleBinding").into_iter().filter_map(whom).collect::<Vec<_>>()).unwrap();
        granted.push((account, grants("cluster", role.rules)));
    }
    for role in parsed::<Role>("Role") {
        assert_eq!(role.metadata.namespace.as_deref(), Some(NAMESPACE));
        let whom = |binding: RoleBinding| {
            assert_eq!(binding.metadata.namespace.as_deref(), Some(NAMESPACE));
            subject(&binding.role_ref, binding.subjects, "Role", role.metadata.name.as_ref())
        };
        let [account] = <[_; 1]>::try_from(parsed("RoleBinding").into_iter().filter_map(whom).collect::<Vec<_>>()).unwrap();
        granted.push((account, grants(NAMESPACE, role.rules)));
    }
    for account in [NAME, ACCOUNT, ROUTES] {
        let all: Vec<Grant> =
            granted.iter().filter(|(whom, _)| whom == account).flat_map(|(_, grants)| grants.clone()).collect();
        let distinct: BTreeSet<Grant> = all.iter().cloned().collect();
        assert_eq!((distinct.len(), &distinct), (all.len(), &calls(account)), "{account}");
    }
    assert!(granted.iter().all(|(whom, _)| [NAME, ACCOUNT, ROUTES].contains(&whom.as_str())));
    let [account] = <[ServiceAccount; 1]>::try_from(parsed("ServiceAccount")).unwrap();
    assert_eq!((account.metadata.name.as_deref(), account.metadata.namespace.as_deref()), (Some(ACCOUNT), Some(NAMESPACE)));
}
