//! Trusted certificate authorities of the machine, in the same locations as in Go.
//!
//! In: `SSL_CERT_FILE` and `SSL_CERT_DIR`, each of which replaces only its own list of default paths; files.
//! Out: the authorities. Upstream: Go's `crypto/x509/root_unix.go`, `root_linux.go`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};

/// Default files, of which the first readable one is used.
const FILES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
const DIRECTORIES: &[&str] = &["/etc/ssl/certs", "/etc/pki/tls/certs"];

/// Loads the authorities from the default locations, or those of the environment.
///
/// Unreadable files and other content are skipped. If no authority is found, a warning is logged.
pub(super) fn load(environment: &BTreeMap<String, String>) -> RootCertStore {
    let read = |name: &str| environment.get(name).filter(|value| !value.is_empty());
    let defaults = |list: &[&str]| list.iter().map(PathBuf::from).collect();
    let files: Vec<PathBuf> = read("SSL_CERT_FILE").map_or_else(|| defaults(FILES), |file| vec![PathBuf::from(file)]);
    let directories: Vec<PathBuf> =
        read("SSL_CERT_DIR").map_or_else(|| defaults(DIRECTORIES), |list| std::env::split_paths(list).collect());
    let entries = directories.iter().filter_map(|directory| fs::read_dir(directory).ok());
    let listed = entries.flatten().filter_map(|entry| fs::read(entry.ok()?.path()).ok());
    let first = files.iter().find_map(|file| fs::read(file).ok());
    let certificates: BTreeSet<_> = first.into_iter().chain(listed).flat_map(|file| certificates(&file)).collect();
    let mut store = RootCertStore::empty();
    let (added, _) = store.add_parsable_certificates(certificates.into_iter().map(CertificateDer::from));
    if added == 0 {
        tracing::warn!(
            ?files,
            ?directories,
            "no certificate authority found: every TLS connection will fail; set SSL_CERT_FILE or SSL_CERT_DIR"
        );
    }
    store
}

fn certificates(file: &[u8]) -> Vec<Vec<u8>> {
    CertificateDer::pem_slice_iter(file).filter_map(Result::ok).map(|certificate| certificate.to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::azure::auth::tests::certificates::make;

    #[test]
    fn each_certificate_of_a_directory_is_loaded_once() {
        let directory = tempfile::tempdir().unwrap();
        let (first, second) = (make("").other_pem, make("").other_pem);
        for (name, text) in
            [("one.pem", &first), ("copy-of-one", &first), ("two.crt", &second), ("readme", &"hello".to_owned())]
        {
            fs::write(directory.path().join(name), text).unwrap();
        }
        let (all, file) = (directory.path().display().to_string(), directory.path().join("two.crt").display().to_string());
        let nowhere = directory.path().join("missing").display().to_string();
        for (file, directories, expected) in
            [(&nowhere, &format!("{nowhere}:{all}"), 2), (&file, &nowhere, 1), (&nowhere, &nowhere, 0)]
        {
            let variables = [("SSL_CERT_FILE", file), ("SSL_CERT_DIR", directories)];
            let environment = variables.map(|(name, value)| (name.to_owned(), value.clone())).into();
            assert_eq!(load(&environment).len(), expected, "{file} {directories}");
        }
    }
}
