//! Users by client certificate: the common name is the user, organizations are the groups.
//!
//! In: a certificate chain and the CAs for clients. Out: the user (`CommonNameUserConversion` in
//! `k8s.io/apiserver/pkg/authentication/request/x509/x509.go`), none, or the reason why the chain is not trusted.

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{
    ca_bundle::CaBundle,
    user::{AuthenticationResult, RequestUser},
};

/// Subject of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CertificateSubject {
    pub(super) common_name: String,
    pub(super) organizations: Vec<String>,
}

/// Parses the subject. Of several common names, the last one is used, as in Go.
pub(super) fn subject(der: &[u8]) -> Result<CertificateSubject, String> {
    let (_, cert) = X509Certificate::from_der(der).map_err(|error| format!("the certificate is malformed: {error}"))?;
    let common_name = cert.subject().iter_common_name().filter_map(|name| name.as_str().ok()).last().unwrap_or_default();
    let organizations = cert.subject().iter_organization().filter_map(|name| name.as_str().ok()).map(str::to_owned);
    Ok(CertificateSubject { common_name: common_name.to_owned(), organizations: organizations.collect() })
}

/// Returns the user that a chain represents.
pub(super) fn identify(chain: &[CertificateDer<'static>], bundle: &CaBundle, now: Timestamp) -> AuthenticationResult {
    let Some(leaf) = chain.first() else { return Ok(None) };
    bundle.verify(chain, now).map_err(|error| format!("the client certificate is not trusted: {error}"))?;
    let subject = subject(leaf)?;
    if subject.common_name.is_empty() {
        return Ok(None);
    }
    Ok(Some(RequestUser { name: subject.common_name, groups: subject.organizations, ..Default::default() }))
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

    use super::*;

    fn params(names: &[(DnType, &str)]) -> CertificateParams {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        names.iter().for_each(|(kind, name)| params.distinguished_name.push(kind.clone(), *name));
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(2026, 1, 1), rcgen::date_time_ymd(2027, 1, 1));
        params
    }

    fn authority() -> (Issuer<'static, KeyPair>, CaBundle) {
        let key = KeyPair::generate().unwrap();
        let mut params = params(&[(DnType::CommonName, "ca")]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let bundle = CaBundle::parse(params.self_signed(&key).unwrap().pem().as_bytes()).unwrap();
        (Issuer::new(params, key), bundle)
    }

    #[test]
    fn chains_are_verified_and_name_the_user() {
        let ((issuer, bundle), (other_issuer, _)) = (authority(), authority());
        let ann = [(DnType::CommonName, "ann"), (DnType::OrganizationName, "dev")];
        let sign = |names: &[(DnType, &str)], usage, issuer| {
            let mut params = params(names);
            params.extended_key_usages = vec![usage];
            vec![params.signed_by(&KeyPair::generate().unwrap(), issuer).unwrap().der().clone()]
        };
        let user = RequestUser { name: "ann".to_owned(), groups: vec!["dev".to_owned()], ..Default::default() };
        let client = ExtendedKeyUsagePurpose::ClientAuth;
        let rows = [
            ("no certificate", Vec::new(), "2026-06-01T00:00:00Z", Ok(None)),
            ("good", sign(&ann, client.clone(), &issuer), "2026-06-01T00:00:00Z", Ok(Some(user))),
            ("expired", sign(&ann, client.clone(), &issuer), "2027-06-01T00:00:00Z", Err(())),
            ("another CA", sign(&ann, client.clone(), &other_issuer), "2026-06-01T00:00:00Z", Err(())),
            ("for servers", sign(&ann, ExtendedKeyUsagePurpose::ServerAuth, &issuer), "2026-06-01T00:00:00Z", Err(())),
            ("nameless", sign(&[(DnType::OrganizationName, "dev")], client, &issuer), "2026-06-01T00:00:00Z", Ok(None)),
        ];
        for (name, chain, now, expected) in rows {
            assert_eq!(identify(&chain, &bundle, now.parse().unwrap()).map_err(|_| ()), expected, "{name}");
        }
    }
}
