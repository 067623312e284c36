//! Certificates that a kubeconfig or the pod names by path, read again when they change.
//!
//! In: a [`Config`] and the path of the certificate authorities. Out: the [`rustls::ClientConfig`] to connect with now.
//! Files are checked when a request is sent, at most once per [`RELOAD_INTERVAL`]. If a file is missing, incomplete or does
//! not match its counterpart, the previous material is kept, and the error is logged. The file is read again until it is
//! valid. If there is an exec plugin, its latest certificate is used. Upstream: client-go `transport/cert_rotation.go`.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use kube::Config;
use parking_lot::Mutex;
use rustls::{
    SignatureScheme,
    client::{ResolvesClientCert, Resumption},
    pki_types::{CertificateDer, pem::PemObject},
    sign::{CertifiedKey, SingleCertAndKey},
};
use tokio::time::Instant;

use super::{credentials::ExecPlugin, error_text::with_causes, rustls_config::rustls_config};

/// Interval between checks of the files. A pair is replaced by two writes, which are rarely further apart.
const RELOAD_INTERVAL: Duration = Duration::from_secs(10);

/// Sharing of connections among requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionSharing {
    /// Requests share one connection, where the server speaks HTTP/2.
    Shared,
    /// Each request has its own connection (HTTP/1.1). A cancelled request closes its connection, so no later request uses a
    /// dead one.
    Exclusive,
}

impl ConnectionSharing {
    /// Returns the maximum number of idle connections. If they are not shared, a dead connection must not be followed by a
    /// second one.
    pub(super) fn max_idle(self) -> usize {
        if self == Self::Shared { usize::MAX } else { 1 }
    }

    fn protocols(self) -> Vec<Vec<u8>> {
        let offered: &[&[u8]] = if self == Self::Shared { &[b"h2", b"http/1.1"] } else { &[b"http/1.1"] };
        offered.iter().map(|name| name.to_vec()).collect()
    }
}

/// TLS material as last read.
pub(super) struct KubeClientTls {
    config: Config,
    pub(super) sharing: ConnectionSharing,
    authorities: Option<PathBuf>,
    /// Plugin that issues the client certificate, if there is one.
    plugin: Option<Arc<ExecPlugin>>,
    files: Vec<PathBuf>,
    loaded: Mutex<LoadedTls>,
}

struct LoadedTls {
    config: Arc<rustls::ClientConfig>,
    /// Certificate of the plugin that the configuration contains.
    certificate: Option<Arc<CertifiedKey>>,
    /// Digest of the files that are in use.
    digest: u64,
    /// Digest of the files that were rejected and reported.
    rejected_digest: Option<u64>,
    checked_at: Instant,
}

impl KubeClientTls {
    /// Reads everything once. `authorities` replaces the certificate authorities in `config`.
    pub(super) fn load(
        mut config: Config,
        authorities: Option<PathBuf>,
        plugin: Option<Arc<ExecPlugin>>,
        sharing: ConnectionSharing,
    ) -> Result<Self, kube::Error> {
        config.root_cert_file = None;
        let user = &config.auth_info;
        let named = |data: bool, file: &Option<String>| file.as_ref().filter(|_| !data).map(PathBuf::from);
        let certificate = named(user.client_certificate_data.is_some(), &user.client_certificate);
        let key = named(user.client_key_data.is_some(), &user.client_key);
        let files: Vec<_> = [certificate, key, authorities.clone()].into_iter().flatten().collect();
        let digest = digest(&files);
        let first = build(&config, authorities.as_ref(), sharing)?;
        let loaded = LoadedTls {
            config: Arc::new(first),
            certificate: None,
            digest,
            rejected_digest: None,
            checked_at: Instant::now(),
        };
        Ok(Self { config, sharing, authorities, plugin, files, loaded: Mutex::new(loaded) })
    }

    /// Returns the configuration to connect with. It is the same `Arc` as before unless files or the certificate of the
    /// plugin have changed.
    pub(super) fn current(&self) -> Arc<rustls::ClientConfig> {
        let mut loaded = self.loaded.lock();
        if !self.files.is_empty() && loaded.checked_at.elapsed() >= RELOAD_INTERVAL {
            loaded.checked_at = Instant::now();
            let rebuild = || build(&self.config, self.authorities.as_ref(), self.sharing);
            loaded.reload_if_changed(&self.files, digest(&self.files), rebuild);
        }
        if let Some(plugin) = &self.plugin {
            loaded.set_client_certificate(plugin.certificate());
        }
        Arc::clone(&loaded.config)
    }
}

impl LoadedTls {
    /// Sets the client certificate. TLS sessions with another certificate are not resumed.
    fn set_client_certificate(&mut self, certificate: Option<Arc<CertifiedKey>>) {
        if self.certificate.as_ref().map(Arc::as_ptr) == certificate.as_ref().map(Arc::as_ptr) {
            return;
        }
        let mut config = (*self.config).clone();
        config.client_auth_cert_resolver = match &certificate {
            Some(certificate) => Arc::new(SingleCertAndKey::from(Arc::clone(certificate))),
            None => Arc::new(NoClientCertificate),
        };
        config.resumption = Resumption::default();
        (self.config, self.certificate) = (Arc::new(config), certificate);
    }

    /// Loads `files` again if their digest differs from the digest in use.
    fn reload_if_changed(
        &mut self,
        files: &[PathBuf],
        digest: u64,
        build: impl FnOnce() -> Result<rustls::ClientConfig, kube::Error>,
    ) {
        if digest == self.digest {
            self.rejected_digest = None;
            return;
        }
        match build() {
            Ok(config) => {
                tracing::info!(?files, "certificates for the API server changed, reconnecting");
                (self.config, self.digest, self.rejected_digest) = (Arc::new(config), digest, None);
                self.certificate = None;
            }
            Err(error) => {
                if self.rejected_digest.replace(digest) != Some(digest) {
                    let error = with_causes(&error);
                    tracing::warn!(
                        ?files,
                        error,
                        "changed certificates for the API server are unusable, previous certificates kept"
                    );
                }
            }
        }
    }
}

/// Resolver that presents no client certificate.
#[derive(Debug)]
struct NoClientCertificate;

impl ResolvesClientCert for NoClientCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

/// Returns a digest of the contents of `files`. An unreadable file counts as empty.
fn digest(files: &[PathBuf]) -> u64 {
    let mut hasher = DefaultHasher::new();
    files.iter().for_each(|file| fs::read(file).ok().hash(&mut hasher));
    hasher.finish()
}

fn build(
    config: &Config,
    authorities: Option<&PathBuf>,
    sharing: ConnectionSharing,
) -> Result<rustls::ClientConfig, kube::Error> {
    let mut config = config.clone();
    if let Some(path) = authorities {
        config.root_cert = Some(certificates(path).map_err(|error| kube::Error::Service(error.into()))?);
    }
    let mut tls = rustls_config(&config)?;
    tls.alpn_protocols = sharing.protocols();
    Ok(tls)
}

fn certificates(path: &PathBuf) -> Result<Vec<Vec<u8>>, String> {
    let about = |error: &dyn std::fmt::Display| format!("certificate authorities {}: {error}", path.display());
    let pem = fs::read(path).map_err(|error| about(&error))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).map(|der| der.map(|der| der.to_vec())).collect();
    let found = found.map_err(|error| about(&error))?;
    if found.is_empty() { Err(about(&"it contains no certificate")) } else { Ok(found) }
}

#[cfg(test)]
mod tests;
