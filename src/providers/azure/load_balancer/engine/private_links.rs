//! Private link services, at the two points where they are written: those in the way of load balancers before these, the others after.
//!
//! In: the plan of the stage of load balancers. Out: whether it has to be planned anew, and who cannot go on; later, whether the private
//! link service of one Service is as planned. What hinders one Service hinders no other.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::future::join_all;

use super::{
    shared_write::SharedWrite,
    stage_context::{StageContext, StageInput},
};
use crate::{
    cloud_provider::{CloudError, CloudResult},
    providers::azure::{
        arm::Urgency,
        load_balancer::{events, explain::cloud_error, observe::NetworkCacheKey},
        model::{ArmError, ArmErrorClass, ArmResult, ResourceId, api, network::PrivateLinkService},
        planner::load_balancer::{
            desired::{
                ServiceRequest,
                private_links::{
                    PrivateLinkChange, PrivateLinkDeletion, PrivateLinkNotice, PrivateLinkPlan, SubnetPolicyChange,
                },
            },
            plan::print::PlannedChange,
            spec::ServiceIdentity,
        },
    },
};

/// Upstream's names of what is counted.
const ENSURE: &str = "ensure_privatelinkservice";
const DELETE: &str = "ensure_privatelinkservice_deleted";
/// A private link service to write, with the subnet that has to let it in first: each once for all who need it.
#[derive(Clone)]
pub(super) struct PrivateLinkWrite {
    change: Arc<SharedWrite<PrivateLinkChange>>,
    subnet: Option<Arc<SharedWrite<SubnetPolicyChange>>>,
}

/// Those who cannot go on, and why.
pub(super) type HeldServices = BTreeMap<ServiceIdentity, CloudError>;

/// The writes of a plan, with whom each is for.
pub(super) fn writes_of(plan: PrivateLinkPlan) -> Vec<(Vec<ServiceIdentity>, PrivateLinkWrite)> {
    let once = |change: SubnetPolicyChange| (change.id.clone(), Arc::new(SharedWrite::new(change)));
    let subnets: BTreeMap<ResourceId, _> = plan.subnets.into_iter().map(once).collect();
    let write = |change: PrivateLinkChange| {
        let subnet = change.policies_of.as_ref().and_then(|id| subnets.get(id).cloned());
        (change.services.clone(), PrivateLinkWrite { change: Arc::new(SharedWrite::new(change)), subnet })
    };
    plan.writes.into_iter().map(write).collect()
}

/// What has to be done before load balancers are written. `None`: nothing. Otherwise all has to be planned anew, without those who are
/// answered.
pub(super) async fn write_first(context: &StageContext, plan: &PrivateLinkPlan, urgency: Urgency) -> Option<HeldServices> {
    if !plan.comes_first() {
        return None;
    }
    let mut first = plan.clone();
    first.writes.retain(|change| change.is_first);
    let writes = writes_of(first);
    let written = join_all(
        writes.into_iter().map(|(services, write)| async move { (services, write.run(context, urgency).await.map(drop)) }),
    );
    let deleted = join_all(
        plan.deletions.iter().map(|gone| async move { (gone.services.clone(), delete(context, gone, urgency).await) }),
    );
    let (written, deleted) = futures::future::join(written, deleted).await;
    let mut held = HeldServices::new();
    for (services, outcome) in written.into_iter().chain(deleted) {
        if let Err(error) = outcome {
            held.extend(services.iter().map(|who| (who.clone(), error.clone())));
        }
    }
    Some(held)
}

/// A conflict is no error: all is planned anew anyway.
async fn delete(context: &StageContext, gone: &PrivateLinkDeletion, urgency: Urgency) -> CloudResult<()> {
    context.announce(PlannedChange::DeletePrivateLink(gone), &gone.services);
    context.private_links.begin_deletion(gone);
    let running = gone.services.iter().map(|who| context.pool_metrics.private_link(DELETE, who)).collect::<Vec<_>>();
    let _busy = context.private_links.begin(&gone.document);
    let outcome = context.writer.caused_by(&gone.services).delete_private_link(gone, urgency).await;
    running.into_iter().for_each(|one| one.end(outcome.is_ok()));
    if outcome.is_ok() {
        tell_disconnected(context, &gone.id);
    }
    match outcome {
        Err(error) if error.class != ArmErrorClass::Conflict => {
            Err(cloud_error(&format!("delete private link service {}", gone.id.name()), error))
        }
        _ => Ok(()),
    }
}

/// Told when it is so: a deletion that Azure refuses disconnects nobody, or is tried again.
fn tell_disconnected(context: &StageContext, id: &ResourceId) {
    let Some(gone) = context.private_links.end_deletion(id) else { return };
    for service in gone.services.iter().filter_map(|who| context.service_index.service(who)) {
        context.events.record(events::connections_cut(&service, &gone));
    }
}

impl PrivateLinkWrite {
    /// Whether it is as planned; otherwise somebody else has written it.
    async fn run(&self, context: &StageContext, urgency: Urgency) -> CloudResult<bool> {
        if let Some(subnet) = &self.subnet {
            let opened = subnet.run(|change| {
                context.announce(PlannedChange::Subnet(change), &change.services);
                let writer = context.writer.caused_by(&change.services);
                async move { writer.open_subnet(change, urgency).await }
            });
            match opened.await {
                Ok(()) => {}
                Err(error) if error.class == ArmErrorClass::Conflict => return Ok(false),
                Err(error) => return Err(subnet_error(error)),
            }
        }
        match self.change.run(|change| put(context, change, urgency)).await {
            Ok(()) => Ok(true),
            Err(error) if error.class == ArmErrorClass::Conflict => Ok(false),
            Err(error) => Err(cloud_error("write the private link service", error)),
        }
    }
}

async fn put(context: &StageContext, change: &PrivateLinkChange, urgency: Urgency) -> ArmResult<()> {
    context.announce(PlannedChange::PrivateLink(change), &change.services);
    let _busy = context.private_links.begin(&change.document);
    context.writer.caused_by(&change.services).put_private_link(change, urgency).await
}

fn subnet_error(error: ArmError) -> CloudError {
    let doing = "disable the network policies of the subnet for private link services, which an administrator may do instead \
                 (privateLinkServiceNetworkPolicies: Disabled)";
    cloud_error(doing, error)
}

/// Has the private link services of one Service written. Whether they are as planned.
pub(super) async fn write_after(
    context: &StageContext,
    request: &ServiceRequest,
    writes: &[PrivateLinkWrite],
    urgency: Urgency,
) -> CloudResult<bool> {
    let asks = matches!(request, ServiceRequest::Ensure(spec) if spec.private_link.is_some());
    if !asks {
        return Ok(true);
    }
    let running = context.pool_metrics.private_link(ENSURE, request.identity());
    let written: CloudResult<Vec<bool>> =
        join_all(writes.iter().map(|write| write.run(context, urgency))).await.into_iter().collect();
    running.end(written.is_ok());
    Ok(written?.into_iter().all(|is_written| is_written))
}

impl StageContext {
    /// Tells users what they should know of private link services.
    pub(super) fn notify_private_links(&self, notices: &[(ServiceIdentity, PrivateLinkNotice)]) {
        for (who, notice) in notices {
            self.announce(PlannedChange::PrivateLinkNotice(who, notice), [who]);
            if let Some(service) = self.service_index.service(who) {
                self.events.record(events::private_link_notice(&service, notice));
            }
        }
    }

    /// Looks where Azure says that private link services are, when it has refused to let front ends go because of one. Whether something
    /// was found that was not known.
    pub(super) async fn discover_private_links(&self, error: &ArmError, input: &StageInput, urgency: Urgency) -> bool {
        if !is_about_private_links(error) {
            return false;
        }
        let subscription = self.settings.private_link_group.subscription();
        let path =
            format!("{}/providers/{}", ResourceId::subscription_of(subscription), api::PRIVATE_LINK_SERVICES.resource_type);
        let client = self.compute.with_urgency(urgency);
        let listed: Vec<PrivateLinkService> = match client.list(&api::PRIVATE_LINK_SERVICES, &path, &[]).await {
            Ok(listed) => listed,
            Err(error) => {
                tracing::warn!(%error, "cannot look for the private link service that holds a front end");
                return false;
            }
        };
        let is_known = |link: &PrivateLinkService| {
            link.id
                .as_deref()
                .and_then(|id| ResourceId::parse(id).ok())
                .is_none_or(|id| input.observed.private_links.services.iter().any(|known| known.is(&id)))
        };
        let is_ours = |link: &PrivateLinkService| {
            link.load_balancers().any(|balancer| input.observed.load_balancer(&balancer).is_some())
        };
        let unknown = listed.iter().filter(|link| is_ours(link) && !is_known(link));
        let groups: BTreeSet<ResourceId> =
            unknown.filter_map(|link| ResourceId::parse(link.id.as_deref()?).ok()?.parent()).collect();
        for group in &groups {
            self.observer.invalidate(NetworkCacheKey::PrivateLinks(group.clone()));
        }
        let is_new = !groups.is_empty();
        self.private_links.note_discovered(groups);
        is_new
    }
}

/// Whether ARM refused because of a private link service: the codes are not documented.
fn is_about_private_links(error: &ArmError) -> bool {
    let text = format!("{} {}", error.code, error.message).to_ascii_lowercase();
    error.class == ArmErrorClass::Invalid && (text.contains("privatelinkservice") || text.contains("private link service"))
}
