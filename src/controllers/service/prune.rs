//! Removal of fields without readers from Services and EndpointSlices before they are cached, and limits on the others. Pure.
//!
//! Texts of users must not determine how much memory a Service takes. Lists that a patch replaces as a whole are truncated as well, so
//! [`complete_lists`] must complete the patch from a live read.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::{
    api::{
        core::v1::{Service, ServiceSpec},
        discovery::v1::EndpointSlice,
    },
    apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta},
};
use serde_json::{Value, json};

use super::conditions::CONDITION_TYPE;
use crate::{
    cloud_provider::{
        CloudProvider, ServiceListLimits, endpoint_digests,
        load_balancer_class::{LoadBalancerClasses, has_cleanup_finalizer, is_cleanup_finalizer, is_load_balancer},
    },
    runtime::informer::{
        AnnotationDigest, AnnotationUse, Informer, MAX_SAMPLED_ANNOTATIONS, UNREAD_ANNOTATIONS, UnreadFields,
    },
};

/// Maximum number of finalizers, conditions and external IPs that are kept. One more shows that there are more.
const MAX_LISTED: usize = 64;
/// Maximum number of own finalizers or conditions that a patch removes from a list.
const MAX_REMOVED: usize = 2;
/// Maximum length of a range, with blanks, in bytes.
const MAX_RANGE: usize = 64;
/// Maximum length of an address, with blanks, in bytes.
const MAX_ADDRESS: usize = 128;

/// Returns an informer of Services that keeps only the fields that the controllers and `provider` read.
pub fn service_informer(classes: LoadBalancerClasses, provider: &Arc<dyn CloudProvider>) -> Informer<Service> {
    let [decoded, labeled, annotated] = [provider, provider, provider].map(Arc::clone);
    let limits = provider.service_list_limits();
    let unread = UnreadFields::default()
        .metadata_and_spec(&["ownerReferences"], &["selector"])
        .spec_lists(vec![
            ("loadBalancerSourceRanges", limits.source_ranges.saturating_add(1)),
            ("ports", limits.ports.saturating_add(1)),
            ("externalIPs", MAX_LISTED + 1),
        ])
        .labels_but(move |key| labeled.reads_service_label(key))
        .annotations_by_use(move |key| annotated.service_annotation(key, None));
    let prune = move |service: &mut Service| {
        retain_labels(&mut service.metadata, |key| decoded.reads_service_label(key));
        prune_service(service, &classes, limits, |key, of| decoded.service_annotation(key, of));
    };
    Informer::new(prune).without(unread)
}

fn retain_labels(metadata: &mut ObjectMeta, reads: impl Fn(&str) -> bool) {
    if let Some(labels) = &mut metadata.labels {
        labels.retain(|key, _| reads(key));
    }
}

/// Removes the fields of a Service that have no reader.
///
/// A Service with a load balancer of this manager, or with one that a manager still must remove, keeps its spec and the
/// annotations that `use_of` selects. The others, the vast majority in most clusters, keep only metadata, type, class and
/// status.
fn prune_service(
    service: &mut Service,
    classes: &LoadBalancerClasses,
    limits: ServiceListLimits,
    use_of: impl Fn(&str, Option<&Service>) -> AnnotationUse,
) {
    service.metadata.managed_fields = None;
    service.metadata.owner_references = None;
    let is_own = is_load_balancer(service) && !classes.is_elsewhere(service);
    let is_tracked = is_own || has_cleanup_finalizer(service);
    cut_finalizers(&mut service.metadata, classes);
    cut_conditions(service);
    if is_tracked {
        service.spec.iter_mut().for_each(|spec| cut_spec(spec, limits));
        return prune_annotations(service, use_of);
    }
    service.metadata.annotations = None;
    service.metadata.labels = None;
    if let Some(spec) = service.spec.as_mut() {
        // The cluster IPs are kept, because another Service may not claim them.
        *spec = ServiceSpec {
            type_: spec.type_.take(),
            load_balancer_class: spec.load_balancer_class.take(),
            cluster_ip: spec.cluster_ip.take(),
            cluster_ips: spec.cluster_ips.take(),
            ..ServiceSpec::default()
        };
    }
}

/// Truncates the finalizers to those that decide about the load balancer and the first others.
fn cut_finalizers(metadata: &mut ObjectMeta, classes: &LoadBalancerClasses) {
    let Some(finalizers) = metadata.finalizers.as_mut().filter(|list| list.len() > MAX_LISTED) else { return };
    let mut seen = BTreeSet::new();
    finalizers.retain(|finalizer| seen.insert(finalizer.clone()));
    finalizers.sort_by_key(|finalizer| (!classes.is_own_finalizer(finalizer), !is_cleanup_finalizer(finalizer)));
    truncate(&mut metadata.finalizers, MAX_LISTED);
}

/// Truncates the conditions to ours and the first others.
fn cut_conditions(service: &mut Service) {
    let Some(status) = &mut service.status else { return };
    if let Some(conditions) = status.conditions.as_mut().filter(|list| list.len() > MAX_LISTED) {
        conditions.sort_by_key(|condition| condition.type_ != CONDITION_TYPE);
        truncate(&mut status.conditions, MAX_LISTED);
    }
}

/// Truncates lists and texts of the spec that are longer than accepted.
fn cut_spec(spec: &mut ServiceSpec, limits: ServiceListLimits) {
    spec.selector = None;
    spec.load_balancer_ip.iter_mut().for_each(|address| shorten(address, MAX_ADDRESS));
    if let Some(ranges) = &mut spec.load_balancer_source_ranges {
        if ranges.len() > limits.source_ranges {
            // The Service is refused because of their number, so their values do not matter.
            *ranges = vec![String::new(); limits.source_ranges + 1];
        }
        ranges.iter_mut().for_each(|range| shorten(range, MAX_RANGE));
    }
    truncate(&mut spec.external_ips, MAX_LISTED);
    truncate(&mut spec.ports, limits.ports);
}

/// Truncates a list that is longer than `most` to `most + 1` items.
fn truncate<T>(list: &mut Option<Vec<T>>, most: usize) {
    if let Some(list) = list.as_mut().filter(|list| list.len() > most) {
        list.truncate(most + 1);
        list.shrink_to_fit();
    }
}

/// Returns `true` if `body`, made from a cached Service, may replace a list that was cut.
pub(super) fn replaces_cut_list(body: &Value) -> bool {
    let may_be_cut = |list: &Value| list.as_array().is_some_and(|items| items.len() + MAX_REMOVED > MAX_LISTED);
    may_be_cut(&body["metadata"]["finalizers"]) || may_be_cut(&body["status"]["conditions"])
}

/// Adds to the lists that `body` replaces the items that the `live` Service has and the `cached` one lacks.
pub(super) fn complete_lists(body: &mut Value, cached: &Service, live: &Service) {
    if let Some(list) = body.pointer_mut("/metadata/finalizers").and_then(Value::as_array_mut) {
        let cached: BTreeSet<_> = cached.metadata.finalizers.iter().flatten().collect();
        let others = live.metadata.finalizers.iter().flatten().filter(|finalizer| !cached.contains(finalizer));
        list.extend(others.map(|finalizer| json!(finalizer)));
    }
    if let Some(list) = body.pointer_mut("/status/conditions").and_then(Value::as_array_mut) {
        let cached: BTreeSet<_> = conditions(cached).map(|condition| &condition.type_).collect();
        let others = conditions(live).filter(|condition| !cached.contains(&condition.type_));
        list.extend(others.map(|condition| json!(condition)));
    }
}

fn conditions(service: &Service) -> impl Iterator<Item = &Condition> {
    service.status.iter().filter_map(|status| status.conditions.as_ref()).flatten()
}

/// Removes annotations without a reader, and truncates values that are longer than accepted. A digest tracks changes to
/// both.
fn prune_annotations(service: &mut Service, use_of: impl Fn(&str, Option<&Service>) -> AnnotationUse) {
    let Some(mut annotations) = service.metadata.annotations.take() else { return };
    let mut digest = AnnotationDigest::resume(annotations.remove(UNREAD_ANNOTATIONS).as_deref());
    let mut sampled = 0;
    annotations.retain(|key, value| {
        let (is_kept, longest) = match use_of(key, Some(service)) {
            AnnotationUse::Read { longest } => (true, longest),
            AnnotationUse::ReadList { longest, most } => {
                *value = cached_list(value, longest, most);
                return true;
            }
            AnnotationUse::Sampled => {
                sampled += 1;
                (sampled <= MAX_SAMPLED_ANNOTATIONS, 0)
            }
            AnnotationUse::Unread => (false, 0),
        };
        if !is_kept || beginning(value, longest).len() < value.len() {
            digest.add(key, value);
            shorten(value, longest);
        }
        is_kept
    });
    annotations.extend(digest.text().map(|text| (UNREAD_ANNOTATIONS.to_owned(), text)));
    service.metadata.annotations = Some(annotations);
}

/// Truncates `value` after the first character that ends beyond `longest` bytes.
fn shorten(value: &mut String, longest: usize) {
    let end = beginning(value, longest).len();
    value.truncate(end);
    value.shrink_to_fit();
}

fn beginning(text: &str, longest: usize) -> &str {
    let mut ends = text.char_indices().map(|(at, letter)| at + letter.len_utf8());
    let end = if text.len() > longest { ends.find(|end| *end > longest) } else { None };
    end.and_then(|end| text.get(..end)).unwrap_or(text)
}

/// Returns the cached form of a comma-separated list of ranges. An item that is too long is truncated, and remains invalid.
///
/// A list that is too long is refused. Only its beginning is cached, with enough commas to show that it is too long.
fn cached_list(text: &str, longest: usize, most: usize) -> String {
    if text.len() > longest || text.split(',').nth(most).is_some() {
        return format!("{}{}", beginning(text, MAX_RANGE), ",".repeat(most));
    }
    let items: Vec<&str> = text.split(',').map(|item| beginning(item.trim_ascii(), MAX_RANGE)).collect();
    items.join(",")
}

/// Label that names the Service of an EndpointSlice.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Removes all fields of an EndpointSlice but its Service and digests of the names of its endpoints' Nodes.
pub fn prune_endpoint_slice(slice: &mut EndpointSlice) {
    slice.metadata.annotations = None;
    endpoint_digests::keep_digests(slice);
    slice.metadata.owner_references = None;
    slice.metadata.managed_fields = None;
    retain_labels(&mut slice.metadata, |key| key == SERVICE_NAME);
    slice.ports = None;
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::discovery::v1::Endpoint;

    use super::*;
    use crate::cloud_provider::helpers::FINALIZER;

    fn service(type_: &str, finalizers: &[&str]) -> Service {
        let mut service = Service::default();
        service.metadata.finalizers = Some(finalizers.iter().map(|f| (*f).to_owned()).collect());
        service.metadata.annotations = Some([("a".to_owned(), "b".to_owned())].into());
        let spec = service.spec.get_or_insert_default();
        spec.type_ = Some(type_.into());
        spec.ports = Some(vec![Default::default()]);
        service
    }

    fn prune(service: &mut Service) {
        let use_of = |key: &str, _: Option<&Service>| match key.as_bytes().first() {
            Some(b'a' | b'r') => AnnotationUse::Read { longest: 4 },
            Some(b'l') => AnnotationUse::ReadList { longest: 196_608, most: 4_000 },
            Some(b's') => AnnotationUse::Sampled,
            _ => AnnotationUse::Unread,
        };
        let limits = ServiceListLimits { source_ranges: 4_000, ports: 1_500 };
        prune_service(service, &LoadBalancerClasses::default(), limits, use_of);
    }

    fn pruned(service: &Service) -> Service {
        let mut pruned = service.clone();
        prune(&mut pruned);
        pruned
    }

    #[test]
    fn a_service_with_a_load_balancer_keeps_fields_with_readers() {
        for before in [service("LoadBalancer", &[]), service("ClusterIP", &[FINALIZER])] {
            assert_eq!(before, pruned(&before));
        }
    }

    fn annotated(annotations: &[(&str, &str)]) -> Service {
        let mut service = service("LoadBalancer", &[]);
        service.metadata.annotations =
            Some(annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect());
        service
    }

    fn keys(service: &Service) -> Vec<&str> {
        service.metadata.annotations.iter().flatten().map(|(key, _)| key.as_str()).collect()
    }

    #[test]
    fn every_change_of_annotations_changes_the_cached_service() {
        let base = [("r", "1234"), ("s", "x"), ("z", "unread")];
        let cached = pruned(&annotated(&base));
        assert_eq!(keys(&cached), [UNREAD_ANNOTATIONS, "r", "s"]);
        for changed in [
            &[("r", "123"), ("s", "x"), ("z", "unread")][..],
            &[("r", "1234"), ("s", "xy"), ("z", "unread")],
            &[("r", "1234"), ("s", "x"), ("z", "Unread")],
            &[("r", "1234"), ("s", "x")],
            &[("r", "1234"), ("s", "x"), ("z", "unread"), ("y", "")],
        ] {
            let changed = pruned(&annotated(changed));
            assert!(crate::controllers::service::needs_update::needs_update(
                &LoadBalancerClasses::default(),
                &cached,
                &changed
            ));
        }
        let [long, longer] = ["12345", "12346"].map(|value| pruned(&annotated(&[("r", value)])));
        assert_ne!(long.metadata.annotations, longer.metadata.annotations);
        assert_eq!(
            pruned(&annotated(&[("r", "12é456")])).metadata.annotations.unwrap()["r"],
            "12é4",
            "too long, and no longer"
        );
        assert_eq!(keys(&pruned(&annotated(&[("r", "")]))), ["r"], "nothing was dropped");
    }

    /// Returns the approximate size of a Service in bytes: its texts, with the overhead of each.
    fn retained(service: &Service) -> usize {
        let spec = service.spec.clone().unwrap_or_default();
        let annotations = service.metadata.annotations.iter().flatten().flat_map(|(key, value)| [key, value]);
        let labels = service.metadata.labels.iter().flatten().flat_map(|(key, value)| [key, value]);
        let lists = [&spec.load_balancer_source_ranges, &spec.external_ips, &service.metadata.finalizers];
        let listed = lists.into_iter().flatten().flatten().chain(&spec.load_balancer_ip);
        let texts = annotations.chain(labels).chain(listed).map(|text| text.capacity() + size_of::<String>());
        let conditions = conditions(service).map(|condition| condition.type_.len() + size_of::<Condition>());
        let owners = service.metadata.owner_references.iter().flatten().map(|owner| owner.name.len());
        let ports =
            spec.ports.as_ref().map_or(0, |ports| ports.capacity() * size_of::<k8s_openapi::api::core::v1::ServicePort>());
        texts.chain(conditions).chain(owners).sum::<usize>() + ports
    }

    fn texts(count: usize, text: impl Fn(usize) -> String) -> Vec<String> {
        (0..count).map(text).collect()
    }

    #[test]
    fn texts_of_users_do_not_determine_the_cached_size() {
        let fill = |prefix: &str| {
            let all = texts(2_900, |number| format!("{prefix}.example.com/k{number}"));
            annotated(
                &all.iter().map(|key| (key.as_str(), "sixty bytes of a value without a reader, or so")).collect::<Vec<_>>(),
            )
        };
        let (long, garbage) = ("v".repeat(255 * 1024), "x,".repeat(98_000));
        let ranges = texts(60_000, |number| format!("10.{}.{}.0/24", number / 256, number % 256));
        let annotated_ranges = ranges.iter().take(13_000).map(String::as_str).collect::<Vec<_>>().join(",");
        let spec = |change: &dyn Fn(&mut ServiceSpec)| {
            let mut service = annotated(&[]);
            service.spec.iter_mut().for_each(change);
            service
        };
        let metadata = |change: &dyn Fn(&mut ObjectMeta)| {
            let mut service = annotated(&[]);
            change(&mut service.metadata);
            service
        };
        let labels =
            || texts(18_000, |number| format!("example.com/l{number}")).into_iter().map(|key| (key, "v".to_owned()));
        for (name, service, most) in [
            ("unread annotations", fill("z"), 1_024),
            ("sampled annotations", fill("s"), 2_048),
            ("long annotations", annotated(&[("r", &long), ("s", &long), ("z", &long)]), 1_024),
            ("an annotation of garbage", annotated(&[("l", &garbage)]), 8_192),
            ("an annotation of many ranges", annotated(&[("l", &annotated_ranges)]), 8_192),
            ("an annotation of one long item", annotated(&[("l", &long[..190 * 1024])]), 1_024),
            ("an annotation of blanks", annotated(&[("l", &" ".repeat(190 * 1024))]), 1_024),
            ("source ranges", spec(&|spec| spec.load_balancer_source_ranges = Some(ranges.clone())), 128 * 1024),
            ("a long range", spec(&|spec| spec.load_balancer_source_ranges = Some(vec![long.clone()])), 1_024),
            ("external IPs", spec(&|spec| spec.external_ips = Some(ranges.clone())), 8_192),
            ("an address", spec(&|spec| spec.load_balancer_ip = Some(long.clone())), 1_024),
            ("ports", spec(&|spec| spec.ports = Some(vec![Default::default(); 20_000])), 512 * 1024),
            ("a selector", spec(&|spec| spec.selector = Some(labels().collect())), 1_024),
            ("finalizers", metadata(&|metadata| metadata.finalizers = Some(ranges.clone())), 8_192),
            ("owners", metadata(&|metadata| metadata.owner_references = Some(vec![Default::default(); 9_000])), 1_024),
        ] {
            let cached = pruned(&service);
            assert!(retained(&cached) < most, "{name}: {} bytes", retained(&cached));
            assert_eq!(cached.spec.as_ref().unwrap().selector, None, "{name}");
            assert_eq!(cached, pruned(&cached), "{name}: pruned twice");
        }
    }

    #[test]
    fn cached_list_is_valid_if_and_only_if_the_list_is() {
        let cached = |text: &str| cached_list(text, 100, 3);
        assert_eq!(cached(" 10.0.0.0/8 ,x,\n"), "10.0.0.0/8,x,");
        assert_eq!(cached("a,b,c,d,e"), "a,b,c,d,e,,,", "too many, with the same beginning");
        assert!(cached(&" ".repeat(101)).split(',').nth(3).is_some(), "too long");
        assert_eq!(cached(&"é".repeat(40)), "é".repeat(33), "an invalid item remains invalid");
        assert_eq!(cached(""), "");
    }

    #[test]
    fn patches_keep_foreign_finalizers_and_conditions() {
        let classes = LoadBalancerClasses::default();
        let condition = |type_: &str| -> Condition {
            let fields = json!({"type": type_, "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
            serde_json::from_value(fields).unwrap()
        };
        for foreign in [1, 61, 62, 63, 64, 65, 200] {
            let mut live = service("LoadBalancer", &[]);
            let others = texts(foreign, |number| format!("example.com/f{number}"));
            live.metadata.finalizers = Some([others.clone(), vec![FINALIZER.to_owned()]].concat());
            let of_others = texts(foreign, |number| format!("example.com/C{number}"));
            let all = of_others.iter().map(String::as_str).chain([CONDITION_TYPE]).map(condition).collect();
            live.status.get_or_insert_default().conditions = Some(all);
            let cached = pruned(&live);
            assert!(conditions(&cached).count() <= MAX_LISTED + 1 && classes.has_finalizer(&cached), "{foreign}");
            let mut body = super::super::status_patch::remove_finalizer_and_condition(&classes, &cached).unwrap();
            let is_cut = pruned(&live).metadata.finalizers != live.metadata.finalizers;
            assert!(replaces_cut_list(&body) || !is_cut, "{foreign}");
            complete_lists(&mut body, &cached, &live);
            assert_eq!(body["metadata"]["finalizers"], json!(others), "{foreign}");
            let remaining = body["status"]["conditions"].as_array().unwrap();
            assert_eq!(
                remaining.iter().map(|condition| condition["type"].clone()).collect::<Vec<_>>(),
                of_others,
                "{foreign}"
            );
        }
    }

    #[test]
    fn a_service_of_a_foreign_class_keeps_only_the_class() {
        let mut foreign = annotated(&[("r", "1")]);
        foreign.spec.as_mut().unwrap().load_balancer_class = Some("example.com/lb".into());
        foreign = pruned(&foreign);
        assert_eq!((&foreign.metadata.annotations, &foreign.spec.as_ref().unwrap().ports), (&None, &None));
        assert!(LoadBalancerClasses::default().is_elsewhere(&foreign));
    }

    #[test]
    fn an_endpoint_slice_keeps_its_service_and_nodes() {
        let endpoint = |node: Option<&str>| Endpoint {
            addresses: vec!["10.244.0.9".to_owned()],
            node_name: node.map(str::to_owned),
            ..Endpoint::default()
        };
        let mut slice =
            EndpointSlice { address_type: "IPv4".to_owned(), ports: Some(Vec::new()), ..EndpointSlice::default() };
        let labels = [(SERVICE_NAME.to_owned(), "web".to_owned()), ("app".to_owned(), "web".to_owned())];
        slice.metadata.labels = Some(labels.clone().into());
        slice.endpoints = Some([Some("n2"), Some("n1"), None, Some("n2")].map(endpoint).into());
        let nodes = endpoint_digests::digests(&slice);
        assert_eq!(nodes.len(), 2);
        prune_endpoint_slice(&mut slice);
        assert_eq!((endpoint_digests::digests(&slice), slice.endpoints), (nodes, None));
        assert_eq!(slice.metadata.labels, Some(labels.into_iter().take(1).collect()));
        assert_eq!((slice.address_type.as_str(), slice.ports), ("IPv4", None));
    }

    #[test]
    fn other_services_keep_type_and_finalizers() {
        let mut pruned = service("NodePort", &["other"]);
        prune(&mut pruned);
        assert_eq!(pruned.metadata.annotations, None);
        let spec = pruned.spec.unwrap();
        assert_eq!((spec.type_.as_deref(), spec.ports), (Some("NodePort"), None));
        assert_eq!(pruned.metadata.finalizers, Some(vec!["other".to_owned()]));
    }
}
