//! Certificates that a kubeconfig or the pod names by path, read again when they change.
//!
//! In: a [`Config`] and the path of the certificate authorities. Out: the [`rustls::ClientConfig`] to connect with now. Files are looked
//! at when a request leaves, at most once in [`LOOK_EVERY`]. A file that is missing, half written or does not fit its counterpart keeps
//! what was used before, and says so. Upstream: client-go `transport/cert_rotation.go`.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use kube::{Config, client::ConfigExt};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use tokio::time::Instant;

use super::with_causes;

/// How often files are looked at. A pair is replaced by two writes, which are rarely further apart.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The material as last read.
pub(super) struct Tls {
    config: Config,
    authorities: Option<PathBuf>,
    files: Vec<PathBuf>,
    loaded: Mutex<Loaded>,
}

struct Loaded {
    config: Arc<rustls::ClientConfig>,
    /// What the files said when they were last tried, whether or not that could be used.
    digest: u64,
    looked: Instant,
}

impl Tls {
    /// Reads everything once. `authorities` replaces the certificate authorities in `config`.
    pub(super) fn load(mut config: Config, authorities: Option<PathBuf>) -> Result<Self, kube::Error> {
        config.root_cert_file = None;
        let user = &config.auth_info;
        let named = |data: bool, file: &Option<String>| file.as_ref().filter(|_| !data).map(PathBuf::from);
        let certificate = named(user.client_certificate_data.is_some(), &user.client_certificate);
        let key = named(user.client_key_data.is_some(), &user.client_key);
        let files: Vec<_> = [certificate, key, authorities.clone()].into_iter().flatten().collect();
        let digest = digest(&files);
        let first = build(&config, authorities.as_ref())?;
        let loaded = Mutex::new(Loaded { config: Arc::new(first), digest, looked: Instant::now() });
        Ok(Self { config, authorities, files, loaded })
    }

    /// What to connect with now. The same `Arc` as before unless files have changed.
    pub(super) fn current(&self) -> Arc<rustls::ClientConfig> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.files.is_empty() && loaded.looked.elapsed() >= LOOK_EVERY {
            loaded.looked = Instant::now();
            self.look(&mut loaded);
        }
        Arc::clone(&loaded.config)
    }

    fn look(&self, loaded: &mut Loaded) {
        let digest = digest(&self.files);
        if digest == loaded.digest {
            return;
        }
        loaded.digest = digest;
        match build(&self.config, self.authorities.as_ref()) {
            Ok(config) => {
                tracing::info!(files = ?self.files, "certificates for the API server have changed, connecting anew");
                loaded.config = Arc::new(config);
            }
            Err(error) => tracing::warn!(
                files = ?self.files,
                error = with_causes(&error),
                "changed certificates for the API server cannot be used, the earlier ones stay in use"
            ),
        }
    }
}

/// Changes with the contents of any of `files`. An unreadable file counts as one with no contents.
fn digest(files: &[PathBuf]) -> u64 {
    let mut hasher = DefaultHasher::new();
    files.iter().for_each(|file| fs::read(file).ok().hash(&mut hasher));
    hasher.finish()
}

/// The client's certificate and key are read by kube, which knows the kubeconfig's ways to give them.
fn build(config: &Config, authorities: Option<&PathBuf>) -> Result<rustls::ClientConfig, kube::Error> {
    let mut config = config.clone();
    if let Some(path) = authorities {
        config.root_cert = Some(certificates(path).map_err(|error| kube::Error::Service(error.into()))?);
    }
    let mut tls = config.rustls_client_config()?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(tls)
}

fn certificates(path: &PathBuf) -> Result<Vec<Vec<u8>>, String> {
    let about = |error: &dyn std::fmt::Display| format!("certificate authorities {}: {error}", path.display());
    let pem = fs::read(path).map_err(|error| about(&error))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).map(|der| der.map(|der| der.to_vec())).collect();
    let found = found.map_err(|error| about(&error))?;
    if found.is_empty() { Err(about(&"there is no certificate in it")) } else { Ok(found) }
}

#[cfg(test)]
mod tests;
