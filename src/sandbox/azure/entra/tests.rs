use std::time::Duration;

use azure_core::base64;
use rcgen::{CertificateParams, KeyPair, SigningKey};

use super::*;

const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);
const SCOPE: &str = "https%3A%2F%2Fmanagement.azure.com%2F.default";

fn directory(credential: Credential) -> Directory {
    let mut directory = Directory::default();
    directory.add_credential("tenant", "client", credential);
    directory
}

fn request_token(directory: &mut Directory, path: &str, form: &str) -> (u16, Value) {
    let request =
        Request::post(format!("https://login.microsoftonline.com{path}")).body(Bytes::from(form.to_owned())).unwrap();
    let response = handle(directory, endpoint(path).expect("a token endpoint"), &request, NOW);
    (response.status().as_u16(), serde_json::from_slice(response.body()).unwrap())
}

fn with_secret(client: &str, secret: &str, scope: &str) -> String {
    format!("client_id={client}&client_secret={secret}&grant_type=client_credentials&scope={scope}")
}

#[test]
fn an_adfs_has_a_path_of_its_own() {
    assert_eq!(endpoint("/adfs/oauth2/v2.0/token"), None);
    assert_eq!(endpoint("/tenant/oauth2/token"), None);
    let mut directory = Directory::default();
    directory.add_credential("adfs", "client", Credential::Secret("secret".to_owned()));
    let form = "client_id=client&client_secret=secret&grant_type=client_credentials&resource=https%3A%2F%2Farm.local";
    assert_eq!(request_token(&mut directory, "/adfs/oauth2/token", form).0, 200);
}

#[test]
fn a_federated_token_counts_as_registered() {
    let mut directory = directory(Credential::FederatedToken("header.claims.signature".to_owned()));
    assert_eq!(
        request_token(&mut directory, "/tenant/oauth2/v2.0/token", &with_assertion("header.claims.signature")).0,
        200
    );
    let other = format!("{0}.{1}.{0}", base64::encode_url_safe("{}"), base64::encode_url_safe(r#"{"sub":"system:x"}"#));
    let (_, body) = request_token(&mut directory, "/tenant/oauth2/v2.0/token", &with_assertion(&other));
    assert_eq!(body["error_codes"], json!([700_213]));
    assert!(body["error_description"].as_str().unwrap().contains("system:x"));
    directory.remove_credentials("client");
    assert_eq!(
        request_token(&mut directory, "/tenant/oauth2/v2.0/token", &with_assertion("header.claims.signature")).0,
        401
    );
}

fn with_assertion(assertion: &str) -> String {
    let kind = "urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer";
    format!(
        "client_id=client&client_assertion={assertion}&client_assertion_type={kind}&grant_type=client_credentials&scope={SCOPE}"
    )
}

fn key() -> KeyPair {
    KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048).unwrap()
}

fn signed(key: &KeyPair, changes: &Value) -> String {
    let mut claims = json!({
        "aud": "https://login.microsoftonline.com/tenant/oauth2/v2.0/token", "iss": "client", "sub": "client", "jti": "1",
        "nbf": NOW.as_second(), "exp": NOW.as_second() + 600,
    });
    for (name, value) in changes.as_object().unwrap() {
        claims[name] = value.clone();
    }
    let header = json!({"alg": "RS256", "typ": "JWT", "x5t": "thumbprint"});
    let signed = format!("{}.{}", base64::encode_url_safe(header.to_string()), base64::encode_url_safe(claims.to_string()));
    format!("{signed}.{}", base64::encode_url_safe(key.sign(signed.as_bytes()).unwrap()))
}

#[test]
fn a_signed_assertion_is_verified_with_the_certificate() {
    let (registered, unregistered) = (key(), key());
    let certificate = CertificateParams::new(Vec::new()).unwrap().self_signed(&registered).unwrap();
    let mut directory = directory(Credential::Certificate(certificate.der().to_vec()));
    let late = NOW.as_second() - 3_600;
    let cases = [
        (signed(&registered, &json!({})), None),
        (signed(&unregistered, &json!({})), Some(700_027)),
        (signed(&registered, &json!({"sub": "somebody"})), Some(700_021)),
        (signed(&registered, &json!({"aud": "https://login.microsoftonline.com/other/oauth2/v2.0/token"})), Some(700_023)),
        (signed(&registered, &json!({"nbf": late, "exp": late + 600})), Some(700_024)),
        (signed(&registered, &json!({"jti": null})), Some(50_027)),
    ];
    for (assertion, refused) in cases {
        let (status, body) = request_token(&mut directory, "/tenant/oauth2/v2.0/token", &with_assertion(&assertion));
        match refused {
            None => assert_eq!(status, 200, "{body}"),
            Some(code) => assert_eq!((status, &body["error_codes"]), (401, &json!([code]))),
        }
    }
}

#[test]
fn invalid_tokens_are_described_to_arm() {
    let mut directory = directory(Credential::Secret("secret".to_owned()));
    let mut token = |scope: &str| {
        let (_, body) = request_token(&mut directory, "/tenant/oauth2/v2.0/token", &with_secret("client", "secret", scope));
        body["access_token"].as_str().unwrap().to_owned()
    };
    let (good, slashed) = (token(SCOPE), token("https%3A%2F%2FManagement.azure.com%2F%2F.default"));
    let other = token("https%3A%2F%2Fvault.azure.net%2F.default");
    let problem = |text: &str, now| directory.problem(text, &["https://management.azure.com/"], now);
    assert_eq!((problem(&good, NOW), problem(&slashed, NOW)), (None, None));
    assert!(problem(&good, NOW + Duration::from_secs(3_600)).unwrap().contains("is earlier than current UTC time"));
    assert!(problem(&other, NOW).unwrap().contains("https://vault.azure.net"));
    assert_eq!(problem("other", NOW), Some("The access token is invalid.".to_owned()));
}
