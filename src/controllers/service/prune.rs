//! What of a Service is kept in memory. Pure.

use k8s_openapi::api::core::v1::Service;

use super::needs_update::{has_finalizer, wants_load_balancer};

/// Takes out of `service` what nobody reads. One with a load balancer stays whole, since providers see it and its annotations are
/// compared; of the others, the vast majority in most clusters, only metadata, type and status matter.
pub fn prune_service(service: &mut Service) {
    service.metadata.managed_fields = None;
    if wants_load_balancer(service) || has_finalizer(service) {
        return;
    }
    service.metadata.annotations = None;
    service.metadata.labels = None;
    service.metadata.owner_references = None;
    if let Some(spec) = service.spec.as_mut() {
        let (type_, load_balancer_class) = (spec.type_.take(), spec.load_balancer_class.take());
        *spec = Default::default();
        (spec.type_, spec.load_balancer_class) = (type_, load_balancer_class);
    }
}

#[cfg(test)]
mod tests {
    use super::{super::needs_update::FINALIZER, *};

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
    fn of_another_only_what_decides_is_kept() {
        let mut pruned = service("NodePort", &["other"]);
        prune_service(&mut pruned);
        assert_eq!(pruned.metadata.annotations, None);
        let spec = pruned.spec.unwrap();
        assert_eq!((spec.type_.as_deref(), spec.ports), (Some("NodePort"), None));
        assert_eq!(pruned.metadata.finalizers, Some(vec!["other".to_owned()]));
    }
}
