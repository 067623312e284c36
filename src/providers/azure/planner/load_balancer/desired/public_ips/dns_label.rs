//! DNS label of one public IP: the Service that decides about it, and the reasons to reject the labels of other Services. Pure.
//!
//! In: the document, and the Services that use the public IP. Out: a [`DnsLabelDecision`]. The Service for which a public IP was created
//! precedes its guests. The tag `k8s-azure-dns-label-service` names the Service that has set the label: only that Service can remove the
//! label, with an empty annotation. A public IP that a user created gets no tag, so its label can be changed and is never removed.
//! Upstream: `pkg/provider/azure_loadbalancer.go`, `reconcileDNSSettings`. Difference: a Service that does not get its label is served.

use std::collections::BTreeMap;

use super::{
    super::public_ip_ownership::{self as ownership, PublicIpOwner},
    claims::PublicIpClaim,
};
use crate::providers::azure::{
    model::{network::PublicIpAddress, spelling},
    planner::load_balancer::spec::{ServiceIdentity, ServiceSpec},
};

/// Change of the DNS label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DnsLabelChange<'a> {
    /// Service whose label the public IP gets.
    Set(&'a ServiceSpec),
    Remove,
}

/// Result for the Services that use one public IP.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct DnsLabelDecision<'a> {
    pub(super) change: Option<DnsLabelChange<'a>>,
    /// Requests whose annotation has no effect, with the reason.
    pub(super) rejected: BTreeMap<&'a ServiceIdentity, String>,
}

/// Returns the label of a public IP; empty if it has none.
pub(super) fn label_of(pip: &PublicIpAddress) -> &str {
    let settings = pip.properties.as_ref().and_then(|properties| properties.dns_settings.as_ref());
    settings.and_then(|settings| settings.domain_name_label.as_deref()).unwrap_or_default()
}

/// Input of the decision about the label of one public IP.
pub(super) struct DnsLabelQuestion<'q, 'a> {
    pub(super) pip: &'q PublicIpAddress,
    pub(super) maker: PublicIpOwner,
    /// Keys of the Services that the public IP will list. If this cluster created it, the first is the Service for which it did.
    pub(super) services: &'q [String],
    /// Claims on the public IP that are not refused.
    pub(super) claims: Vec<&'q PublicIpClaim<'a>>,
}

impl<'a> DnsLabelQuestion<'_, 'a> {
    /// Decides for all Services at once. Only a Service that is requested changes the label.
    pub(super) fn decide(&self) -> DnsLabelDecision<'a> {
        let present = label_of(self.pip);
        let holder = self.holder();
        let setter = self.setter();
        let winner = holder.filter(|holder| setter.is_none_or(|key| self.precedes(holder, key)));
        let removal =
            self.requested().find(|spec| is_empty(spec) && winner.is_none() && !present.is_empty() && self.has_set(spec));
        let change = match winner {
            Some(spec) if self.requested().any(|requested| requested.identity == spec.identity) => {
                self.needs_change(spec, present).then_some(DnsLabelChange::Set(spec))
            }
            Some(_) => None,
            None => removal.map(|_| DnsLabelChange::Remove),
        };
        let rejected = self.requested().filter_map(|spec| Some((&spec.identity, self.rejection(spec, winner, change)?)));
        DnsLabelDecision { change, rejected: rejected.collect() }
    }

    fn requested(&self) -> impl Iterator<Item = &'a ServiceSpec> {
        self.claims.iter().filter(|claim| claim.requested).map(|claim| claim.spec)
    }

    fn has_set(&self, spec: &ServiceSpec) -> bool {
        ownership::dns_owner(self.pip).is_some_and(|key| spelling::same_name(key, &spec.identity.key))
    }

    /// Returns `true` if the public IP was created for the Service, which then precedes its guests.
    fn is_maker(&self, spec: &ServiceSpec) -> bool {
        let first = self.services.first().filter(|_| self.maker == PublicIpOwner::Cluster);
        first.is_some_and(|first| spelling::same_name(first, &spec.identity.key))
    }

    /// Returns the Service that comes first among those that request a label.
    fn holder(&self) -> Option<&'a ServiceSpec> {
        let requests = self.claims.iter().map(|claim| claim.spec).filter(|spec| !label(spec).is_empty());
        requests.filter(|_| self.maker != PublicIpOwner::OtherCluster).min_by_key(|spec| {
            let has_it = spelling::same_name(label(spec), label_of(self.pip));
            (!self.is_maker(spec), !self.has_set(spec), !has_it, &spec.identity)
        })
    }

    /// Returns the Service that has set the label and has no annotation any more: the label is retained.
    fn setter(&self) -> Option<&str> {
        let key = ownership::dns_owner(self.pip)?;
        let is_it = |name: &str| spelling::same_name(name, key);
        let is_listed = self.services.iter().any(|name| is_it(name));
        let mut own = self.claims.iter().filter(|claim| is_it(&claim.spec.identity.key)).peekable();
        let uses_it = is_listed || own.peek().is_some();
        (uses_it && own.all(|claim| claim.spec.public_ip.dns_label.is_none())).then_some(key)
    }

    fn precedes(&self, holder: &ServiceSpec, setter: &str) -> bool {
        self.is_maker(holder) || spelling::same_name(setter, &holder.identity.key)
    }

    /// Returns `true` if the label differs, or if the tag of a public IP of this cluster names another Service.
    fn needs_change(&self, spec: &ServiceSpec, present: &str) -> bool {
        let needs_tag = self.maker == PublicIpOwner::Cluster && !self.has_set(spec);
        needs_tag || !spelling::same_name(label(spec), present)
    }

    fn rejection(
        &self,
        spec: &ServiceSpec,
        winner: Option<&ServiceSpec>,
        change: Option<DnsLabelChange<'_>>,
    ) -> Option<String> {
        let own = spec.public_ip.dns_label.as_deref()?;
        let present = label_of(self.pip);
        let is_won = winner.is_some_and(|winner| winner.identity == spec.identity);
        if is_won || change == Some(DnsLabelChange::Remove) || spelling::same_name(own, winner.map_or(present, label)) {
            return None;
        }
        match (self.maker, winner) {
            (PublicIpOwner::OtherCluster, _) => {
                Some(format!("it keeps its DNS label `{present}`: another cluster created it"))
            }
            (_, Some(_)) if own.is_empty() => None,
            (_, Some(winner)) => Some(format!(
                "it does not get the DNS label `{own}`: {} has set the DNS label `{}`; remove the annotation from one of them",
                winner.identity.key,
                label(winner)
            )),
            (PublicIpOwner::User, None) if own.is_empty() => Some(format!(
                "it keeps its DNS label `{present}`, which may be that of the user who created it; remove the label in Azure"
            )),
            (_, None) if own.is_empty() => {
                Some(format!("it keeps its DNS label `{present}`, which {} has not set", spec.identity.key))
            }
            (_, None) => Some(format!(
                "it does not get the DNS label `{own}`: {} has set the DNS label `{present}`; set its annotation to an empty value first",
                ownership::dns_owner(self.pip).unwrap_or_default()
            )),
        }
    }
}

fn label(spec: &ServiceSpec) -> &str {
    spec.public_ip.dns_label.as_deref().unwrap_or_default()
}

fn is_empty(spec: &ServiceSpec) -> bool {
    spec.public_ip.dns_label.as_deref() == Some("")
}
