//! Service or Node in the API server, with its events.
//!
//! In: the name of the object. Out: facts and events in the view, or a line about a failed read.

use k8s_openapi::api::core::v1::{Event, Node, Service};
use kube::{Api, Client, api::ListParams};

use super::view::{EventView, ObjectView, StatusView};
use crate::{
    cli::StatusSubject,
    controllers::service::conditions,
    node::{condition_status, provider_id, taints},
    runtime::client::with_causes,
};

/// Maximum number of events that are read.
const MAX_READ_EVENTS: u32 = 500;
/// Maximum number of events that are shown.
const MAX_SHOWN_EVENTS: usize = 20;

pub(super) async fn collect(client: &Client, subject: &StatusSubject, view: &mut StatusView) {
    let (kind, namespace, name, read) = match subject {
        StatusSubject::Manager => return,
        StatusSubject::Service { namespace, name } => {
            let read = Api::<Service>::namespaced(client.clone(), namespace).get(name).await;
            ("Service", namespace.as_str(), name, read.map(|found| service(&found)))
        }
        StatusSubject::Node(name) => {
            ("Node", "default", name, Api::<Node>::all(client.clone()).get(name).await.map(|found| node(&found)))
        }
    };
    let title = if kind == "Node" { name.clone() } else { format!("{namespace}/{name}") };
    let mut object = match read {
        Ok(object) => object,
        Err(kube::Error::Api(status)) if status.code == 404 => return view.missing(kind, &title),
        Err(error) => return view.unseen(&format!("{kind} {title}"), &with_causes(&error)),
    };
    match events(client, kind, namespace, name).await {
        Ok(events) => object.events = events,
        Err(reason) => view.unseen("events", &reason),
    }
    view.object = Some(object);
}

fn service(service: &Service) -> ObjectView {
    let status = service.status.clone().unwrap_or_default();
    let ingress = status.load_balancer.and_then(|balancer| balancer.ingress).unwrap_or_default();
    let addresses: Vec<String> = ingress.into_iter().filter_map(|address| address.ip.or(address.hostname)).collect();
    let kind = service.spec.as_ref().and_then(|spec| spec.type_.clone()).unwrap_or_default();
    let wants = kind == "LoadBalancer";
    let mut facts = vec![("type", kind), ("addresses", list(&addresses))];
    let is_ready = match conditions::current(service) {
        Some(condition) => {
            facts.push(("load balancer", format!("{}: {}", condition.reason, condition.message)));
            condition.status == "True" || (!wants && condition.status != "False")
        }
        None => !wants || !addresses.is_empty(),
    };
    ObjectView::new(facts, is_ready)
}

fn node(node: &Node) -> ObjectView {
    let id = provider_id(node);
    let keys: Vec<String> =
        node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).map(|taint| taint.key.clone()).collect();
    let state = |type_: &str| condition_status(node, type_).unwrap_or("not set").to_owned();
    let is_ready = id.is_some() && !taints::is_uninitialized(node) && state("NetworkUnavailable") != "True";
    let facts = vec![
        ("provider id", id.unwrap_or("none").to_owned()),
        ("taints", list(&keys)),
        ("Ready", state("Ready")),
        ("NetworkUnavailable", state("NetworkUnavailable")),
    ];
    ObjectView::new(facts, is_ready)
}

fn list(items: &[String]) -> String {
    if items.is_empty() { "none".to_owned() } else { items.join(", ") }
}

/// Returns the latest events, oldest first.
async fn events(client: &Client, kind: &str, namespace: &str, name: &str) -> Result<Vec<EventView>, String> {
    let selector = format!("involvedObject.kind={kind},involvedObject.name={name}");
    let params = ListParams::default().fields(&selector).limit(MAX_READ_EVENTS);
    let listed = Api::<Event>::namespaced(client.clone(), namespace).list(&params).await;
    let mut events: Vec<EventView> = listed.map_err(|error| with_causes(&error))?.items.into_iter().map(event).collect();
    events.sort_by(|left, right| left.at.cmp(&right.at));
    Ok(events.split_off(events.len().saturating_sub(MAX_SHOWN_EVENTS)))
}

fn event(event: Event) -> EventView {
    let series = event.series.as_ref();
    let at = series.and_then(|series| series.last_observed_time.clone()).or(event.event_time).map(|time| time.0);
    let at = event.last_timestamp.map(|time| time.0).max(at).or(event.first_timestamp.map(|time| time.0));
    let count = series.and_then(|series| series.count).or(event.count).unwrap_or(1);
    let kind = event.type_.unwrap_or_default();
    EventView::new(at, kind, event.reason.unwrap_or_default(), count, &event.message.unwrap_or_default())
}
