//! What of a Service and of an EndpointSlice is kept in memory. Pure.

use std::collections::BTreeSet;

use k8s_openapi::api::{
    core::v1::Service,
    discovery::v1::{Endpoint, EndpointSlice},
};

use crate::cloud_provider::load_balancer_class::{has_cleanup_finalizer, is_load_balancer};

/// Takes out of `service` what nobody reads. One with a load balancer, of whatever class, stays whole, since providers see it and its
/// annotations are compared; of the others, the vast majority in most clusters, only metadata, type and status matter.
pub fn prune_service(service: &mut Service) {
    service.metadata.managed_fields = None;
    if is_load_balancer(service) || has_cleanup_finalizer(service) {
        return;
    }
    service.metadata.annotations = None;
    service.metadata.labels = None;
    service.metadata.owner_references = None;
    if let Some(spec) = service.spec.as_mut() {
        let type_ = spec.type_.take();
        *spec = Default::default();
        spec.type_ = type_;
    }
}

/// The label that names the Service of an EndpointSlice.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Takes out of an EndpointSlice what nobody reads: all but its Service and the Nodes of its endpoints, each once.
pub fn prune_endpoint_slice(slice: &mut EndpointSlice) {
    slice.metadata.annotations = None;
    slice.metadata.owner_references = None;
    slice.metadata.labels = slice.metadata.labels.take().map(|mut labels| {
        labels.retain(|key, _| key == SERVICE_NAME);
        labels
    });
    slice.ports = None;
    let nodes: BTreeSet<String> =
        slice.endpoints.take().into_iter().flatten().filter_map(|endpoint| endpoint.node_name).collect();
    let pruned = nodes.into_iter().map(|node| Endpoint { node_name: Some(node), ..Endpoint::default() });
    slice.endpoints = Some(pruned.collect());
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn a_service_with_a_load_balancer_stays_whole() {
        for before in [service("LoadBalancer", &[]), service("ClusterIP", &[FINALIZER])] {
            let mut after = before.clone();
            prune_service(&mut after);
            assert_eq!(before, after);
        }
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
        prune_endpoint_slice(&mut slice);
        let endpoints = slice.endpoints.unwrap();
        let nodes: Vec<_> = endpoints.iter().map(|endpoint| endpoint.node_name.as_deref()).collect();
        assert_eq!((nodes, endpoints[0].addresses.len()), (vec![Some("n1"), Some("n2")], 0));
        assert_eq!(slice.metadata.labels, Some(labels.into_iter().take(1).collect()));
        assert_eq!((slice.address_type.as_str(), slice.ports), ("IPv4", None));
    }

    #[test]
    fn of_another_only_what_decides_is_kept() {
        let mut pruned = service("NodePort", &["other"]);
        prune_service(&mut pruned);
        assert_eq!(pruned.metadata.annotations, None);
        let spec = pruned.spec.unwrap();
        assert_eq!((spec.type_.as_deref(), spec.ports), (Some("NodePort"), None));
        assert_eq!(pruned.metadata.finalizers, Some(vec!["other".to_owned()]));
    }
}
