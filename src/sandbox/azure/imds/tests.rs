use std::net::IpAddr;

use super::*;
use crate::sandbox::azure::topology::{Pool, PoolKind};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn identity(name: &str, resource_id: Option<&str>) -> ManagedIdentity {
    let principal = Principal {
        tenant: "t".to_owned(),
        client_id: format!("{name}-client"),
        object_id: format!("{name}-object"),
        credentials: Vec::new(),
    };
    ManagedIdentity { principal, resource_id: resource_id.map(str::to_owned) }
}

fn imds(identities: &[ManagedIdentity]) -> Imds {
    Imds { identities: identities.to_vec(), identity_header: "header".to_owned() }
}

fn ask(imds: &Imds, uri: &str, headers: &[(&'static str, &str)], machine: Option<(&Topology, &Machine)>) -> (u16, Value) {
    let mut request = Request::get(format!("http://169.254.169.254{uri}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Bytes::new()).unwrap();
    let asked = asked(request.uri().path()).expect("a path of the service");
    let response = imds.answer(asked, &request, machine, (&mut Directory::default(), NOW));
    (response.status().as_u16(), serde_json::from_slice(response.body()).unwrap())
}

const TOKEN: &str = "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https%3A%2F%2Fmanagement.azure.com%2F";
const METADATA: &[(&str, &str)] = &[("Metadata", "true")];

#[test]
fn identities_are_chosen_by_any_of_their_ids() {
    let imds = imds(&[identity("one", Some("/subscriptions/s/one")), identity("two", Some("/subscriptions/s/two"))]);
    let cases = [
        ("&client_id=ONE-client", Ok("one-client")),
        ("&object_id=two-object", Ok("two-client")),
        ("&msi_res_id=%2Fsubscriptions%2FS%2Ftwo", Ok("two-client")),
        ("&client_id=three", Err("Identity not found")),
        ("", Err("Multiple user assigned identities")),
    ];
    for (query, expected) in cases {
        let (status, body) = ask(&imds, &format!("{TOKEN}{query}"), METADATA, None);
        match expected {
            Ok(client) => assert_eq!((status, body["client_id"].as_str()), (200, Some(client)), "{query}"),
            Err(text) => {
                assert!(status == 400 && body["error_description"].as_str().unwrap().contains(text), "{query} {body}")
            }
        }
    }
}

#[test]
fn the_own_identity_needs_no_name() {
    let (status, body) = ask(&imds(&[identity("user", Some("/u")), identity("own", None)]), TOKEN, METADATA, None);
    assert_eq!((status, body["client_id"].as_str()), (200, Some("own-client")));
    assert_eq!(body["resource"], "https://management.azure.com/");
    // Numbers are text here: clients parse them so.
    assert_eq!((&body["expires_on"], &body["expires_in"]), (&json!("3599"), &json!("3599")));
    let (_, body) = ask(&imds(&[identity("only", Some("/u"))]), TOKEN, METADATA, None);
    assert_eq!(body["client_id"], "only-client");
    assert_eq!(ask(&imds(&[]), TOKEN, METADATA, None).0, 400);
}

#[test]
fn app_service_wants_its_header() {
    let imds = imds(&[identity("own", None)]);
    let uri = "/msi/token?api-version=2019-08-01&resource=r";
    assert_eq!(ask(&imds, uri, &[("X-IDENTITY-HEADER", "other")], None).0, 401);
    let (status, body) = ask(&imds, uri, &[("X-IDENTITY-HEADER", "header")], None);
    assert_eq!((status, &body["expires_in"], &body["expires_on"]), (200, &Value::Null, &json!("3599")));
}

#[test]
fn instance_and_load_balancer_describe_the_machine() {
    let pool = Pool::new(PoolKind::Uniform, "pool1", 2).zones(&["1", "2"]).public_ips().tag("env", "test");
    let topology = Topology::new().dual_stack().pool(pool);
    let machine = &topology.machines()[1];
    let at = Some((&topology, machine));
    let (status, body) = ask(&imds(&[]), "/metadata/instance?api-version=2021-10-01&format=json", METADATA, at);
    assert_eq!(status, 200);
    let compute = &body["compute"];
    assert_eq!(
        (&compute["name"], &compute["zone"], &compute["vmScaleSetName"]),
        (&json!("pool1_1"), &json!("2"), &json!("pool1"))
    );
    assert_eq!(compute["resourceId"], machine.id(&topology).as_str());
    assert_eq!(compute["platformFaultDomain"], "0");
    assert!(compute["tagsList"].as_array().unwrap().contains(&json!({"name": "env", "value": "test"})));
    let interface = &body["network"]["interface"][0];
    assert_eq!(interface["ipv4"]["ipAddress"], json!([{"privateIpAddress": "10.224.0.5", "publicIpAddress": ""}]));
    assert_eq!(interface["ipv6"]["ipAddress"], json!([{"privateIpAddress": "fd00:10::5", "publicIpAddress": ""}]));

    let (_, body) = ask(&imds(&[]), "/metadata/loadbalancer?api-version=2020-10-01&format=json", METADATA, at);
    let public: Vec<IpAddr> = machine.ip_configurations.iter().filter_map(|found| found.public_address).collect();
    let expected = json!([
        {"frontendIpAddress": public[0], "privateIpAddress": "10.224.0.5"},
        {"frontendIpAddress": format!("[{}]", public[1]), "privateIpAddress": "[fd00:10::5]"},
    ]);
    assert_eq!(body["loadbalancer"]["publicIpAddresses"], expected);
}

#[test]
fn what_is_not_there_is_refused() {
    let topology = Topology::new().pool(Pool::new(PoolKind::Standalone, "solo", 1));
    let machine = &topology.machines()[0];
    let at = Some((&topology, machine));
    let balancer = "/metadata/loadbalancer?api-version=2020-10-01";
    assert_eq!(ask(&imds(&[]), balancer, METADATA, at).0, 404);
    assert_eq!(ask(&imds(&[]), "/metadata/instance?api-version=2021-10-01", METADATA, None).0, 410);
    assert_eq!(ask(&imds(&[]), "/metadata/instance?api-version=2017-04-02", METADATA, at).0, 400);
}
