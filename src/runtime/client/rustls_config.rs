//! TLS settings of one configuration: trusted authorities, and the client certificate.
//!
//! In: a [`Config`] without its exec plugin. Out: a [`ClientConfig`]. It replaces
//! `kube::client::ConfigExt::rustls_client_config`, which would link all of kube's logins, with JSON paths and regular
//! expressions for a plugin that client-go dropped.

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
    crypto::aws_lc_rs,
    pki_types::{
        CertificateDer, PrivateKeyDer, ServerName, UnixTime,
        pem::{self, PemObject},
    },
};
use rustls_platform_verifier::BuilderVerifierExt;
use secrecy::ExposeSecret;
use serde_json::Value;

type ClientIdentity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Returns the TLS configuration for `config`. Certificates and keys that it names by path are read now.
pub(super) fn rustls_config(config: &Config) -> Result<ClientConfig, kube::Error> {
    let identity = identity(config)?;
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

/// Returns the certificates and the key of the client, if it has some.
fn identity(config: &Config) -> Result<Option<ClientIdentity>, kube::Error> {
    let user = &config.auth_info;
    let (inline, file) = (user.client_certificate_data.as_deref(), user.client_certificate.as_deref());
    let certificate = read(inline, file, "certificate", KubeconfigError::LoadClientCertificate)?;
    let (inline, file) = (user.client_key_data.as_ref().map(ExposeSecret::expose_secret), user.client_key.as_deref());
    let key = read(inline, file, "key", KubeconfigError::LoadClientKey)?;
    match (certificate, key) {
        (None, None) => Ok(None),
        (Some(_), None) => Err(KubeconfigError::LoadClientKey(LoadDataError::NoBase64DataOrFile).into()),
        (None, Some(_)) => Err(KubeconfigError::LoadClientCertificate(LoadDataError::NoBase64DataOrFile).into()),
        (Some(certificate), Some(key)) => parse(&certificate, &key).map(Some).map_err(kube::Error::RustlsTls),
    }
}

/// Returns the inline data of the kubeconfig, else the content of the file that it names.
fn read(
    data: Option<&str>,
    file: Option<&str>,
    subject: &str,
    unreadable: fn(LoadDataError) -> KubeconfigError,
) -> Result<Option<Vec<u8>>, kube::Error> {
    match (data, file) {
        (Some(data), _) => {
            let decoded: Result<ByteString, _> = serde_json::from_value(Value::from(data));
            let invalid = |_| kube::Error::Service(format!("failed to load client {subject}: it is not base64").into());
            decoded.map(|decoded| Some(decoded.0)).map_err(invalid)
        }
        (None, Some(path)) => {
            let text = fs::read(path).map_err(|error| unreadable(LoadDataError::ReadFile(error, Path::new(path).into())))?;
            Ok(Some(text))
        }
        (None, None) => Ok(None),
    }
}

fn parse(certificate: &[u8], key: &[u8]) -> Result<ClientIdentity, RustlsTlsError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
    let chain = chain.map_err(RustlsTlsError::InvalidIdentityPem)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| match error {
        pem::Error::NoItemsFound => RustlsTlsError::MissingPrivateKey,
        error => RustlsTlsError::InvalidIdentityPem(error),
    })?;
    if chain.is_empty() { Err(RustlsTlsError::MissingCertificate) } else { Ok((chain, key)) }
}

/// Verifier for `insecure-skip-tls-verify`, which accepts every server.
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
        aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
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
        let mut invalid = config();
        invalid.root_cert = Some(vec![b"none".to_vec()]);
        assert!(rustls_config(&invalid).unwrap_err().to_string().contains("root certificate"));
    }

    #[test]
    fn data_precedes_files_and_incomplete_pairs_are_refused() {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap().pem();
        let mut whole = config();
        whole.auth_info.client_certificate_data = Some(base64(&certificate));
        whole.auth_info.client_certificate = Some("/nowhere".to_owned());
        whole.auth_info.client_key_data = Some(base64(key.serialize_pem().trim_end()).into());
        assert!(rustls_config(&whole).unwrap().client_auth_cert_resolver.has_certs());

        let error_after = |change: fn(&mut Config)| {
            let mut config = whole.clone();
            change(&mut config);
            with_causes(&rustls_config(&config).unwrap_err())
        };
        assert!(error_after(|it| it.auth_info.client_key_data = None).contains("failed to load client key"));
        assert!(error_after(|it| it.auth_info.client_certificate_data = None).contains("/nowhere"));
        assert!(error_after(|it| it.auth_info.client_certificate_data = Some("!".to_owned())).contains("not base64"));
    }
}
