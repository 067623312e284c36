//! Private link services and the policies of their subnets: planned as recorded.

use cloud_controller_manager::providers::azure::{
    arm::ResourceId,
    planner::load_balancer::{
        desired::{
            load_balancers::{PublicIpAssignment, plan_load_balancers},
            private_links::{PrivateLinkInput, PrivateLinkPlan, PrivateLinkRefusals, plan_private_links},
        },
        observed::ObservedNetwork,
    },
};
use serde_json::{Value, json};

use super::{
    assert_only,
    cloud::{Cloud, PRIVATE_LINK, VIRTUAL_NETWORK},
    cluster::Turn,
    public_ips,
};

/// Plans the private link services for the load balancers that there will be.
pub(super) fn plan(cloud: &mut Cloud<'_>, turn: &Turn, public_ips: &PublicIpAssignment) -> PrivateLinkPlan {
    let (plan, refused) = reconcile_all(&cloud.observed(turn), turn, public_ips);
    let answers = refused.into_iter().map(|(who, refusal)| (who, Err::<(), _>(refusal))).collect();
    cloud.answered(&answers);
    plan
}

fn reconcile_all(
    observed: &ObservedNetwork,
    turn: &Turn,
    public_ips: &PublicIpAssignment,
) -> (PrivateLinkPlan, PrivateLinkRefusals) {
    let (requests, others, settings) = (&turn.asks, &turn.others, &turn.settings);
    let load_balancers = plan_load_balancers(observed, requests, others, public_ips, settings);
    plan_private_links(&PrivateLinkInput { observed, requests, others, load_balancers: &load_balancers, settings })
}

/// Deletes those that are in the way of load balancers.
pub(super) fn delete(cloud: &mut Cloud<'_>, planned: &PrivateLinkPlan) {
    planned.deletions.iter().for_each(|gone| cloud.delete(&gone.id));
}

/// Writes the others, into subnets that let them in.
pub(super) fn write(cloud: &mut Cloud<'_>, planned: &PrivateLinkPlan) {
    planned.subnets.iter().for_each(|change| open(cloud, &change.id));
    planned.writes.iter().for_each(|change| cloud.put(&change.id, &change.document));
}

fn open(cloud: &mut Cloud<'_>, subnet: &ResourceId) {
    let network = cloud.documents.get_mut(&subnet.parent().unwrap().key()).unwrap();
    let subnets = network["properties"]["subnets"].as_array_mut().unwrap();
    let found = subnets.iter_mut().find(|known| known["name"] == subnet.name()).unwrap();
    found["properties"]["privateLinkServiceNetworkPolicies"] = json!("Disabled");
}

fn as_it_is(_: &mut Value) {}

#[test]
fn private_link_services_become_as_recorded() {
    assert_only(&[], |scene| scene.differences(PRIVATE_LINK, as_it_is));
}

#[test]
fn subnets_become_as_recorded() {
    assert_only(&[], |scene| scene.differences(VIRTUAL_NETWORK, as_it_is));
}

#[test]
fn recorded_private_link_services_are_left_alone() {
    assert_only(&[], |scene| {
        let (cloud, turn) = scene.end();
        let observed = cloud.observed(&turn);
        let wanted = public_ips::reconcile_all(&observed, &turn).assigned;
        let (plan, refused) = reconcile_all(&observed, &turn, &wanted);
        let written = plan.writes.iter().map(|change| format!("{} would change: {:?}", change.id.name(), change.reasons));
        let deleted = plan.deletions.iter().map(|gone| format!("{} would go: {:?}", gone.id.name(), gone.reasons));
        let refused = refused.iter().map(|(who, refusal)| format!("{} would be refused: {refusal}", who.key));
        written.chain(deleted).chain(refused).collect()
    });
}
