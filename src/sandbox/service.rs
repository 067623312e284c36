//! Services as the server completes and validates them: defaults, cluster IPs, node ports, and fields that follow the type. Pure.
//! Upstream: `pkg/registry/core/service/{strategy.go,storage/alloc.go}`, `pkg/apis/core/v1/defaults.go`, `validation.go`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    allocations::{Allocations, node_ports},
    refusal::Cause,
    validation::items,
};

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

/// Defaults and allocates. The causes are what could not be allocated.
pub fn complete(old: Option<&Value>, new: &mut Value, allocations: &Allocations) -> Vec<Cause> {
    if !new["spec"].is_object() {
        new["spec"] = json!({});
    }
    default_fields(&mut new["spec"]);
    if let Some(old) = old {
        let before = old["spec"].clone();
        drop_fields_of_old_type(&before, &mut new["spec"]);
        keep_allocated(&before, &mut new["spec"]);
    }
    default_by_type(&mut new["spec"]);
    default_ip_mode(new);
    allocate_addresses(&mut new["spec"], allocations);
    allocate_ports(old, &mut new["spec"], allocations)
}

fn set_default(spec: &mut Value, field: &str, value: Value) {
    if spec.get(field).is_none_or(|found| found.is_null() || found == "") {
        spec[field] = value;
    }
}

fn default_fields(spec: &mut Value) {
    set_default(spec, "type", json!("ClusterIP"));
    set_default(spec, "sessionAffinity", json!("None"));
    if spec["sessionAffinity"] == "ClientIP" {
        set_default(spec, "sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": 10800}}));
    }
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten().filter(|port| port.is_object()) {
        set_default(port, "protocol", json!("TCP"));
        let target = port["port"].clone();
        set_default(port, "targetPort", target);
    }
}

fn default_by_type(spec: &mut Value) {
    if needs_cluster_ip(spec) {
        set_default(spec, "internalTrafficPolicy", json!("Cluster"));
    }
    if has_external_traffic(spec) {
        set_default(spec, "externalTrafficPolicy", json!("Cluster"));
    }
    if spec["type"] == "LoadBalancer" {
        set_default(spec, "allocateLoadBalancerNodePorts", json!(true));
    }
}

/// Applies the defaults of `SetDefaults_Service` upstream.
fn default_ip_mode(service: &mut Value) {
    if service["spec"]["type"] != "LoadBalancer" {
        return;
    }
    let ingress = service.pointer_mut("/status/loadBalancer/ingress").and_then(Value::as_array_mut);
    for entry in ingress.into_iter().flatten().filter(|entry| !entry["ip"].is_null()) {
        set_default(entry, "ipMode", json!("VIP"));
    }
}

fn needs_cluster_ip(spec: &Value) -> bool {
    spec["type"] != "ExternalName"
}

fn has_external_traffic(spec: &Value) -> bool {
    spec["type"] == "NodePort" || spec["type"] == "LoadBalancer"
}

fn needs_node_ports(spec: &Value) -> bool {
    spec["type"] == "NodePort" || (spec["type"] == "LoadBalancer" && spec["allocateLoadBalancerNodePorts"] != json!(false))
}

fn needs_health_check_port(spec: &Value) -> bool {
    spec["type"] == "LoadBalancer" && spec["externalTrafficPolicy"] == "Local"
}

/// Drops the fields of the old type, which a client that changes only the type still sends. Upstream:
/// `dropTypeDependentFields`.
fn drop_fields_of_old_type(old: &Value, new: &mut Value) {
    let lost = |needs: fn(&Value) -> bool| needs(old) && !needs(new);
    let mut dropped = Vec::new();
    if lost(needs_cluster_ip) {
        dropped.extend(["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"]);
    }
    if lost(has_external_traffic) {
        dropped.push("externalTrafficPolicy");
    }
    if lost(|spec| spec["type"] == "LoadBalancer") {
        dropped.extend(["allocateLoadBalancerNodePorts", "loadBalancerClass"]);
    }
    if lost(needs_health_check_port) {
        dropped.push("healthCheckNodePort");
    }
    let loses_ports = old["type"] != new["type"] && lost(needs_node_ports);
    if let Some(fields) = new.as_object_mut() {
        fields.retain(|field, value| !dropped.contains(&field.as_str()) || old.get(field) != Some(value));
    }
    if loses_ports {
        drop_unchanged_node_ports(old, new);
    }
}

fn drop_unchanged_node_ports(old: &Value, new: &mut Value) {
    let before: BTreeSet<_> = items(&old["ports"]).iter().filter_map(|port| port["nodePort"].as_u64()).collect();
    for port in new.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let unchanged = port["nodePort"].as_u64().is_some_and(|port| before.contains(&port));
        if let Some(fields) = port.as_object_mut().filter(|_| unchanged) {
            fields.remove("nodePort");
        }
    }
}

/// Keeps what the server allocated if a PUT omits it. Upstream: `patchAllocatedValues`.
fn keep_allocated(old: &Value, new: &mut Value) {
    if needs_cluster_ip(old) && needs_cluster_ip(new) {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            set_default(new, field, old[field].clone());
        }
    }
    if needs_health_check_port(old) && needs_health_check_port(new) {
        set_default(new, "healthCheckNodePort", old["healthCheckNodePort"].clone());
    }
    if !(needs_node_ports(old) && needs_node_ports(new)) {
        return;
    }
    for port in new.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let same = |before: &&Value| before["port"] == port["port"] && before["protocol"] == port["protocol"];
        let node_port = items(&old["ports"]).iter().find(same).map(|before| before["nodePort"].clone());
        if let Some(node_port) =
            node_port.filter(Value::is_u64).filter(|_| port["nodePort"].as_u64().unwrap_or_default() == 0)
        {
            port["nodePort"] = node_port;
        }
    }
}

fn allocate_addresses(spec: &mut Value, allocations: &Allocations) {
    if !needs_cluster_ip(spec) {
        return;
    }
    set_default(spec, "ipFamilyPolicy", json!("SingleStack"));
    let families = families(spec);
    spec["ipFamilies"] = json!(families);
    if spec["clusterIP"] == "None" {
        spec["clusterIPs"] = json!(["None"]);
        return;
    }
    let mut addresses: Vec<Value> = items(&spec["clusterIPs"]).to_vec();
    if addresses.is_empty() {
        addresses
            .extend(spec.get("clusterIP").filter(|address| address.as_str().is_some_and(|text| !text.is_empty())).cloned());
    }
    addresses.truncate(families.len());
    for family in families.iter().skip(addresses.len()) {
        addresses.push(json!(allocations.free_address(family)));
    }
    spec["clusterIP"] = addresses.first().cloned().unwrap_or_default();
    spec["clusterIPs"] = json!(addresses);
}

/// Returns the families of a Service. The cluster is dual-stack, IPv4 first.
fn families(spec: &Value) -> Vec<String> {
    let mut families: Vec<String> =
        items(&spec["ipFamilies"]).iter().filter_map(|family| family.as_str().map(str::to_owned)).collect();
    if families.is_empty() {
        let v6 = spec["clusterIP"].as_str().is_some_and(|address| address.contains(':'));
        families.push(if v6 { "IPv6" } else { "IPv4" }.to_owned());
    }
    if spec["ipFamilyPolicy"] == "SingleStack" {
        families.truncate(1);
    } else if families.len() == 1 {
        let other = if families[0] == "IPv4" { "IPv6" } else { "IPv4" };
        families.push(other.to_owned());
    }
    families
}

fn allocate_ports(old: Option<&Value>, spec: &mut Value, allocations: &Allocations) -> Vec<Cause> {
    let own = old.map(node_ports).unwrap_or_default();
    let mut used = node_ports(&json!({"spec": spec}));
    let mut causes: Vec<_> = used
        .iter()
        .filter(|port| allocations.has_port(**port) && !own.contains(port))
        .map(|port| Cause::invalid("spec.ports[].nodePort", format!("{port}: provided port is already allocated")))
        .collect();
    let mut hand_out = |target: &mut Value, field: &str| {
        if target[field].as_u64().unwrap_or_default() != 0 {
            return;
        }
        match allocations.free_port(&used) {
            Some(port) => {
                used.insert(port);
                target[field] = json!(port);
            }
            None => causes.push(Cause::invalid(field, "failed to allocate a nodePort: range is full")),
        }
    };
    if needs_node_ports(spec) {
        let ports = spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten();
        ports.for_each(|port| hand_out(port, "nodePort"));
    }
    if needs_health_check_port(spec) {
        hand_out(spec, "healthCheckNodePort");
    }
    causes
}

/// Validates a completed Service.
pub fn validate(old: Option<&Value>, new: &Value) -> Vec<Cause> {
    let spec = &new["spec"];
    let mut causes = enumerations(spec);
    causes.extend(ports(spec));
    causes.extend(source_ranges(spec));
    causes.extend(of_load_balancers_only(spec));
    causes.extend(old.into_iter().flat_map(|old| immutable(&old["spec"], spec)));
    causes
}

fn enumerations(spec: &Value) -> Vec<Cause> {
    let fields: [(&str, &[&str]); 4] = [
        ("type", &TYPES),
        ("sessionAffinity", &["ClientIP", "None"]),
        ("externalTrafficPolicy", &["Cluster", "Local"]),
        ("internalTrafficPolicy", &["Cluster", "Local"]),
    ];
    let invalid = fields.into_iter().filter_map(|(field, accepted)| {
        let value = spec.get(field)?.as_str()?;
        (!accepted.contains(&value)).then(|| Cause::unsupported(format!("spec.{field}"), value, accepted))
    });
    invalid.collect()
}

fn ports(spec: &Value) -> Vec<Cause> {
    let all = items(&spec["ports"]);
    let mut causes = Vec::new();
    if all.is_empty() && spec["clusterIP"] != "None" && spec["type"] != "ExternalName" {
        causes.push(Cause::required("spec.ports", "a service needs at least one port"));
    }
    for (index, port) in all.iter().enumerate() {
        let at = |field: &str| format!("spec.ports[{index}].{field}");
        if !port["port"].as_u64().is_some_and(|number| (1..=65535).contains(&number)) {
            causes.push(Cause::invalid(at("port"), format!("{}: must be between 1 and 65535, inclusive", port["port"])));
        }
        if all.len() > 1 && port["name"].as_str().unwrap_or_default().is_empty() {
            causes.push(Cause::required(at("name"), "ports need names when there are several"));
        }
        let protocol = port["protocol"].as_str().unwrap_or_default();
        if !["SCTP", "TCP", "UDP"].contains(&protocol) {
            causes.push(Cause::unsupported(at("protocol"), protocol, &["SCTP", "TCP", "UDP"]));
        }
        if all[..index].iter().any(|other| other["port"] == port["port"] && other["protocol"] == port["protocol"]) {
            causes.push(Cause::duplicate(format!("spec.ports[{index}]"), format!("{protocol} {}", port["port"])));
        }
        if !port["name"].is_null() && all[..index].iter().any(|other| other["name"] == port["name"]) {
            causes.push(Cause::duplicate(at("name"), port["name"].to_string()));
        }
    }
    causes
}

fn source_ranges(spec: &Value) -> Vec<Cause> {
    let ranges = items(&spec["loadBalancerSourceRanges"]).iter().enumerate();
    let invalid =
        ranges.filter(|(_, range)| range.as_str().and_then(|range| range.trim().parse::<ipnet::IpNet>().ok()).is_none());
    let mut causes: Vec<_> = invalid
        .map(|(index, range)| {
            let message = format!("{range}: must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)");
            Cause::invalid(format!("spec.loadBalancerSourceRanges[{index}]"), message)
        })
        .collect();
    if !items(&spec["loadBalancerSourceRanges"]).is_empty() && spec["type"] != "LoadBalancer" {
        causes.push(Cause::forbidden("spec.loadBalancerSourceRanges", "may only be used when `type` is 'LoadBalancer'"));
    }
    causes
}

fn of_load_balancers_only(spec: &Value) -> Vec<Cause> {
    let is_set = |field: &str| !spec[field].is_null() && spec[field] != 0;
    let mut causes = Vec::new();
    for field in ["loadBalancerClass", "allocateLoadBalancerNodePorts"] {
        if spec["type"] != "LoadBalancer" && is_set(field) {
            causes.push(Cause::forbidden(format!("spec.{field}"), "may only be used when `type` is 'LoadBalancer'"));
        }
    }
    if !has_external_traffic(spec) && is_set("externalTrafficPolicy") {
        let message = "may only be set for externally-accessible services";
        causes.push(Cause::invalid("spec.externalTrafficPolicy", message));
    }
    if !needs_health_check_port(spec) && is_set("healthCheckNodePort") {
        let message = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        causes.push(Cause::invalid("spec.healthCheckNodePort", message));
    }
    causes
}

fn immutable(old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let address = |spec: &Value| spec["clusterIP"].as_str().unwrap_or_default().to_owned();
    if needs_cluster_ip(old) && needs_cluster_ip(new) && address(old) != address(new) {
        causes.push(Cause::invalid("spec.clusterIPs[0]", format!("{:?}: may not change once set", address(new))));
    }
    let both = old["type"] == "LoadBalancer" && new["type"] == "LoadBalancer";
    if both && old["loadBalancerClass"] != new["loadBalancerClass"] {
        causes.push(Cause::invalid("spec.loadBalancerClass", "may not change once set"));
    }
    if needs_health_check_port(old)
        && needs_health_check_port(new)
        && old["healthCheckNodePort"] != new["healthCheckNodePort"]
    {
        causes.push(Cause::invalid("spec.healthCheckNodePort", "field is immutable"));
    }
    causes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(old: Option<&Value>, spec: impl Into<Value>) -> Value {
        let mut service = json!({"spec": spec.into()});
        let mut allocations = Allocations::default();
        old.iter().for_each(|old| allocations.hold(old));
        assert_eq!(complete(old, &mut service, &allocations), []);
        service
    }

    #[test]
    fn a_load_balancer_gets_what_the_server_hands_out() {
        let service =
            completed(None, json!({"type": "LoadBalancer", "ports": [{"port": 80}], "externalTrafficPolicy": "Local"}));
        let expected = json!({
            "type": "LoadBalancer", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
            "externalTrafficPolicy": "Local", "allocateLoadBalancerNodePorts": true, "healthCheckNodePort": 30001,
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "clusterIP": "10.96.0.2", "clusterIPs": ["10.96.0.2"],
            "ports": [{"port": 80, "targetPort": 80, "protocol": "TCP", "nodePort": 30000}],
        });
        assert_eq!(service["spec"], expected);
        assert_eq!(validate(None, &service), []);
    }

    #[test]
    fn an_update_keeps_allocations_and_reserves_them() {
        let old = completed(None, json!({"type": "NodePort", "ports": [{"port": 80}]}));
        let new = completed(Some(&old), json!({"type": "NodePort", "ports": [{"port": 81}, {"port": 80}]}));
        assert_eq!(new["spec"]["ports"][1]["nodePort"], 30000);
        assert_eq!(new["spec"]["ports"][0]["nodePort"], 30001);
        assert_eq!(new["spec"]["clusterIP"], old["spec"]["clusterIP"]);
        let mut allocations = Allocations::default();
        allocations.hold(&old);
        let mut other = json!({"spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30000}]}});
        assert_eq!(complete(None, &mut other, &allocations).len(), 1);
    }

    #[test]
    fn wrong_fields_are_named() {
        let cases = [
            (json!({"type": "Bogus", "ports": [{"port": 80}]}), vec!["spec.type"]),
            (json!({}), vec!["spec.ports"]),
            (json!({"clusterIP": "None"}), vec![]),
            (json!({"ports": [{"port": 0}]}), vec!["spec.ports[0].port"]),
            (json!({"ports": [{"port": 1, "name": "a"}, {"port": 1, "name": "b"}]}), vec!["spec.ports[1]"]),
            (json!({"ports": [{"port": 1}, {"port": 2, "name": "b"}]}), vec!["spec.ports[0].name"]),
            (
                json!({"type": "LoadBalancer", "ports": [{"port": 1}], "loadBalancerSourceRanges": ["10.0.0.0"]}),
                vec!["spec.loadBalancerSourceRanges[0]"],
            ),
            (json!({"ports": [{"port": 1}], "loadBalancerClass": "a/b"}), vec!["spec.loadBalancerClass"]),
        ];
        for (spec, expected) in cases {
            let service = completed(None, spec.clone());
            let fields: Vec<_> = validate(None, &service).into_iter().map(|cause| cause.field).collect();
            assert_eq!(fields, expected, "{spec}");
        }
        let class = |class: &str| {
            completed(None, json!({"type": "LoadBalancer", "ports": [{"port": 1}], "loadBalancerClass": class}))
        };
        assert_eq!(validate(Some(&class("a/b")), &class("a/c")).len(), 1);
    }
}
