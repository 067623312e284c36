//! Connections between private endpoints and private link services. Pure.
//!
//! A private endpoint names the services that it connects to, and the progress of each connection; the connections that a
//! service shows are derived from that, as are its alias and its interface. Deleting a connection on the service's side
//! leaves a disconnected endpoint.

use serde_json::{Map, Value, json};

use super::{
    store::{Document, InvalidDocument, Store},
    topology::uuid,
};
use crate::providers::azure::model::ResourceId;

/// The list of a service's connections.
pub const CONNECTIONS: &str = "privateEndpointConnections";
/// Lists of requested connections: those that the consumer may approve, and those that the service's owner must approve.
const REQUEST_LISTS: [&str; 2] = ["privateLinkServiceConnections", "manualPrivateLinkServiceConnections"];
const SERVICES: &str = "microsoft.network/privatelinkservices";
pub const ENDPOINTS: &str = "microsoft.network/privateendpoints";
const STATE: &str = "privateLinkServiceConnectionState";
/// Fields of a service that only Azure writes.
pub const READ_ONLY: [&str; 3] = ["alias", "networkInterfaces", CONNECTIONS];

/// Progress of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionStatus {
    Pending,
    Approved,
    Rejected,
    Disconnected,
}

impl ConnectionStatus {
    /// Returns the status in ARM's spelling.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Approved => "Approved",
            Self::Rejected => "Rejected",
            Self::Disconnected => "Disconnected",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let all = [Self::Pending, Self::Approved, Self::Rejected, Self::Disconnected];
        all.into_iter().find(|status| status.as_str().eq_ignore_ascii_case(text))
    }
}

fn state(status: ConnectionStatus) -> Value {
    json!({"status": status.as_str(), "description": "", "actionsRequired": "None"})
}

fn guid(text: &str) -> String {
    uuid(0, &text.to_ascii_lowercase())
}

/// Returns the name that consumers in other subscriptions use.
pub fn alias(service: &ResourceId, location: &str) -> String {
    format!("{}.{}.{location}.azure.privatelinkservice", service.name(), guid(service.as_str())).to_ascii_lowercase()
}

/// Returns the service of this id or alias.
pub fn find<'a>(store: &'a Store, service: &str) -> Option<&'a Document> {
    let by_id = store.get(service).filter(|document| document.kind == SERVICES);
    let is_alias = |document: &Document| {
        let id = ResourceId::parse(&document.id);
        id.is_ok_and(|id| alias(&id, location(&document.body)).eq_ignore_ascii_case(service))
    };
    by_id.or_else(|| store.of_type(SERVICES).map(|(_, document)| document).find(|document| is_alias(document)))
}

fn location(body: &Value) -> &str {
    body["location"].as_str().unwrap_or_default()
}

fn connection_requests(endpoint: &Value) -> impl Iterator<Item = &Value> {
    REQUEST_LISTS.into_iter().flat_map(|list| endpoint["properties"][list].as_array().into_iter().flatten())
}

/// Returns the IDs or aliases of the services that a private endpoint requests.
pub fn requested_services(endpoint: &Value) -> impl Iterator<Item = &Value> {
    connection_requests(endpoint).map(|part| &part["properties"]["privateLinkServiceId"])
}

/// Returns the keys of the services that a private endpoint requests.
pub fn services_of(store: &Store, endpoint: &Value) -> Vec<String> {
    let found = requested_services(endpoint).filter_map(|service| find(store, service.as_str()?));
    found.map(|document| document.id.to_ascii_lowercase()).collect()
}

fn status_of(part: &Value) -> Option<ConnectionStatus> {
    ConnectionStatus::parse(part["properties"][STATE]["status"].as_str()?)
}

/// Returns the private endpoints that are connected with a service, or request a connection, with its status.
fn endpoints_of<'a>(store: &'a Store, service: &'a str) -> impl Iterator<Item = (&'a Document, ConnectionStatus)> {
    store.of_type(ENDPOINTS).filter_map(move |(_, endpoint)| {
        let part = connection_requests(&endpoint.body).find(|part| {
            let requested = part["properties"]["privateLinkServiceId"].as_str().and_then(|requested| find(store, requested));
            requested.is_some_and(|found| found.id.eq_ignore_ascii_case(service))
        })?;
        let status = status_of(part).unwrap_or(ConnectionStatus::Pending);
        (status != ConnectionStatus::Disconnected).then_some((endpoint, status))
    })
}

fn connection_name(endpoint: &Document) -> String {
    let name = endpoint.id.rsplit('/').next().unwrap_or_default();
    format!("{name}.{}", guid(&endpoint.id))
}

/// Returns a service's connections, as ARM shows them.
pub fn connections(store: &Store, service: &str) -> Vec<Value> {
    endpoints_of(store, service)
        .map(|(endpoint, status)| {
            let name = connection_name(endpoint);
            json!({
                "id": format!("{service}/{CONNECTIONS}/{name}"), "name": name,
                "properties": {"privateEndpoint": {"id": endpoint.id}, STATE: state(status), "linkIdentifier": "536870913"},
            })
        })
        .collect()
}

/// Adds the fields of a service that only Azure writes; `all`: its alias and its interface, too.
pub fn show(store: &Store, document: &Document, all: bool, properties: &mut Map<String, Value>) {
    properties.insert(CONNECTIONS.to_owned(), json!(connections(store, &document.id)));
    properties.insert("networkInterfaces".to_owned(), json!([]));
    let Some(id) = ResourceId::parse(&document.id).ok().filter(|_| all) else { return };
    let group = id.as_str().split("/providers/").next().unwrap_or_default();
    let interface = format!("{group}/providers/Microsoft.Network/networkInterfaces/{}.nic.{}", id.name(), guid(id.as_str()));
    properties.insert("networkInterfaces".to_owned(), json!([{"id": interface}]));
    properties.insert("alias".to_owned(), json!(alias(&id, location(&document.body))));
}

/// Returns `true` if a service approves connections of a subscription automatically.
fn approves(service: &Document, subscription: &str) -> bool {
    let listed = service.body["properties"]["autoApproval"]["subscriptions"].as_array();
    let listed = listed.into_iter().flatten().filter_map(Value::as_str);
    listed.into_iter().any(|entry| entry == "*" || entry.eq_ignore_ascii_case(subscription))
}

/// Completes a private endpoint that is written: the service decides on the status of a connection.
pub fn complete_endpoint(store: &Store, id: &ResourceId, old: Option<&Value>, body: &mut Value) {
    for list in REQUEST_LISTS {
        for part in body["properties"].get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let before = old.and_then(|old| connection_requests(old).find(|before| before["name"] == part["name"]));
            let service = part["properties"]["privateLinkServiceId"].as_str().and_then(|service| find(store, service));
            let lets_in = service.is_some_and(|service| approves(service, id.subscription()));
            let status = match before.and_then(status_of) {
                Some(status) => status,
                None if list == REQUEST_LISTS[0] || lets_in => ConnectionStatus::Approved,
                None => ConnectionStatus::Pending,
            };
            part["properties"][STATE] = state(status);
        }
    }
}

/// Sets the status of the connection of this name. Returns `false` if there is none.
pub fn decide(store: &mut Store, service: &str, connection: &str, status: ConnectionStatus) -> bool {
    let named = |(endpoint, _): &(&Document, _)| connection_name(endpoint).eq_ignore_ascii_case(connection);
    let Some((endpoint, _)) = endpoints_of(store, service).find(named) else { return false };
    let mut body = (*endpoint.body).clone();
    let id = endpoint.id.clone();
    for list in REQUEST_LISTS {
        for part in body["properties"].get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let requested = part["properties"]["privateLinkServiceId"].as_str().and_then(|requested| find(store, requested));
            if requested.is_some_and(|found| found.id.eq_ignore_ascii_case(service)) {
                part["properties"][STATE] = state(status);
            }
        }
    }
    store.change_document(&id, |document| *document = body);
    store.touch(service);
    true
}

/// Returns the status that a request sets for a connection.
pub fn requested_status(connection: &Value) -> Option<ConnectionStatus> {
    status_of(connection)
}

/// Creates a private endpoint of another consumer that is connected with a service. Returns the connection's name.
pub fn connect(
    store: &mut Store,
    endpoint: &str,
    service: &str,
    status: ConnectionStatus,
) -> Result<String, InvalidDocument> {
    let name = endpoint.rsplit('/').next().unwrap_or_default();
    store.put_document(json!({
        "id": endpoint, "location": find(store, service).map(|found| location(&found.body).to_owned()),
        "properties": {REQUEST_LISTS[1]: [{"name": name, "properties": {"privateLinkServiceId": service, STATE: state(status)}}]},
    }))?;
    services_of(store, &json!({"properties": {REQUEST_LISTS[1]: [{"properties": {"privateLinkServiceId": service}}]}}))
        .iter()
        .for_each(|service| store.touch(service));
    store.get(endpoint).map(connection_name).ok_or_else(|| InvalidDocument(endpoint.to_owned()))
}
