//! Kinds of documents that ARM lists, and operations on their lists: find, replace, remove, and merge with ARM's list. Pure,
//! and linear in the length of the list.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt::Debug,
};

use serde::de::DeserializeOwned;

use crate::providers::azure::{
    model::{
        ResourceId,
        network::{ArmLoadBalancer, PrivateLinkService, PublicIpAddress},
    },
    planner::load_balancer::{network_query::NetworkCacheKey, observed::ObservedNetwork},
};

/// Document of a kind that ARM lists.
pub(in crate::providers::azure::load_balancer) trait ListedDocument:
    Clone + Debug + DeserializeOwned + PartialEq + Send + 'static
{
    /// Returns the key of a read of the document with this id.
    fn key(id: ResourceId) -> NetworkCacheKey;
    /// Returns all observed documents of this kind.
    fn all(observed: &ObservedNetwork) -> &Vec<Self>;
    /// Returns all observed documents of this kind, to be changed.
    fn all_mut(observed: &mut ObservedNetwork) -> &mut Vec<Self>;
    /// Returns the resource groups of which all documents are observed; `None`: this is not recorded.
    fn groups(_: &ObservedNetwork) -> Option<&BTreeSet<ResourceId>> {
        None
    }
    /// Returns those groups, to be changed.
    fn groups_mut(_: &mut ObservedNetwork) -> Option<&mut BTreeSet<ResourceId>> {
        None
    }
    /// Returns the id as ARM spells it.
    fn id(&self) -> &Option<String>;
    /// Returns the id, to be set.
    fn id_mut(&mut self) -> &mut Option<String>;
    /// Returns the version of the document.
    fn etag(&self) -> &Option<String>;

    /// Returns `true` if this is the document `id`, in any spelling.
    fn is(&self, id: &ResourceId) -> bool {
        self.id().as_deref().is_some_and(|text| id.same_as(text))
    }

    /// Returns the parsed id; `None` if it is missing or invalid.
    fn resource_id(&self) -> Option<ResourceId> {
        ResourceId::parse(self.id().as_deref()?).ok()
    }
}

macro_rules! listed {
    ($($document:ty: $key:ident in $($list:ident).+ $(, groups in $($groups:ident).+)?;)*) => {$(
        impl ListedDocument for $document {
            fn key(id: ResourceId) -> NetworkCacheKey {
                NetworkCacheKey::$key(id)
            }
            fn all(observed: &ObservedNetwork) -> &Vec<Self> {
                &observed.$($list).+
            }
            fn all_mut(observed: &mut ObservedNetwork) -> &mut Vec<Self> {
                &mut observed.$($list).+
            }
            $(fn groups(observed: &ObservedNetwork) -> Option<&BTreeSet<ResourceId>> {
                Some(&observed.$($groups).+)
            }
            fn groups_mut(observed: &mut ObservedNetwork) -> Option<&mut BTreeSet<ResourceId>> {
                Some(&mut observed.$($groups).+)
            })?
            fn id(&self) -> &Option<String> {
                &self.id
            }
            fn id_mut(&mut self) -> &mut Option<String> {
                &mut self.id
            }
            fn etag(&self) -> &Option<String> {
                &self.etag
            }
        }
    )*};
}
listed! {
    ArmLoadBalancer: LoadBalancer in load_balancers;
    PrivateLinkService: PrivateLink in private_links.services, groups in private_links.groups;
    PublicIpAddress: PublicIp in public_ips;
}

/// Evaluates `$run` with `$document` as the type of the listed documents that a read of a key shows. Other keys have
/// separate arms.
macro_rules! with_document {
    ($key:expr, $document:ident => $run:expr, $($other:pat => $otherwise:expr,)+) => {
        match $key {
            NetworkCacheKey::LoadBalancers | NetworkCacheKey::LoadBalancer(_) => {
                type $document = $crate::providers::azure::model::network::ArmLoadBalancer;
                $run
            }
            NetworkCacheKey::PrivateLinks(_) | NetworkCacheKey::PrivateLink(_) => {
                type $document = $crate::providers::azure::model::network::PrivateLinkService;
                $run
            }
            NetworkCacheKey::PublicIps(_) | NetworkCacheKey::PublicIp(_) => {
                type $document = $crate::providers::azure::model::network::PublicIpAddress;
                $run
            }
            $($other => $otherwise,)+
        }
    };
}
pub(super) use with_document;

/// Replaces the document `id`, or adds it at the end.
pub(super) fn put<D: ListedDocument>(list: &mut Vec<D>, id: &ResourceId, mut document: D) {
    document.id_mut().get_or_insert_with(|| id.to_string());
    match list.iter_mut().find(|known| known.is(id)) {
        Some(known) => *known = document,
        None => list.push(document),
    }
}

/// Merges ARM's list `answer` of the documents that are `in_scope` into the `known` documents, and returns the merged list
/// and the known documents that `answer` lacks.
///
/// Missing documents are kept, because a list does not prove absence. If `is_newer`, the cached fact is newer than the list
/// and is kept, even if that fact is a deletion. The order is ARM's; documents out of scope keep their positions. Documents
/// without a valid id are omitted.
pub(super) fn listed<D: ListedDocument>(
    known: &[D],
    answer: Vec<D>,
    in_scope: impl Fn(&ResourceId) -> bool,
    is_newer: impl Fn(&ResourceId) -> bool,
) -> (Vec<D>, Vec<ResourceId>) {
    let known: Vec<(ResourceId, &D)> = known.iter().filter_map(|known| Some((known.resource_id()?, known))).collect();
    let place = known.iter().position(|(id, _)| in_scope(id)).unwrap_or(known.len());
    let (before, rest) = known.split_at(place);
    let mut newer: HashMap<&ResourceId, &D> = HashMap::new();
    newer.extend(rest.iter().filter(|(id, _)| in_scope(id) && is_newer(id)).map(|(id, document)| (id, *document)));
    let mut list: Vec<D> = before.iter().map(|(_, document)| (*document).clone()).collect();
    let mut told = HashSet::new();
    for document in answer {
        let Some(id) = document.resource_id() else { continue };
        match is_newer(&id) {
            true => list.extend(newer.remove(&id).cloned()),
            false => list.push(document),
        }
        told.insert(id);
    }
    let others = rest.iter().filter(|(id, _)| !told.contains(id));
    list.extend(others.clone().map(|(_, document)| (*document).clone()));
    let lacking = others.filter(|(id, _)| in_scope(id) && !newer.contains_key(id));
    (list, lacking.map(|(id, _)| id.clone()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> ResourceId {
        let (group, name) = name.split_at(1);
        ResourceId::group_of("s", group).resource("Microsoft.Network/publicIPAddresses", &[name])
    }

    fn documents(names: &str) -> Vec<PublicIpAddress> {
        let document = |name: &str| {
            let (name, etag) = name.split_once('=').unwrap_or((name, ""));
            PublicIpAddress { id: Some(id(name).to_string()), etag: Some(etag.into()), ..PublicIpAddress::default() }
        };
        names.split_whitespace().map(document).collect()
    }

    fn names(documents: &[PublicIpAddress]) -> String {
        let name = |document: &PublicIpAddress| {
            let id = document.resource_id().unwrap();
            let etag = document.etag.clone().filter(|etag| !etag.is_empty()).map(|etag| format!("={etag}"));
            format!("{}{}{}", id.resource_group().unwrap(), id.name(), etag.unwrap_or_default())
        };
        documents.iter().map(name).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_list_replaces_what_is_older_and_takes_nothing_away() {
        for (known, answer, newer, expected, doubtful) in [
            ("", "a1 a2", "", "a1 a2", 0),
            ("a1 a2 a3", "a3 a1", "", "a3 a1 a2", 1),
            ("b1 a1 b2", "a2 a1", "", "b1 a2 a1 b2", 0),
            ("b1 a1=new b2", "a1=old a2", "a1", "b1 a1=new a2 b2", 0),
            ("b1", "a1", "a1", "b1", 0),
            ("a1=new a2", "a2", "a1", "a2 a1=new", 0),
            ("a1 a2", "A1=x", "", "A1=x a2", 1),
            ("b1 b2", "", "", "b1 b2", 0),
            ("b1 a1 a2", "", "", "b1 a1 a2", 2),
        ] {
            let newer: Vec<_> = newer.split_whitespace().map(id).collect();
            let in_scope = |id: &ResourceId| id.resource_group().is_some_and(|group| group.eq_ignore_ascii_case("a"));
            let (merged, lacking) = listed(&documents(known), documents(answer), in_scope, |id| newer.contains(id));
            assert_eq!((names(&merged).as_str(), lacking.len()), (expected, doubtful), "{known} / {answer}");
        }
    }

    #[test]
    fn an_answer_without_id_gets_the_one_that_was_written() {
        let mut list = documents("a1 a2");
        put(&mut list, &id("A2"), PublicIpAddress { etag: Some("x".into()), ..PublicIpAddress::default() });
        put(&mut list, &id("a3"), documents("a3").remove(0));
        assert_eq!(names(&list), "a1 A2=x a3");
    }
}
