//! Removes the fields of Services and EndpointSlices that have no reader before they are cached. Pure.

use std::sync::Arc;

use k8s_openapi::api::{
    core::v1::{Service, ServiceSpec},
    discovery::v1::EndpointSlice,
};

use crate::{
    cloud_provider::{
        CloudProvider, endpoint_digests,
        load_balancer_class::{LoadBalancerClasses, has_cleanup_finalizer, is_load_balancer},
    },
    runtime::informer::{
        AnnotationDigest, AnnotationUse, Informer, MAX_SAMPLED_ANNOTATIONS, UNREAD_ANNOTATIONS, UnreadFields,
    },
};

/// Services of one page of a list: each may carry 256 KiB of annotations.
const SERVICES_IN_PAGE: u32 = 100;

/// Returns an informer of Services that keeps what the controllers and `provider` read, however large the rest is.
pub fn service_informer(classes: LoadBalancerClasses, provider: &Arc<dyn CloudProvider>) -> Informer<Service> {
    let [decoded, arriving] = [provider, provider].map(Arc::clone);
    Informer::new(move |service: &mut Service| {
        prune_service(service, &classes, |key, of| decoded.service_annotation(key, of))
    })
    .with_page_size(SERVICES_IN_PAGE)
    .without(UnreadFields::default().annotations_by_use(move |key| arriving.service_annotation(key, None)))
}

/// Removes the fields of a Service that have no reader.
///
/// A Service with a load balancer of this manager, or with one that a manager still has to remove, keeps its spec and the
/// annotations that `use_of` keeps; of the others, the vast majority in most clusters, only metadata, type, class and status
/// matter.
fn prune_service(
    service: &mut Service,
    classes: &LoadBalancerClasses,
    use_of: impl Fn(&str, Option<&Service>) -> AnnotationUse,
) {
    service.metadata.managed_fields = None;
    let is_own = is_load_balancer(service) && !classes.is_elsewhere(service);
    if is_own || has_cleanup_finalizer(service) {
        return prune_annotations(service, use_of);
    }
    service.metadata.annotations = None;
    service.metadata.labels = None;
    service.metadata.owner_references = None;
    if let Some(spec) = service.spec.as_mut() {
        // Its addresses in the cluster are no other Service's to claim.
        *spec = ServiceSpec {
            type_: spec.type_.take(),
            load_balancer_class: spec.load_balancer_class.take(),
            cluster_ip: spec.cluster_ip.take(),
            cluster_ips: spec.cluster_ips.take(),
            ..ServiceSpec::default()
        };
    }
}

/// Removes annotations that have no reader, and the ends of values that are longer than accepted. A digest tracks changes to
/// them.
fn prune_annotations(service: &mut Service, use_of: impl Fn(&str, Option<&Service>) -> AnnotationUse) {
    let Some(mut annotations) = service.metadata.annotations.take() else { return };
    let mut digest = AnnotationDigest::resume(annotations.remove(UNREAD_ANNOTATIONS).as_deref());
    let mut sampled = 0;
    annotations.retain(|key, value| {
        let (is_kept, longest) = match use_of(key, Some(service)) {
            AnnotationUse::Read { longest } => (true, longest),
            AnnotationUse::Sampled => {
                sampled += 1;
                (sampled <= MAX_SAMPLED_ANNOTATIONS, 0)
            }
            AnnotationUse::Unread => (false, 0),
        };
        if !is_kept || value.len() > longest {
            digest.add(key, value);
            shorten(value, longest);
        }
        is_kept
    });
    annotations.extend(digest.text().map(|text| (UNREAD_ANNOTATIONS.to_owned(), text)));
    service.metadata.annotations = Some(annotations);
}

/// Cuts `value` at the first character that ends beyond `longest` bytes.
fn shorten(value: &mut String, longest: usize) {
    let end = value.char_indices().map(|(at, letter)| at + letter.len_utf8()).find(|end| *end > longest);
    value.truncate(end.unwrap_or(value.len()));
    value.shrink_to_fit();
}

/// The label that names the Service of an EndpointSlice.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Drops all of an EndpointSlice but its Service and digests of the names of its endpoints' Nodes.
pub fn prune_endpoint_slice(slice: &mut EndpointSlice) {
    slice.metadata.annotations = None;
    endpoint_digests::keep_digests(slice);
    slice.metadata.owner_references = None;
    slice.metadata.managed_fields = None;
    slice.metadata.labels = slice.metadata.labels.take().map(|mut labels| {
        labels.retain(|key, _| key == SERVICE_NAME);
        labels
    });
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
            Some(b's') => AnnotationUse::Sampled,
            _ => AnnotationUse::Unread,
        };
        prune_service(service, &LoadBalancerClasses::default(), use_of);
    }

    fn pruned(service: &Service) -> Service {
        let mut pruned = service.clone();
        prune(&mut pruned);
        pruned
    }

    #[test]
    fn a_service_with_a_load_balancer_keeps_what_is_read() {
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
    fn every_change_of_annotations_is_a_change_of_what_is_kept() {
        let base = [("r", "1234"), ("s", "x"), ("z", "unread")];
        let kept = pruned(&annotated(&base));
        assert_eq!(keys(&kept), [UNREAD_ANNOTATIONS, "r", "s"]);
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
                &kept,
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

    /// What is retained of a Service, about: all text, and the nodes of the map.
    fn retained(service: &Service) -> usize {
        let annotations = service.metadata.annotations.iter().flatten();
        annotations.map(|(key, value)| key.capacity() + value.capacity() + 2 * size_of::<String>()).sum()
    }

    #[test]
    fn five_hundred_services_full_of_annotations_are_small() {
        let fill = |prefix: &str| -> usize {
            let all: Vec<_> = (0..2_900).map(|number| (format!("{prefix}.example.com/k{number}"), "v".repeat(60))).collect();
            let all: Vec<(&str, &str)> = all.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            retained(&pruned(&annotated(&all)))
        };
        let long = "v".repeat(255 * 1024);
        let each = [fill("z"), fill("s"), retained(&pruned(&annotated(&[("r", &long), ("s", &long), ("z", &long)])))];
        assert!(each.iter().all(|bytes| 500 * bytes < 8 * 1024 * 1024), "{each:?} bytes each");
    }

    #[test]
    fn of_a_foreign_class_nothing_is_kept_but_the_class() {
        let mut foreign = annotated(&[("r", "1")]);
        foreign.spec.as_mut().unwrap().load_balancer_class = Some("example.com/lb".into());
        foreign = pruned(&foreign);
        assert_eq!((&foreign.metadata.annotations, &foreign.spec.as_ref().unwrap().ports), (&None, &None));
        assert!(LoadBalancerClasses::default().is_elsewhere(&foreign));
    }

    #[test]
    fn of_a_slice_the_service_and_its_nodes_are_kept() {
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
    fn of_another_only_what_decides_is_kept() {
        let mut pruned = service("NodePort", &["other"]);
        prune(&mut pruned);
        assert_eq!(pruned.metadata.annotations, None);
        let spec = pruned.spec.unwrap();
        assert_eq!((spec.type_.as_deref(), spec.ports), (Some("NodePort"), None));
        assert_eq!(pruned.metadata.finalizers, Some(vec!["other".to_owned()]));
    }
}
