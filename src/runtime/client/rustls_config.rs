//! The TLS settings of one configuration: whom to trust, and as whom to appear.
//!
//! In: a [`Config`] whose exec plugin has been taken out. Out: a [`ClientConfig`]. As `kube::client::ConfigExt::rustls_client_config`, which
//! brings along all of kube's logins, with JSON paths and regular expressions for a plugin that client-go dropped.

use std::{fs, path::Path, sync::Arc};

use k8s_openapi::ByteString;
use kube::{
    Config,
    client::RustlsTlsError,
    config::{KubeconfigError, LoadDataError},
};
use rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore, SignatureScheme, WantsVerifier,
    client::{
        WantsClientCert,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    pki_types::{
        CertificateDer, PrivateKeyDer, ServerName, UnixTime,
        pem::{self, SectionKind},
    },
};
use rustls_platform_verifier::BuilderVerifierExt;
use secrecy::ExposeSecret;
use serde_json::Value;

type ClientIdentity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Returns the TLS configuration for `config`. Certificates and keys that it names by path are read now.
pub(super) fn rustls_config(config: &Config) -> Result<ClientConfig, kube::Error> {
    let identity = identity_pem(config)?.map(|pem| identity(&pem)).transpose().map_err(kube::Error::RustlsTls)?;
    let builder = trust(ClientConfig::builder(), config.root_cert.as_deref()).map_err(kube::Error::RustlsTls)?;
    let mut tls = match identity {
        Some((chain, key)) => {
            let built = builder.with_client_auth_cert(chain, key);
            built.map_err(|error| kube::Error::RustlsTls(RustlsTlsError::InvalidPrivateKey(error)))?
        }
        None => builder.with_no_client_auth(),
    };
    if config.accept_invalid_certs {
        tls.dangerous().set_certificate_verifier(Arc::new(AnyServer));
    }
    Ok(tls)
}

/// Trusts the authorities of the kubeconfig or, without any, those of the system.
fn trust(
    builder: ConfigBuilder<ClientConfig, WantsVerifier>,
    authorities: Option<&[Vec<u8>]>,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, RustlsTlsError> {
    let Some(authorities) = authorities else {
        return builder.with_platform_verifier().map_err(|error| RustlsTlsError::AddRootCertificate(error.into()));
    };
    let mut store = RootCertStore::empty();
    for der in authorities {
        let added = store.add(CertificateDer::from(der.clone()));
        added.map_err(|error| RustlsTlsError::AddRootCertificate(error.into()))?;
    }
    Ok(builder.with_root_certificates(store))
}

/// Returns key and certificate, one after the other.
fn identity_pem(config: &Config) -> Result<Option<Vec<u8>>, kube::Error> {
    let user = &config.auth_info;
    let certificate = read(user.client_certificate_data.as_deref(), user.client_certificate.as_deref());
    let certificate = certificate.map_err(|error| error.about("certificate", KubeconfigError::LoadClientCertificate))?;
    let key = read(user.client_key_data.as_ref().map(ExposeSecret::expose_secret), user.client_key.as_deref());
    let key = key.map_err(|error| error.about("key", KubeconfigError::LoadClientKey))?;
    match (certificate, key) {
        (None, None) => Ok(None),
        (Some(_), None) => Err(KubeconfigError::LoadClientKey(LoadDataError::NoBase64DataOrFile).into()),
        (None, Some(_)) => Err(KubeconfigError::LoadClientCertificate(LoadDataError::NoBase64DataOrFile).into()),
        (Some(certificate), Some(key)) => Ok(Some([key, certificate].concat())),
    }
}

enum UnreadIdentity {
    File(LoadDataError),
    Base64,
}

impl UnreadIdentity {
    fn about(self, subject: &str, wrap: fn(LoadDataError) -> KubeconfigError) -> kube::Error {
        match self {
            Self::File(error) => wrap(error).into(),
            Self::Base64 => kube::Error::Service(format!("failed to load client {subject}: it is not base64").into()),
        }
    }
}

/// Returns the inline data of the kubeconfig, else the content of the file that it names.
fn read(data: Option<&str>, file: Option<&str>) -> Result<Option<Vec<u8>>, UnreadIdentity> {
    let read = match (data, file) {
        (Some(data), _) => {
            let decoded: Result<ByteString, _> = serde_json::from_value(Value::from(data));
            decoded.map_err(|_| UnreadIdentity::Base64)?.0
        }
        (None, Some(path)) => {
            let path = Path::new(path);
            fs::read(path).map_err(|error| UnreadIdentity::File(LoadDataError::ReadFile(error, path.into())))?
        }
        (None, None) => return Ok(None),
    };
    Ok(Some(with_newline(read)))
}

fn with_newline(mut pem: Vec<u8>) -> Vec<u8> {
    if pem.last().is_some_and(|last| *last != b'\n') {
        pem.push(b'\n');
    }
    pem
}

fn identity(mut text: &[u8]) -> Result<ClientIdentity, RustlsTlsError> {
    let mut chain = Vec::new();
    let (mut pkcs8, mut pkcs1, mut sec1) = (None, None, None);
    while let Some((kind, der)) = pem::from_buf(&mut text).map_err(RustlsTlsError::InvalidIdentityPem)? {
        match kind {
            SectionKind::Certificate => chain.push(CertificateDer::from(der)),
            SectionKind::PrivateKey => pkcs8 = Some(PrivateKeyDer::Pkcs8(der.into())),
            SectionKind::RsaPrivateKey => pkcs1 = Some(PrivateKeyDer::Pkcs1(der.into())),
            SectionKind::EcPrivateKey => sec1 = Some(PrivateKeyDer::Sec1(der.into())),
            _ => return Err(RustlsTlsError::UnknownPrivateKeyFormat),
        }
    }
    let key = pkcs8.or(pkcs1).or(sec1).ok_or(RustlsTlsError::MissingPrivateKey)?;
    if chain.is_empty() { Err(RustlsTlsError::MissingCertificate) } else { Ok((chain, key)) }
}

/// `insecure-skip-tls-verify`: every server is the right one.
#[derive(Debug)]
struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        tracing::warn!("the server's certificate is not checked, as configured");
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![
            SignatureScheme::RSA_PKCS1_SHA1,
            SignatureScheme::ECDSA_SHA1_Legacy,
            SignatureScheme::RSA_PKCS1_SHA256,
            SignatureScheme::ECDSA_NISTP256_SHA256,
            SignatureScheme::RSA_PKCS1_SHA384,
            SignatureScheme::ECDSA_NISTP384_SHA384,
            SignatureScheme::RSA_PKCS1_SHA512,
            SignatureScheme::ECDSA_NISTP521_SHA512,
            SignatureScheme::RSA_PSS_SHA256,
            SignatureScheme::RSA_PSS_SHA384,
            SignatureScheme::RSA_PSS_SHA512,
            SignatureScheme::ED25519,
            SignatureScheme::ED448,
        ]
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;
    use crate::runtime::client::error_text::with_causes;

    fn config() -> Config {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        Config::new("https://api".parse().unwrap())
    }

    fn base64(text: &str) -> String {
        let written = serde_json::to_value(ByteString(text.as_bytes().to_vec())).unwrap();
        written.as_str().unwrap().to_owned()
    }

    #[test]
    fn the_system_is_trusted_unless_authorities_are_named() {
        assert!(rustls_config(&config()).is_ok_and(|tls| !tls.client_auth_cert_resolver.has_certs()));
        let mut bad = config();
        bad.root_cert = Some(vec![b"none".to_vec()]);
        assert!(rustls_config(&bad).unwrap_err().to_string().contains("root certificate"));
    }

    #[test]
    fn data_goes_before_files_and_halves_are_refused() {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap().pem();
        let mut whole = config();
        whole.auth_info.client_certificate_data = Some(base64(&certificate));
        whole.auth_info.client_certificate = Some("/nowhere".to_owned());
        whole.auth_info.client_key_data = Some(base64(key.serialize_pem().trim_end()).into());
        assert!(rustls_config(&whole).unwrap().client_auth_cert_resolver.has_certs());

        let told = |change: fn(&mut Config)| {
            let mut config = whole.clone();
            change(&mut config);
            with_causes(&rustls_config(&config).unwrap_err())
        };
        assert!(told(|it| it.auth_info.client_key_data = None).contains("failed to load client key"));
        assert!(told(|it| it.auth_info.client_certificate_data = None).contains("/nowhere"));
        assert!(told(|it| it.auth_info.client_certificate_data = Some("!".to_owned())).contains("not base64"));
    }
}
