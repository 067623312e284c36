use super::*;

#[cfg(target_os = "linux")]
mod processes;

const V1: &str = "client.authentication.k8s.io/v1";

fn read_status(status: &str) -> Result<IssuedCredentials, String> {
    parse_exec_credential(
        format!(r#"{{"apiVersion": "{V1}", "kind": "ExecCredential", "status": {status}}}"#).as_bytes(),
        V1,
        Instant::now(),
    )
}

fn pair() -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

#[test]
fn tokens_and_certificates_are_read() {
    let issued = read_status(r#"{"token": "t", "expirationTimestamp": "2026-01-01T00:00:00Z"}"#).unwrap();
    assert_eq!(issued.header.as_ref().unwrap(), "Bearer t");
    assert!(issued.header.as_ref().unwrap().is_sensitive());
    let end: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let second = jiff::SignedDuration::from_secs(1);
    assert_eq!((issued.is_valid_at(end), issued.is_valid_at(end + second)), (true, false));

    let (certificate, key) = pair();
    let status = serde_json::json!({"clientCertificateData": certificate, "clientKeyData": key});
    let issued = read_status(&status.to_string()).unwrap();
    assert!(issued.header.is_none() && issued.certificate.is_some() && issued.is_valid_at(Timestamp::MAX));
}

#[test]
fn invalid_credentials_are_refused_without_being_shown() {
    let (certificate, key) = pair();
    let other = pair().1;
    let half = serde_json::json!({"clientCertificateData": certificate}).to_string();
    let mixed = serde_json::json!({"clientCertificateData": certificate, "clientKeyData": other}).to_string();
    let broken = serde_json::json!({"clientCertificateData": "x", "clientKeyData": key}).to_string();
    for (status, reason) in [
        ("null", "its output has no status"),
        ("{}", "neither a token nor a certificate"),
        (half.as_str(), "but not both"),
        (mixed.as_str(), "its certificate and key"),
        (broken.as_str(), "certificate"),
        (r#"{"token": "se\ncret"}"#, "its token contains"),
        (r#"{"token": "secret", "expirationTimestamp": "tomorrow"}"#, "is not a time"),
    ] {
        let error = read_status(status).unwrap_err();
        assert!(error.contains(reason) && !error.contains("secret"), "{status}: {error}");
    }
    let other = parse_exec_credential(
        br#"{"apiVersion": "client.authentication.k8s.io/v1beta1", "status": {"token": "t"}}"#,
        V1,
        Instant::now(),
    );
    assert!(other.unwrap_err().contains("apiVersion must be"));
}

/// Returns a plugin that runs a shell script.
fn script(text: &str) -> ExecPlugin {
    let config = serde_json::json!({"apiVersion": V1, "command": "sh", "args": ["-c", text]});
    ExecPlugin::new(&serde_json::from_value(config).unwrap()).unwrap()
}

#[tokio::test]
async fn requests_share_a_run_with_expired_credentials() {
    let dir = tempfile::tempdir().unwrap();
    let runs = dir.path().join("runs");
    let printed = serde_json::json!({
        "apiVersion": V1, "status": {"token": "t", "expirationTimestamp": "2020-01-01T00:00:00Z"},
    });
    let plugin = script(&format!("echo >> {}; echo '{printed}'", runs.display()));
    let results = futures::future::join_all((0..5).map(|_| plugin.current())).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(std::fs::read_to_string(&runs).unwrap().lines().count(), 1);
    plugin.current().await.unwrap();
    assert_eq!(std::fs::read_to_string(&runs).unwrap().lines().count(), 2, "a later request does not take them");
}

#[tokio::test]
async fn output_of_plugins_is_shown_nowhere() {
    let error = script("echo secret").current().await.unwrap_err();
    assert!(error.ends_with("its output is not an ExecCredential"), "{error}");
    let error = script("echo secret >&2; exit 3").current().await.unwrap_err();
    assert!(error.contains("exit status: 3") && error.contains("standard error is not shown"), "{error}");
    let printed = serde_json::json!({"apiVersion": V1, "status": {"token": "t"}});
    let script = script(&format!("test /dev/fd/2 -ef /dev/null && echo '{printed}'"));
    assert_eq!(script.current().await.unwrap().unwrap(), "Bearer t");
}
