use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use super::*;

struct Pair {
    certificate: String,
    key: String,
}

fn pair() -> Pair {
    let mut ca = CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = Issuer::new(ca, KeyPair::generate().unwrap());
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(Vec::new()).unwrap().signed_by(&key, &issuer).unwrap();
    Pair { certificate: certificate.pem(), key: key.serialize_pem() }
}

fn write(folder: &Path, name: &str, text: &str) {
    fs::write(folder.join(name), text).unwrap();
}

fn load(folder: &Path) -> KubeClientTls {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut config = Config::new("https://api".parse().unwrap());
    let path = |name: &str| folder.join(name).display().to_string();
    config.auth_info.client_certificate = Some(path("client.crt"));
    config.auth_info.client_key = Some(path("client.key"));
    KubeClientTls::load(config, Some(folder.join("ca.crt")), None, ConnectionSharing::Shared).unwrap()
}

async fn later() {
    tokio::time::advance(RELOAD_INTERVAL).await;
}

#[tokio::test(start_paused = true)]
async fn files_that_change_are_used_and_half_written_ones_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new, ca) = (pair(), pair(), pair());
    write(folder.path(), "client.crt", &old.certificate);
    write(folder.path(), "client.key", &old.key);
    write(folder.path(), "ca.crt", &ca.certificate);
    let tls = load(folder.path());
    let first = tls.current();
    later().await;
    assert!(Arc::ptr_eq(&first, &tls.current()), "what has not changed is kept, so that connections are");

    write(folder.path(), "client.crt", &new.certificate);
    assert!(Arc::ptr_eq(&first, &tls.current()), "files are not looked at for each request");
    later().await;
    assert!(Arc::ptr_eq(&first, &tls.current()), "a certificate that does not fit the key is not used");
    write(folder.path(), "client.key", &new.key);
    later().await;
    let second = tls.current();
    assert!(!Arc::ptr_eq(&first, &second), "the new pair is used");

    for broken in ["", "-----BEGIN CERTIFICATE-----\nAAAA"] {
        write(folder.path(), "ca.crt", broken);
        later().await;
        assert!(Arc::ptr_eq(&second, &tls.current()), "a partial file is not used: {broken:?}");
    }
    fs::remove_file(folder.path().join("ca.crt")).unwrap();
    later().await;
    assert!(Arc::ptr_eq(&second, &tls.current()), "a missing file keeps the previous authorities");
    write(folder.path(), "ca.crt", &pair().certificate);
    later().await;
    assert!(!Arc::ptr_eq(&second, &tls.current()), "the new authorities are used");
}

#[tokio::test(start_paused = true)]
async fn files_that_could_not_be_read_are_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let (pair, ca) = (pair(), pair());
    write(folder.path(), "client.crt", &pair.certificate);
    write(folder.path(), "client.key", &pair.key);
    write(folder.path(), "ca.crt", &ca.certificate);
    let tls = load(folder.path());
    let first = tls.current();
    let mut loaded = tls.loaded.lock();
    let changed = loaded.digest.wrapping_add(1);
    // The files have been replaced. The first read fails for lack of a descriptor, the second succeeds.
    loaded.reload_if_changed(&[], changed, || Err(kube::Error::Service("too many open files".into())));
    assert!(Arc::ptr_eq(&first, &loaded.config) && loaded.rejected_digest == Some(changed));
    loaded.reload_if_changed(&[], changed, || build(&tls.config, tls.authorities.as_ref(), tls.sharing));
    assert!(!Arc::ptr_eq(&first, &loaded.config) && loaded.rejected_digest.is_none());
    loaded.reload_if_changed(&[], changed, || panic!("unchanged files are not read again"));
}

#[test]
fn authorities_that_cannot_be_read_at_start_are_named() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "ca.crt", "nothing");
    let config = Config::new("https://api".parse().unwrap());
    let error = KubeClientTls::load(config, Some(folder.path().join("ca.crt")), None, ConnectionSharing::Shared)
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("ca.crt: it contains no certificate"), "{error}");
}
