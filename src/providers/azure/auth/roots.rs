//! Trusted certificate authorities: the machine's, found where Go finds them.
//!
//! In: `SSL_CERT_FILE` and `SSL_CERT_DIR`, each of which replaces its own list of usual paths and not the other's; files.
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

/// The first that can be read counts.
const FILES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
const DIRECTORIES: &[&str] = &["/etc/ssl/certs", "/etc/pki/tls/certs"];

/// Paths that are searched for authorities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RootCertificatePaths {
    files: Vec<PathBuf>,
    directories: Vec<PathBuf>,
}

impl RootCertificatePaths {
    /// Returns the usual places, or those of the environment.
    pub(super) fn from_environment(environment: &BTreeMap<String, String>) -> Self {
        let read = |name: &str| environment.get(name).filter(|value| !value.is_empty());
        let usual = |list: &[&str]| list.iter().map(PathBuf::from).collect();
        Self {
            files: read("SSL_CERT_FILE").map_or_else(|| usual(FILES), |file| vec![PathBuf::from(file)]),
            directories: read("SSL_CERT_DIR")
                .map_or_else(|| usual(DIRECTORIES), |list| std::env::split_paths(list).collect()),
        }
    }

    /// Reads them. What cannot be read or is not a certificate is passed over; nothing found is worth a warning.
    pub(super) fn load(&self) -> RootCertStore {
        let entries = self.directories.iter().filter_map(|directory| fs::read_dir(directory).ok());
        let listed = entries.flatten().filter_map(|entry| fs::read(entry.ok()?.path()).ok());
        let first = self.files.iter().find_map(|file| fs::read(file).ok());
        let certificates: BTreeSet<_> = first.into_iter().chain(listed).flat_map(|file| certificates(&file)).collect();
        let mut store = RootCertStore::empty();
        let (added, _) = store.add_parsable_certificates(certificates.into_iter().map(CertificateDer::from));
        if added == 0 {
            tracing::warn!(
                files = ?self.files, directories = ?self.directories,
                "no certificate authority found: every TLS connection will fail; set SSL_CERT_FILE or SSL_CERT_DIR"
            );
        }
        store
    }
}

fn certificates(file: &[u8]) -> Vec<Vec<u8>> {
    CertificateDer::pem_slice_iter(file).filter_map(Result::ok).map(|certificate| certificate.to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::azure::auth::tests::certificates::make;

    fn places(variables: &[(&str, &str)]) -> RootCertificatePaths {
        let environment = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        RootCertificatePaths::from_environment(&environment)
    }

    #[test]
    fn each_variable_replaces_its_own_list() {
        let usual = places(&[]);
        assert_eq!((usual.files.len(), usual.directories.len()), (FILES.len(), DIRECTORIES.len()));
        let file = places(&[("SSL_CERT_FILE", "/my.pem")]);
        assert_eq!(file, RootCertificatePaths { files: vec!["/my.pem".into()], directories: usual.directories });
        let directory = places(&[("SSL_CERT_DIR", "/a:/b"), ("SSL_CERT_FILE", "")]);
        assert_eq!(directory, RootCertificatePaths { files: usual.files, directories: vec!["/a".into(), "/b".into()] });
    }

    #[test]
    fn every_file_of_a_directory_counts_once_and_rubbish_is_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let (one, two) = (make("").other_pem, make("").other_pem);
        for (name, text) in [("one.pem", &one), ("copy-of-one", &one), ("two.crt", &two), ("readme", &"hello".to_owned())] {
            fs::write(directory.path().join(name), text).unwrap();
        }
        let nowhere = directory.path().join("missing");
        let file = directory.path().join("two.crt");
        let found = |file: &PathBuf, directories: &PathBuf| {
            let places =
                RootCertificatePaths { files: vec![nowhere.clone(), file.clone()], directories: vec![directories.clone()] };
            places.load().len()
        };
        assert_eq!(found(&nowhere, &directory.path().to_owned()), 2);
        assert_eq!(found(&file, &nowhere), 1);
        assert_eq!(found(&nowhere, &nowhere), 0);
    }
}
