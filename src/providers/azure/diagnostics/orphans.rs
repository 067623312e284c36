//! Orphans: resources that are tagged or named for the cluster and that no Service owns, read from Azure.
//!
//! In: a session that works, the cluster's Services and Nodes. Out: a report, or findings about it. The report names failed
//! reads, and omits the resources that depend on them. Services are listed again at the end: a resource that was created
//! meanwhile for one of them is not an orphan.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use k8s_openapi::api::core::v1::{Node, Service};

use super::{
    checks::{ORPHANS, ROOM, TENANTS},
    opened::{OpenedCloud, READ_RIGHT, list},
    tenants, verdicts,
};
use crate::{
    cloud_provider::diagnostics::{DiagnosticFinding, DiagnosticRequest, OrphanReport, OrphanedResource},
    providers::azure::{
        arm::Urgency,
        model::{
            ArmErrorClass, ResourceId, api,
            network::{ArmLoadBalancer, PublicIpAddress},
            spelling,
        },
        node::external_resource_group,
        planner::load_balancer::{
            desired::ownerless::{OwnerlessKind, OwnerlessPart, OwnershipInput, ownerless},
            naming,
            observed::{ObservedNetwork, ObservedPrivateLinks},
            pools::managed_pool::is_managed,
            spec::{identity_of, parse_leniently, status_addresses},
        },
    },
};

/// Most orphans that a finding names.
const NAMED: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    LoadBalancers,
    PublicIps,
    SecurityGroup,
    PrivateLinks,
    Nodes,
}

/// Returns the lists that are needed to judge a kind. Security rules are judged by the addresses of all other resources.
fn needed(kind: OwnerlessKind) -> &'static [Part] {
    match kind {
        OwnerlessKind::LoadBalancingRule
        | OwnerlessKind::Probe
        | OwnerlessKind::FrontEnd
        | OwnerlessKind::BackendPool
        | OwnerlessKind::LoadBalancer => &[Part::LoadBalancers],
        OwnerlessKind::SecurityRule => &[Part::LoadBalancers, Part::PublicIps, Part::SecurityGroup, Part::Nodes],
        OwnerlessKind::PrivateLinkService => &[Part::PrivateLinks],
        OwnerlessKind::PublicIp => &[Part::PublicIps],
    }
}

/// Documents that were read, and the failed reads.
struct Sighted {
    observed: ObservedNetwork,
    /// Services that were listed before and after the documents.
    services: Result<Vec<Service>, String>,
    missing: BTreeSet<Part>,
    unread: Vec<String>,
}

impl Sighted {
    fn miss(&mut self, part: Part, subject: &str, reason: &str) {
        self.missing.insert(part);
        self.unread.push(format!("{subject}: {reason}"));
    }
}

/// Returns the orphans, and adds the findings about them, and about the documents that were read for them.
pub(super) async fn examine(
    cloud: &OpenedCloud,
    request: &DiagnosticRequest,
    findings: &mut Vec<DiagnosticFinding>,
) -> OrphanReport {
    let sighted = read_network(cloud, request).await;
    let room = match sighted.missing.contains(&Part::LoadBalancers) {
        true => DiagnosticFinding::undetermined(ROOM, "load balancers could not be read", READ_RIGHT),
        false => verdicts::room(&sighted.observed, &cloud.settings),
    };
    let services = sighted.services.as_deref().unwrap_or_default();
    let named = verdicts::cluster_name(&sighted.observed.public_ips, services, &cloud.settings);
    let tenants = match &request.services {
        Err(reason) => vec![DiagnosticFinding::undetermined(TENANTS, reason, "grant list on services")],
        _ if [Part::LoadBalancers, Part::PublicIps].iter().any(|part| sighted.missing.contains(part)) => {
            vec![DiagnosticFinding::undetermined(TENANTS, "load balancers and public IPs could not be read", READ_RIGHT)]
        }
        Ok(services) => tenants::tenants(&sighted.observed, services, &cloud.session.config, &cloud.settings.cluster),
    };
    findings.extend([room, named]);
    findings.extend(tenants);
    let report = judge(cloud, request, sighted);
    findings.extend(summary(&report));
    report
}

/// Returns findings about the orphans, and about failed reads.
fn summary(report: &OrphanReport) -> Vec<DiagnosticFinding> {
    let OrphanReport { orphans, unread } = report;
    let mut findings = Vec::new();
    if !orphans.is_empty() {
        let named: Vec<&str> =
            orphans.iter().take(NAMED).map(|entry| entry.id.rsplit('/').next().unwrap_or(&entry.id)).collect();
        let text = format!("{} resources belong to no Service: {}", orphans.len(), named.join(", "));
        findings.push(DiagnosticFinding::warning(ORPHANS, text, "run `orphans`: it says what each is and what removes it"));
    }
    if !unread.is_empty() {
        findings.push(DiagnosticFinding::undetermined(ORPHANS, unread.join("; "), READ_RIGHT));
    }
    if orphans.is_empty() && unread.is_empty() {
        findings.push(DiagnosticFinding::ok(ORPHANS, "every resource with the cluster's marks belongs to a Service"));
    }
    findings
}

/// Reads the network, the rules of the security group first: the addresses that they lead to exist before them, so a later
/// list has them.
async fn read_network(cloud: &OpenedCloud, request: &DiagnosticRequest) -> Sighted {
    let settings = &cloud.settings;
    let mut sighted = Sighted {
        observed: ObservedNetwork::default(),
        services: Err(String::new()),
        missing: BTreeSet::new(),
        unread: Vec::new(),
    };
    let arm = cloud.session.network.with_urgency(Urgency::Change);
    if let Some(id) = &settings.security_group {
        match arm.get(&api::SECURITY_GROUPS, id, &[]).await {
            Ok(found) => sighted.observed.security_group = Some(found),
            Err(error) if error.class == ArmErrorClass::NotFound => {}
            Err(error) => sighted.miss(Part::SecurityGroup, "security group", &error.to_string()),
        }
    }
    match list(&arm, &api::LOAD_BALANCERS, &settings.load_balancer_group).await {
        Ok(found) => sighted.observed.load_balancers = found,
        Err(reason) => sighted.miss(Part::LoadBalancers, "load balancers", &reason),
    }
    let (addresses, links) = groups(cloud, request.services.as_deref().unwrap_or_default());
    for group in &addresses {
        match list(&arm, &api::PUBLIC_IPS, group).await {
            Ok(found) => sighted.observed.public_ips.extend(found),
            Err(reason) => sighted.miss(Part::PublicIps, &format!("public IPs of {}", group.name()), &reason),
        }
    }
    let mut private_links = ObservedPrivateLinks::default();
    for group in &links {
        match list(&arm, &api::PRIVATE_LINK_SERVICES, group).await {
            Ok(found) => private_links.services.extend(found),
            Err(reason) => sighted.miss(Part::PrivateLinks, &format!("private link services of {}", group.name()), &reason),
        }
    }
    private_links.groups = links;
    sighted.observed.private_links = private_links;
    if let Err(reason) = &request.nodes {
        sighted.miss(Part::Nodes, "Nodes", reason);
    }
    sighted.services = request.services_before_and_now().await;
    let now = groups(cloud, sighted.services.as_deref().unwrap_or_default()).0;
    if let Some(group) = now.difference(&addresses).next() {
        let reason = "a Service has named this group meanwhile; run the command again";
        sighted.miss(Part::PublicIps, &format!("public IPs of {}", group.name()), reason);
    }
    sighted
}

/// Returns the groups in which the cluster may have public IPs and private link services: its own, and those that the
/// configuration and Services name.
fn groups(cloud: &OpenedCloud, services: &[Service]) -> (BTreeSet<ResourceId>, BTreeSet<ResourceId>) {
    let settings = &cloud.settings;
    let named = settings.allowed_groups.iter().map(|name| ResourceId::group_of(settings.group.subscription(), name));
    let mut addresses: BTreeSet<ResourceId> =
        named.chain([settings.group.clone(), settings.load_balancer_group.clone()]).collect();
    let mut links = BTreeSet::from([settings.private_link_group.clone()]);
    for service in services {
        let spec = parse_leniently(service, settings);
        addresses.insert(spec.public_ip.group);
        links.extend(spec.private_link.map(|link| link.group));
    }
    (addresses, links)
}

/// Returns the orphan report, or no orphans if the Services cannot be listed.
fn judge(cloud: &OpenedCloud, request: &DiagnosticRequest, mut sighted: Sighted) -> OrphanReport {
    let services = match &sighted.services {
        Ok(services) => services,
        Err(reason) => {
            sighted.unread.push(format!("Services: {reason}"));
            return OrphanReport { orphans: Vec::new(), unread: sighted.unread };
        }
    };
    if let Some(mismatch) = cluster_mismatch(&request.nodes, &cloud.session.inventory.settings.group) {
        sighted.unread.push(format!("Services: {mismatch}"));
        return OrphanReport { orphans: Vec::new(), unread: sighted.unread };
    }
    let identities: Vec<_> = services.iter().map(identity_of).collect();
    let (observed, settings) = (&sighted.observed, &cloud.settings);
    let managed: Vec<_> = observed.load_balancers.iter().filter(|document| is_managed(document, settings)).collect();
    let addresses = addresses(services, &request.nodes);
    let services = &identities;
    let found = ownerless(&OwnershipInput { observed, managed: managed.clone(), services, addresses: &addresses, settings });
    let managed = (!sighted.missing.contains(&Part::LoadBalancers)).then_some(&*managed);
    let can_be_judged = |part: &&OwnerlessPart| !needed(part.kind).iter().any(|list| sighted.missing.contains(list));
    let lost = lost_services(&found);
    let reported = |part| {
        let service = lost.iter().find(|(prefix, _)| names(part).contains(prefix.as_str())).map(|(_, key)| key.clone());
        OrphanedResource { service, ..orphan(part, &settings.cluster, &attachment(part, observed, managed)) }
    };
    let orphans = found.iter().filter(can_be_judged).map(reported).collect();
    OrphanReport { orphans, unread: sighted.unread }
}

/// Returns the Services that no longer exist, by the generated prefix of their parts' names: their keys if a tag has them, else
/// that prefix.
fn lost_services(parts: &[OwnerlessPart]) -> BTreeMap<String, String> {
    let mut lost = BTreeMap::new();
    for part in parts {
        if let Some(prefix) = generated_prefix(&names(part)) {
            let key = lost.entry(prefix.clone()).or_insert(prefix);
            if let [service] = part.services.as_slice() {
                key.clone_from(service);
            }
        }
    }
    lost
}

/// Returns the last name in the id of a part.
fn names(part: &OwnerlessPart) -> String {
    part.id.rsplit('/').next().unwrap_or_default().to_lowercase()
}

/// Returns the generated prefix of the names of a Service's parts, at any position in `name`: public IPs have the cluster's
/// name before it.
fn generated_prefix(name: &str) -> Option<String> {
    let starts = name.match_indices('a').filter_map(|(at, _)| name.get(at..at + naming::NAME_PREFIX_LENGTH));
    let is_start = |word: &&str| word.bytes().skip(1).all(|letter| letter.is_ascii_hexdigit());
    starts.into_iter().find(is_start).map(str::to_owned)
}

/// Returns the reason why the Services may be those of another cluster: there are Nodes with machines, and all of them are
/// elsewhere.
///
/// Otherwise everything in the configured group would be reported as an orphan.
fn cluster_mismatch(nodes: &Result<Vec<Node>, String>, group: &ResourceId) -> Option<String> {
    let id = |node: &Node| node.spec.as_ref().and_then(|spec| spec.provider_id.clone()).filter(|id| !id.is_empty());
    let is_known = |node: &Node| {
        let machine = id(node).and_then(|id| ResourceId::parse(id.strip_prefix("azure://")?).ok());
        let group_of = |id: &ResourceId| Some(ResourceId::group_of(id.subscription(), id.resource_group()?));
        machine.as_ref().and_then(group_of).is_some_and(|own| own == *group) || external_resource_group(node).is_some()
    };
    let with_machine: Vec<&Node> = nodes.iter().flatten().filter(|node| id(node).is_some()).collect();
    let first = id(with_machine.first()?)?;
    let is_other = !with_machine.iter().any(|node| is_known(node));
    is_other.then(|| {
        format!(
            "this may be another cluster: the machine of none of its {} Nodes is in {}, the first is {first:?}; does --kubeconfig name the \
             cluster of azure.json?",
            with_machine.len(),
            group.name()
        )
    })
}

/// Returns the addresses at which Nodes and Services can be reached.
fn addresses(services: &[Service], nodes: &Result<Vec<Node>, String>) -> BTreeSet<IpAddr> {
    let of_node = |node: &Node| {
        let listed = node.status.as_ref().and_then(|status| status.addresses.clone()).unwrap_or_default();
        listed.into_iter().filter_map(|entry| entry.address.parse().ok()).collect::<Vec<IpAddr>>()
    };
    let hosts = nodes.iter().flatten().flat_map(of_node);
    hosts.chain(services.iter().flat_map(status_addresses)).collect()
}

/// Returns the resource that has a public IP, and whether it is this cluster's: `managed` are its load balancers, if they
/// could be read.
fn attachment(part: &OwnerlessPart, observed: &ObservedNetwork, managed: Option<&[&ArmLoadBalancer]>) -> String {
    let is_it = |public_ip: &&PublicIpAddress| public_ip.id.as_deref().is_some_and(|id| spelling::same_name(id, &part.id));
    let properties = observed.public_ips.iter().find(is_it).and_then(|public_ip| public_ip.properties.as_ref());
    let users = properties.into_iter().flat_map(|properties| [&properties.ip_configuration, &properties.nat_gateway]);
    let Some(user) = users.flatten().find_map(|user| user.id.as_deref()) else { return String::new() };
    let is_of = |document: &&ArmLoadBalancer| {
        let start = document.id.as_ref().map(|id| format!("{}/", id.to_ascii_lowercase()));
        start.is_some_and(|start| user.to_ascii_lowercase().starts_with(&start))
    };
    match managed {
        Some(managed) if !managed.iter().any(is_of) => {
            format!(". It is attached to {user}, which is not a frontend of this cluster")
        }
        _ => format!(". It is attached to {user}"),
    }
}

/// Returns the orphan. `attachment`: the end of the reason.
fn orphan(part: &OwnerlessPart, cluster: &str, attachment: &str) -> OrphanedResource {
    let OwnerlessPart { kind, id, services } = part;
    let (name, marks, command) = match kind {
        OwnerlessKind::LoadBalancingRule => {
            ("load_balancing_rule", "its name is that of a Service's rule", "network lb rule")
        }
        OwnerlessKind::Probe => ("probe", "its name is that of a Service's probe", "network lb probe"),
        OwnerlessKind::FrontEnd => ("front_end", "its name is that of a Service's frontend", "network lb frontend-ip"),
        OwnerlessKind::BackendPool => ("backend_pool", "no rule leads to it", "network lb address-pool"),
        OwnerlessKind::LoadBalancer => {
            ("load_balancer", "its name is that of a load balancer of the cluster, and it has no frontend", "network lb")
        }
        OwnerlessKind::SecurityRule => ("security_rule", "it leads to no address of the cluster", "network nsg rule"),
        OwnerlessKind::PrivateLinkService => {
            ("private_link_service", "its tags name the cluster", "network private-link-service")
        }
        OwnerlessKind::PublicIp => ("public_ip", "its tags name Services of the cluster", "network public-ip"),
    };
    let reason = match services.is_empty() {
        true => format!(
            "{marks}, and no Service has it; the manager plans for Services that exist, and a rule or pool may be another cluster's"
        ),
        false => format!(
            "{marks}: {} no longer exists, or never did in this cluster. It was deleted while no manager cleaned up, for example with its finalizer \
             removed, and the manager plans for Services that exist; or this may be another cluster's with the same --cluster-name \
             ({cluster}){attachment}",
            services.join(", ")
        ),
    };
    let (id, services) = (id.clone(), services.clone());
    OrphanedResource { kind: name, removal: format!("az {command} delete --ids {id}"), id, service: None, services, reason }
}
