//! Certificate authorities, and the certificates that they sign. Input: names. Output: clients with certificates, and pairs of files for
//! the server.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use reqwest::Client;

/// CA that signs certificates.
pub(crate) struct Authority {
    pub(crate) issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

pub(crate) fn params(common_name: &str, organization: Option<&str>, names: &[&str]) -> CertificateParams {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    organization.into_iter().for_each(|name| params.distinguished_name.push(DnType::OrganizationName, name));
    params
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = params(name, None, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Returns a client with a certificate.
    pub(crate) fn client(&self, name: &str, organization: Option<&str>) -> Client {
        let key = KeyPair::generate().unwrap();
        let mut params = params(name, organization, &[]);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let pem = params.signed_by(&key, &self.issuer).unwrap().pem() + &key.serialize_pem();
        let identity = reqwest::Identity::from_pem(pem.as_bytes()).unwrap();
        reqwest::ClientBuilder::new().danger_accept_invalid_certs(true).identity(identity).build().unwrap()
    }

    pub(crate) fn write_server(&self, directory: &Path, name: &str) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let cert = params(name, None, &[name]).signed_by(&key, &self.issuer).unwrap().pem();
        let (cert_file, key_file) = (directory.join("tls.crt"), directory.join("tls.key"));
        std::fs::create_dir_all(directory).unwrap();
        std::fs::write(&cert_file, cert).unwrap();
        std::fs::write(&key_file, key.serialize_pem()).unwrap();
        (cert_file, key_file)
    }
}

/// Returns a client that trusts only this CA, and resolves the name to the address.
pub(crate) fn trusting(authority: &Authority, name: &str, address: SocketAddr) -> Client {
    let root = reqwest::Certificate::from_pem(authority.pem.as_bytes()).unwrap();
    reqwest::ClientBuilder::new().tls_certs_only([root]).resolve(name, address).build().unwrap()
}
