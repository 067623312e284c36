//! Fields that only ARM writes: sent or not, they are unchanged. Pure.
//!
//! In: the body of a write, the document before. Out: the body with the read-only fields of the document before, and the
//! names of those that were sent. Computed fields are not stored at all ([`super::view`] adds them).

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Map, Value, json};

use crate::providers::azure::model::{
    ResourceId,
    body::{self, read_only},
};

/// Gives `body` the read-only fields of `old`. Returns the paths of those that were sent.
pub fn keep(id: &ResourceId, old: Option<&Value>, body: &mut Value) -> Vec<&'static str> {
    let Some(fields) = of(id) else { return Vec::new() };
    let sent = body::strip(fields, body);
    if let Some(old) = old {
        fields.paths.iter().for_each(|path| restore(old, body, path));
    }
    sent
}

fn of(id: &ResourceId) -> Option<&'static read_only::ReadOnlyFields> {
    read_only::TABLE.iter().find(|fields| id.is_type(fields.kind.resource_type))
}

fn restore(old: &Value, new: &mut Value, path: &str) {
    match (old, new) {
        (Value::Array(old), Value::Array(new)) => {
            for part in new {
                let before = old.iter().find(|before| before["name"].is_string() && before["name"] == part["name"]);
                before.into_iter().for_each(|before| restore(before, part, path));
            }
        }
        (Value::Object(old), Value::Object(new)) => match path.split_once('.') {
            Some((first, rest)) => {
                if let (Some(old), Some(new)) = (old.get(first), new.get_mut(first)) {
                    restore(old, new, rest);
                }
            }
            None => drop(old.get(path).map(|value| new.insert(path.to_owned(), value.clone()))),
        },
        _ => {}
    }
}

/// Adds what the network provider computes for a document of its own: `resourceGuid`, and the default rules of a security group.
pub fn show(type_name: &str, id: &str, properties: &mut Map<String, Value>) {
    if !type_name.starts_with("Microsoft.Network/") {
        return;
    }
    properties.insert("resourceGuid".to_owned(), json!(guid(id)));
    if type_name == "Microsoft.Network/networkSecurityGroups" {
        properties.insert("defaultSecurityRules".to_owned(), default_rules(id));
    }
}

fn guid(id: &str) -> String {
    let mut hasher = DefaultHasher::new();
    id.to_ascii_lowercase().hash(&mut hasher);
    let number = hasher.finish();
    format!("{:08x}-{:04x}-4000-8000-000000000000", number >> 32, number & 0xffff)
}

/// Name, priority, access, direction, source, destination.
const DEFAULT_RULES: [(&str, i64, &str, &str, &str, &str); 6] = [
    ("AllowVnetInBound", 65_000, "Allow", "Inbound", "VirtualNetwork", "VirtualNetwork"),
    ("AllowAzureLoadBalancerInBound", 65_001, "Allow", "Inbound", "AzureLoadBalancer", "*"),
    ("DenyAllInBound", 65_500, "Deny", "Inbound", "*", "*"),
    ("AllowVnetOutBound", 65_000, "Allow", "Outbound", "VirtualNetwork", "VirtualNetwork"),
    ("AllowInternetOutBound", 65_001, "Allow", "Outbound", "*", "Internet"),
    ("DenyAllOutBound", 65_500, "Deny", "Outbound", "*", "*"),
];

fn default_rules(id: &str) -> Value {
    let rule = |(name, priority, access, direction, source, destination): (&str, i64, &str, &str, &str, &str)| {
        json!({"id": format!("{id}/defaultSecurityRules/{name}"), "name": name, "properties": {
            "access": access, "direction": direction, "priority": priority, "protocol": "*",
            "sourceAddressPrefix": source, "sourcePortRange": "*",
            "destinationAddressPrefix": destination, "destinationPortRange": "*",
        }})
    };
    DEFAULT_RULES.map(rule).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn read_only_fields_of_a_client_change_nothing() {
        let id =
            ResourceId::parse("/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/networkInterfaces/n").unwrap();
        let old = json!({"name": "n", "properties": {"virtualMachine": {"id": "/vm"}, "enableIPForwarding": true,
            "ipConfigurations": [{"name": "a", "type": "x"}, {"name": "b", "type": "y"}]}});
        let mut sent = json!({"etag": "1", "properties": {"virtualMachine": {"id": "/other"}, "macAddress": "1",
            "ipConfigurations": [{"name": "b"}, {"name": "c", "type": "z"}]}});
        let found = keep(&id, Some(&old), &mut sent);
        let expected = ["etag", "properties.ipConfigurations.type", "properties.macAddress", "properties.virtualMachine"];
        assert_eq!(found, expected);
        assert_eq!(
            sent,
            json!({"name": "n", "properties": {"virtualMachine": {"id": "/vm"},
                "ipConfigurations": [{"name": "b", "type": "y"}, {"name": "c"}]}})
        );
    }
}
