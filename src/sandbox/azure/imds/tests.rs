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

fn get(imds: &Imds, uri: &str, headers: &[(&'static str, &str)], machine: Option<(&Topology, &Machine)>) -> (u16, Value) {
    let mut request = Request::get(format!("http://169.254.169.254{uri}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Bytes::new()).unwrap();
    let subject = subject_of(request.uri().path()).expect("a path of the service");
    let response = imds.handle(subject, &request, machine, (&mut Directory::default(), NOW));
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
        let (status, body) = get(&imds, &format!("{TOKEN}{query}"), METADATA, None);
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
    let (status, body) = get(&imds(&[identity("user", Some("/u")), identity("own", None)]), TOKEN, METADATA, None);
    assert_eq!((status, body["client_id"].as_str()), (200, Some("own-client")));
    assert_eq!(body["resource"], "https://management.azure.com/");
    // Numbers are text here: clients parse them so.
    assert_eq!((&body["expires_on"], &body["expires_in"]), (&json!("3599"), &json!("3599")));
    let (_, body) = get(&imds(&[identity("only", Some("/u"))]), TOKEN, METADATA, None);
    assert_eq!(body["client_id"], "only-client");
    assert_eq!(get(&imds(&[]), TOKEN, METADATA, None).0, 400);
}

#[test]
fn missing_metadata_is_refused() {
    let topology = Topology::new().pool(Pool::new(PoolKind::Standalone, "solo", 1));
    let machine = &topology.machines()[0];
    let at = Some((&topology, machine));
    let balancer = "/metadata/loadbalancer?api-version=2020-10-01";
    assert_eq!(get(&imds(&[]), balancer, METADATA, at).0, 404);
    assert_eq!(get(&imds(&[]), "/metadata/instance?api-version=2021-10-01", METADATA, None).0, 410);
    assert_eq!(get(&imds(&[]), "/metadata/instance?api-version=2017-04-02", METADATA, at).0, 400);
}
