//! Services that a public IP lists in its tag. Pure.
//!
//! In: the Services in the tag, and those that use or leave the public IP. Out: a [`ServiceList`] within the longest value that ARM
//! accepts. The list shows which cluster created the public IP and when it can be deleted. A Service that has no room in it is served like
//! the others.
//! Upstream: `pkg/provider/azure_loadbalancer.go`, `bindServicesToPIP`, which adds names without limit.

use super::claims::PublicIpClaim;
use crate::providers::azure::{
    model::{names::MAX_TAG_VALUE, spelling},
    planner::load_balancer::{desired::ServiceRequest, spec::ServiceIdentity},
};

/// Services to list in the tag of one public IP.
#[derive(Debug, Default)]
pub(super) struct ServiceList<'a> {
    /// Keys of the listed Services. The first is the Service for which the public IP was created.
    pub(super) names: Vec<String>,
    /// Requested Services that use the public IP and for which the list has no room.
    pub(super) omitted: Vec<&'a ServiceIdentity>,
}

impl<'a> ServiceList<'a> {
    /// Plans the list: names that remain keep their order, then requested Services follow in order of name.
    ///
    /// `users` are all Services that use the public IP. A Service without a request is added if `old_names` had no room for it, or if the
    /// list, and with it the proof of ownership, would be empty.
    pub(super) fn plan<'c>(
        old_names: &[&str],
        leaving: &[&ServiceRequest],
        requested: &[&PublicIpClaim<'a>],
        users: impl Iterator<Item = &'c PublicIpClaim<'a>>,
    ) -> Self
    where
        'a: 'c,
    {
        let is_leaving = |name: &str| leaving.iter().any(|request| spelling::same_name(&request.identity().key, name));
        let names = old_names.iter().filter(|name| !is_leaving(name)).map(|name| (*name).to_owned()).collect();
        let mut list = Self { names, omitted: Vec::new() };
        for claim in requested {
            if !list.add(&claim.spec.identity.key) {
                list.omitted.push(&claim.spec.identity);
            }
        }
        let was_empty = list.names.is_empty();
        let has_waited = |claim: &PublicIpClaim<'_>| !claim.spec.is_others && !has_room(old_names, &claim.spec.identity.key);
        for claim in users.filter(|claim| was_empty || has_waited(claim)) {
            list.add(&claim.spec.identity.key);
        }
        list
    }

    /// Adds a Service that is not listed yet. Returns `false` if the list has no room for it.
    fn add(&mut self, name: &str) -> bool {
        if self.names.iter().any(|entry| spelling::same_name(entry, name)) {
            return true;
        }
        let fits = has_room(&self.names, name);
        self.names.extend(fits.then(|| name.to_owned()));
        fits
    }
}

/// Returns `true` if a tag can hold one more name after these, separated by commas.
fn has_room(names: &[impl AsRef<str>], name: &str) -> bool {
    let length: usize = names.iter().map(|name| name.as_ref().chars().count() + 1).sum();
    length + name.chars().count() <= MAX_TAG_VALUE
}
