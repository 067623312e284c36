//! The rights for `--use-service-account-credentials`: those of the provider's account, and the right to request tokens of other accounts.

use cloud_controller_manager::{
    controllers::names::{self, TABLE},
    providers::azure::{
        load_balancer::lease::plan::NAME as LEASE_NAME, planner::load_balancer::rule_records::CONFIG_MAP as RECORDS_NAME,
    },
};

use super::*;

const FILE: &str = "azure/service-accounts.yaml";
const ACCOUNT: &str = "azure-cloud-provider";
/// Account of the route controller. Kubernetes' `system:controller:route-controller` may list and watch Nodes, but not get one.
const ROUTES: &str = names::ROUTE.client;

/// Returns the calls of an account.
fn account_calls(account: &str) -> BTreeSet<Grant> {
    let secret = default_secret();
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
        // providers/azure/out_of_service.rs, providers/azure/load_balancer/{lease,engine/rule_record_store}.rs, providers/azure/config_source.rs
        calls.extend(["get", "patch"].map(|verb| ["cluster", "", "nodes", "*", verb]));
        calls.push(["cluster", "", "services", "*", "get"]);
        calls.push([NAMESPACE, "coordination.k8s.io", "leases", "*", "create"]);
        calls.extend(["get", "update"].map(|verb| [NAMESPACE, "coordination.k8s.io", "leases", LEASE_NAME, verb]));
        calls.push([NAMESPACE, "", "configmaps", "*", "create"]);
        calls.extend(["get", "patch"].map(|verb| [NAMESPACE, "", "configmaps", RECORDS_NAME, verb]));
        calls.push([&secret.namespace, "", "secrets", &secret.name, "get"]);
    }
    calls.into_iter().map(grant).collect()
}

#[test]
fn every_account_has_exactly_the_rights_that_it_uses() {
    let objects = documents(FILE);
    let expected = [NAME, ACCOUNT, ROUTES].map(|account| (account.to_owned(), account_calls(account)));
    assert_eq!(rights(&objects), BTreeMap::from(expected));
    let accounts: Vec<_> = objects.iter().filter(|object| object["kind"] == "ServiceAccount").collect();
    let [account] = accounts[..] else { panic!("{accounts:?}") };
    assert_eq!(account["metadata"], json!({"name": ACCOUNT, "namespace": NAMESPACE}));
}
