//! Certificates, versions of TLS, and the files of the flags.

use std::path::Path;

use cloud_controller_manager::serving::{SecureServingConfig, SniCertKey, TlsMinVersion};

use crate::serving::{
    authority::{Authority, trusting},
    port::{config, error, eventually, start},
};

#[tokio::test]
async fn a_swapped_directory_replaces_valid_certificates_only() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let directory = tempfile::tempdir().unwrap();
    old.write_server(&directory.path().join("1"), "ccm.test");
    new.write_server(&directory.path().join("2"), "ccm.test");
    std::fs::create_dir(directory.path().join("bad")).unwrap();
    let link = |target: &str| {
        let next = directory.path().join("next");
        std::os::unix::fs::symlink(target, &next).unwrap();
        std::fs::rename(next, directory.path().join("current")).unwrap();
    };
    link("1");
    let current = directory.path().join("current");
    let config = SecureServingConfig {
        tls_cert_file: Some(current.join("tls.crt")),
        tls_private_key_file: Some(current.join("tls.key")),
        ..config()
    };
    let served = start(config, None).await;
    let url = format!("https://ccm.test:{}/healthz", served.address.port());
    let reaches = |authority: &Authority| {
        let request = trusting(authority, "ccm.test", served.address).get(&url);
        async move { request.send().await.is_ok() }
    };
    assert!(reaches(&old).await && !reaches(&new).await);
    link("bad");
    for _ in 0..20 {
        assert!(reaches(&old).await, "the old pair is kept");
    }
    link("2");
    eventually("the new certificate", || reaches(&new)).await;
    assert!(!reaches(&old).await);
}

#[tokio::test]
async fn the_server_name_selects_the_certificate() {
    let authority = Authority::new("sni");
    let directory = tempfile::tempdir().unwrap();
    let (cert_file, key_file) = authority.write_server(directory.path(), "named.test");
    let sni = SniCertKey { cert_file, key_file, patterns: Vec::new() };
    let served = start(SecureServingConfig { tls_sni_cert_key: vec![sni], ..config() }, None).await;
    let reaches = async |name: &str| {
        let url = format!("https://{name}:{}/healthz", served.address.port());
        trusting(&authority, name, served.address).get(url).send().await.is_ok()
    };
    assert!(reaches("named.test").await);
    assert!(!reaches("other.test").await);
}

#[tokio::test]
async fn tls_1_2_is_served_unless_it_is_too_old() {
    for (tls_min_version, is_served) in [(TlsMinVersion::Tls12, true), (TlsMinVersion::Tls13, false)] {
        let served = start(SecureServingConfig { tls_min_version, ..config() }, None).await;
        let limited = |version| {
            let builder = reqwest::ClientBuilder::new().danger_accept_invalid_certs(true).tls_version_max(version);
            builder.build().unwrap().get(served.url("/healthz")).send()
        };
        assert!(limited(reqwest::tls::Version::TLS_1_3).await.is_ok());
        assert_eq!(limited(reqwest::tls::Version::TLS_1_2).await.is_ok(), is_served);
    }
}

#[tokio::test]
async fn bad_files_name_the_flag_and_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let (good, _) = Authority::new("a").write_server(&directory.path().join("a"), "a.test");
    let (_, key) = Authority::new("b").write_server(&directory.path().join("b"), "b.test");
    let empty = directory.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    let with_files = |cert: &Path, key: &Path| SecureServingConfig {
        tls_cert_file: Some(cert.to_owned()),
        tls_private_key_file: Some(key.to_owned()),
        ..config()
    };
    let mut ca = config();
    ca.authentication.client_ca_file = Some(empty.clone());
    let mut proxy = config();
    proxy.authentication.requestheader_client_ca_file = Some(directory.path().join("absent"));
    let sni = SniCertKey { cert_file: empty.clone(), key_file: key.clone(), patterns: Vec::new() };
    let rows = [
        (with_files(&directory.path().join("absent"), &key), "--tls-cert-file: cannot read", "absent"),
        (with_files(&empty, &key), "--tls-cert-file: ", "empty"),
        (with_files(&good, &key), "--tls-cert-file: ", "cannot be used together"),
        (ca, "--client-ca-file: ", "no CERTIFICATE block"),
        (proxy, "--requestheader-client-ca-file: ", "absent: cannot read"),
        (SecureServingConfig { tls_sni_cert_key: vec![sni], ..config() }, "--tls-sni-cert-key: ", "empty"),
        (
            SecureServingConfig { tls_cipher_suites: vec!["NULL".to_owned()], ..config() },
            "--tls-cipher-suites: ",
            "accepted: ",
        ),
        (SecureServingConfig { cert_dir: Some(empty.join("below-a-file")), ..config() }, "--cert-dir: ", "cannot write"),
    ];
    for (config, flag, detail) in rows {
        let error = error(config).await;
        assert!(error.starts_with(flag) && error.contains(detail), "{error}");
    }
}
