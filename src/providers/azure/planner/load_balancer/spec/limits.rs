//! Limits of the shared resources that one Service, and all Services of a namespace, may use. Pure.
//!
//! In: specs and the limits of the configuration. Out: refusals. Without configured limits, only those of Azure apply. Upstream has no such
//! limits.

use std::{collections::BTreeMap, sync::Arc};

use super::{ServiceIdentity, ServiceRefusal, ServiceSpec, access::SPEC_RANGES, reader::refusal};
use crate::providers::azure::planner::load_balancer::annotations::ALLOWED_SERVICE_TAGS;

/// Kind of resource that Services share.
struct SharedKind {
    unit: &'static str,
    /// Field of the configuration that sets the limit.
    limit: &'static str,
    /// Field of a Service that a refusal names.
    field: &'static str,
}

/// Kinds, in the order of every array of this module.
const KINDS: &[SharedKind; 3] = &[
    SharedKind {
        unit: "ports, counted for each IP family, with or without a load balancing rule",
        limit: "maximumServiceRuleCount",
        field: "spec.ports",
    },
    SharedKind {
        unit: "ranges after ranges that contain others are merged",
        limit: "maximumServiceSourceRangeCount",
        field: SPEC_RANGES,
    },
    SharedKind {
        unit: "security rules, one for each IP family, protocol, and service tag or list of ranges",
        limit: "maximumServiceSecurityRuleCount",
        field: ALLOWED_SERVICE_TAGS.key,
    },
];

/// Limits of Services and namespaces; `None`: any number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServiceLimits {
    /// Ports, source ranges and security rules of a Service.
    pub of_service: [Option<usize>; KINDS.len()],
    /// Limits of a namespace, as a multiple of those of a Service.
    pub namespace_factor: Option<usize>,
}

impl ServiceLimits {
    /// Returns the refusals of a Service that uses more than allowed. `ranges_field`: the field with its ranges.
    pub(super) fn refusals(&self, spec: &ServiceSpec, ranges_field: &str) -> Vec<ServiceRefusal> {
        let refused = excess(self.of_service, usage(spec)).map(|(kind, most, found)| {
            let SharedKind { unit, limit, .. } = kind;
            let field = if kind.field == SPEC_RANGES { ranges_field } else { kind.field };
            let message = format!(
                "expected at most {most} {unit}, found {found}; {limit} of the provider's configuration sets the limit"
            );
            refusal(field, message)
        });
        refused.collect()
    }

    /// Returns a refusal for each of the `requested` Services that would exceed a limit of its namespace.
    ///
    /// Services with an address count first, then those without one, each by name, so a new Service never displaces a served one.
    pub fn namespace_refusals(
        &self,
        requested: &[&ServiceSpec],
        others: &[Arc<ServiceSpec>],
    ) -> BTreeMap<ServiceIdentity, ServiceRefusal> {
        let mut refused = BTreeMap::new();
        let Some(factor) = self.namespace_factor.filter(|_| self.of_service != [None; KINDS.len()]) else { return refused };
        let limits = self.of_service.map(|limit| limit.map(|most| most.saturating_mul(factor)));
        let mut namespaces: BTreeMap<&str, Vec<(bool, &ServiceSpec)>> = BTreeMap::new();
        for &spec in requested {
            namespaces.entry(spec.namespace()).or_default().push((true, spec));
        }
        for other in others.iter().filter(|other| !other.is_others) {
            if let Some(services) = namespaces.get_mut(other.namespace()) {
                services.push((false, other.as_ref()));
            }
        }
        for (namespace, mut services) in namespaces {
            let is_new = |spec: &ServiceSpec| spec.status_addresses.is_empty();
            services.sort_by(|(_, a), (_, b)| (is_new(a), &a.identity).cmp(&(is_new(b), &b.identity)));
            let mut total = [0; KINDS.len()];
            for (is_requested, spec) in services {
                let used = usage(spec);
                let sum = std::array::from_fn(|kind| total[kind] + used[kind]);
                let above = excess(limits, sum).next();
                if above.is_none() || !is_new(spec) {
                    total = sum;
                }
                if let Some((kind, most, found)) = above.filter(|_| is_requested) {
                    refused.insert(spec.identity.clone(), namespace_refusal(namespace, kind, most, found));
                }
            }
        }
        refused
    }
}

fn namespace_refusal(namespace: &str, kind: &SharedKind, most: usize, found: usize) -> ServiceRefusal {
    let SharedKind { unit, limit, field } = kind;
    let message = format!(
        "expected at most {most} {unit}, over the Services of namespace {namespace} that come before this one and itself, found {found}; \
         those with an address come first, then those with the lower name; {limit} times maximumNamespaceFactor of the provider's \
         configuration is the limit"
    );
    refusal(*field, message)
}

/// Returns the amounts that a Service uses.
fn usage(spec: &ServiceSpec) -> [usize; KINDS.len()] {
    let ports = if spec.ha_ports.is_some() { 1 } else { spec.ports.len() };
    let ranges = if spec.access.disabled { 0 } else { spec.access.ranges.len() };
    [ports * spec.families.len(), ranges, spec.security_rule_count()]
}

/// Returns the kinds whose limits are exceeded, each with the limit and the used amount.
fn excess(
    limits: [Option<usize>; KINDS.len()],
    used: [usize; KINDS.len()],
) -> impl Iterator<Item = (&'static SharedKind, usize, usize)> {
    let rows = KINDS.iter().zip(limits).zip(used);
    rows.filter_map(|((kind, limit), found)| Some((kind, limit.filter(|most| found > *most)?, found)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::providers::azure::planner::load_balancer::spec::tests::accepted;

    /// Returns a Service with `ports` ports, and with an address in its status if `is_served`.
    fn service(key: &str, ports: usize, is_served: bool) -> ServiceSpec {
        let mut spec = accepted(&[], json!({}));
        spec.identity.key = key.to_owned();
        spec.ports = vec![spec.ports[0].clone(); ports];
        spec.status_addresses = if is_served { vec!["20.0.0.1".parse().unwrap()] } else { Vec::new() };
        spec
    }

    #[test]
    fn namespaces_are_full_for_new_services_before_served_ones() {
        let limits = ServiceLimits { of_service: [Some(10), None, None], namespace_factor: Some(2) };
        for (requested, others, refused) in [
            (vec![service("a/new", 9, false)], vec![service("a/x", 11, true)], &[][..]),
            (vec![service("a/new", 10, false)], vec![service("a/x", 11, true)], &["a/new"]),
            (vec![service("a/new", 10, false)], vec![service("b/x", 11, true)], &[]),
            (vec![service("a/z", 10, true)], vec![service("a/new", 20, false)], &[]),
            (vec![service("a/z", 11, true)], vec![service("a/x", 10, true)], &["a/z"]),
            (vec![service("a/1", 10, false), service("a/2", 11, false), service("a/3", 10, false)], vec![], &["a/2"]),
            // A served Service counts although it exceeds the limit.
            (vec![service("a/1", 1, false)], vec![service("a/x", 25, true)], &["a/1"]),
        ] {
            let others: Vec<_> = others.into_iter().map(Arc::new).collect();
            let requested: Vec<_> = requested.iter().collect();
            let found = limits.namespace_refusals(&requested, &others);
            let keys: Vec<_> = found.keys().map(|identity| identity.key.as_str()).collect();
            assert_eq!(keys, refused, "{found:?}");
            let is_named = |refusal: &ServiceRefusal| {
                refusal.message.contains("maximumServiceRuleCount times maximumNamespaceFactor")
                    && refusal.field == "spec.ports"
            };
            assert!(found.values().all(is_named), "{found:?}");
            assert!(ServiceLimits { namespace_factor: None, ..limits }.namespace_refusals(&requested, &others).is_empty());
            assert!(ServiceLimits::default().namespace_refusals(&requested, &others).is_empty());
        }
    }
}
