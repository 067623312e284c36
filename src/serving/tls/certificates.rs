//! Selects the certificate of a handshake, and keeps certificates up to date.
//!
//! In: files or a bind address to certify. Out: the pair for the requested server name. Files are read again at every
//! interval by path, so that a Secret mount that swaps a whole directory is followed; an unusable pair leaves the old one.

use std::{
    fmt,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use jiff::{SignedDuration, Timestamp};
use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use super::key_pair::{self, CertificateKeyPair, PemKeyPair};
use crate::{
    metrics::GaugeVec,
    runtime::{clock::Clock, new_file, shutdown::Shutdown},
    serving::{config::SecureServingConfig, error::ServingError},
};

/// A pair in memory is valid for a year and replaced well before that.
const RENEW_AFTER: SignedDuration = SignedDuration::from_hours(300 * 24);

/// Flag of the folder for a pair that this program makes.
const CERT_DIR: &str = "cert-dir";

enum CertificateSource {
    Files {
        cert: PathBuf,
        key: PathBuf,
        /// Whether they are in `--cert-dir`, so that this program may have made them.
        in_cert_dir: bool,
    },
    Memory {
        bind_address: IpAddr,
        own_names: Vec<String>,
        created: ArcSwap<Timestamp>,
    },
}

struct CertificateSlot {
    source: CertificateSource,
    /// Names given by the operator; empty means those of the certificate.
    patterns: Vec<String>,
    pair: ArcSwap<CertificateKeyPair>,
}

/// The certificates in use. The first is the default, the others serve the names they match.
pub(crate) struct ServingCertificates {
    slots: Vec<CertificateSlot>,
    clock: Clock,
}

impl fmt::Debug for ServingCertificates {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Certificates").field("count", &self.slots.len()).finish_non_exhaustive()
    }
}

impl ServingCertificates {
    /// Reads or makes everything once. Here a bad file is an error, later it is only logged.
    pub(crate) async fn load(config: &SecureServingConfig, clock: Clock) -> Result<Arc<Self>, ServingError> {
        let mut slots = vec![default_slot(config, clock).await?];
        for sni in &config.tls_sni_cert_key {
            let patterns = sni.patterns.iter().map(|pattern| pattern.to_ascii_lowercase()).collect();
            slots.push(file_slot("tls-sni-cert-key", sni.cert_file.clone(), sni.key_file.clone(), patterns).await?);
        }
        Ok(Arc::new(Self { slots, clock }))
    }

    /// Returns the Unix time at which the first of them expires.
    pub(crate) fn expire(&self) -> i64 {
        self.slots.iter().map(|slot| slot.pair.load().expires).min().unwrap_or_default()
    }

    /// Returns the PEM of the authority of the default certificate, if this program created it.
    pub(crate) fn own_authority(&self) -> Option<String> {
        let slot =
            self.slots.first().filter(|slot| !matches!(slot.source, CertificateSource::Files { in_cert_dir: false, .. }))?;
        key_pair::last_certificate(&slot.pair.load().pem.cert)
    }

    /// Looks at everything again at every interval, until the shutdown begins, and keeps `gauge`, if there is one, at the
    /// first end of a certificate.
    pub(crate) async fn reload(self: Arc<Self>, interval: Duration, gauge: Option<GaugeVec>, shutdown: Shutdown) {
        loop {
            #[expect(clippy::cast_precision_loss, reason = "a time is far below 2⁵³")]
            gauge.iter().for_each(|gauge| gauge.with_label_values::<&str>(&[]).set(self.expire() as f64));
            if shutdown.run_until_begun(tokio::time::sleep(interval)).await.is_none() {
                return;
            }
            for slot in &self.slots {
                if let Err(error) = slot.refresh(self.clock.wall()).await {
                    tracing::error!(%error, "New serving certificate unusable; previous certificate kept");
                }
            }
        }
    }

    fn find(&self, server_name: Option<&str>) -> Option<Arc<CertifiedKey>> {
        let named = server_name.map(str::to_ascii_lowercase).and_then(|name| {
            let serves = |slot: &&CertificateSlot| slot.serves(&name);
            self.slots.iter().skip(1).find(serves)
        });
        named.or(self.slots.first()).map(|slot| Arc::clone(&slot.pair.load().key))
    }
}

impl ResolvesServerCert for ServingCertificates {
    fn resolve(&self, client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.find(client_hello.server_name())
    }
}

impl CertificateSlot {
    fn serves(&self, name: &str) -> bool {
        let pair = self.pair.load();
        let patterns = if self.patterns.is_empty() { &pair.names } else { &self.patterns };
        patterns.iter().any(|pattern| matches(pattern, name))
    }

    async fn refresh(&self, now: Timestamp) -> Result<(), String> {
        match &self.source {
            CertificateSource::Files { cert, key, .. } => {
                let pem = read(cert, key).await?;
                if pem != self.pair.load().pem {
                    let pair = key_pair::parse(pem).map_err(|error| format!("{}: {error}", cert.display()))?;
                    self.pair.store(Arc::new(pair));
                    tracing::info!(certificate = %cert.display(), "Reloaded serving certificate");
                }
            }
            CertificateSource::Memory { bind_address, own_names, created } => {
                if now.duration_since(**created.load()) >= RENEW_AFTER {
                    self.pair.store(Arc::new(generate(*bind_address, own_names, now)?));
                    created.store(Arc::new(now));
                }
            }
        }
        Ok(())
    }
}

/// Returns `true` if a pattern (`name` or `*.rest`, one label for the star) covers a name.
fn matches(pattern: &str, name: &str) -> bool {
    let wildcard = || Some(name.split_once('.')?.1 == pattern.strip_prefix("*.")?);
    pattern == name || wildcard().unwrap_or(false)
}

async fn default_slot(config: &SecureServingConfig, clock: Clock) -> Result<CertificateSlot, ServingError> {
    if let (Some(cert), Some(key)) = (&config.tls_cert_file, &config.tls_private_key_file) {
        return file_slot("tls-cert-file", cert.clone(), key.clone(), Vec::new()).await;
    }
    let now = clock.wall();
    if let Some(directory) = &config.cert_dir {
        let (cert, key) = cert_dir_pair(directory, config, now).await?;
        return file_slot(CERT_DIR, cert, key, Vec::new()).await;
    }
    let (bind_address, own_names) = (config.bind_address, config.own_names.clone());
    let pair = generate(bind_address, &own_names, now).map_err(|reason| ServingError::setting(CERT_DIR, reason))?;
    let source = CertificateSource::Memory { bind_address, own_names, created: ArcSwap::from_pointee(now) };
    Ok(CertificateSlot { source, patterns: Vec::new(), pair: ArcSwap::from_pointee(pair) })
}

fn generate(bind_address: IpAddr, own_names: &[String], now: Timestamp) -> Result<CertificateKeyPair, String> {
    let pem =
        key_pair::generate(bind_address, own_names, now).map_err(|error| format!("cannot make a certificate: {error}"))?;
    key_pair::parse(pem)
}

async fn file_slot(
    flag: &'static str,
    cert: PathBuf,
    key: PathBuf,
    patterns: Vec<String>,
) -> Result<CertificateSlot, ServingError> {
    let invalid_setting = |reason| ServingError::setting(flag, reason);
    let pem = read(&cert, &key).await.map_err(invalid_setting)?;
    let pair =
        key_pair::parse(pem).map_err(|error| invalid_setting(format!("{}, {}: {error}", cert.display(), key.display())))?;
    let source = CertificateSource::Files { cert, key, in_cert_dir: flag == CERT_DIR };
    Ok(CertificateSlot { source, patterns, pair: ArcSwap::from_pointee(pair) })
}

async fn read(cert: &Path, key: &Path) -> Result<PemKeyPair, String> {
    let read =
        async |path: &Path| tokio::fs::read(path).await.map_err(|error| format!("cannot read {}: {error}", path.display()));
    Ok(PemKeyPair { cert: read(cert).await?, key: read(key).await? })
}

/// Returns the files of `--cert-dir`, created first if neither can be read. One without the other is an error, as upstream.
async fn cert_dir_pair(
    directory: &Path,
    config: &SecureServingConfig,
    now: Timestamp,
) -> Result<(PathBuf, PathBuf), ServingError> {
    let name = config.pair_name;
    let (cert, key) = (directory.join(format!("{name}.crt")), directory.join(format!("{name}.key")));
    let readable = (tokio::fs::read(&cert).await.is_ok(), tokio::fs::read(&key).await.is_ok());
    let invalid_setting = |reason: String| ServingError::setting(CERT_DIR, reason);
    let unreadable = |file: &Path, role: &str| invalid_setting(format!("cannot read {}, {role} beside it", file.display()));
    match readable {
        (true, true) => {}
        (true, false) => return Err(unreadable(&key, "the key of the certificate")),
        (false, true) => return Err(unreadable(&cert, "the certificate of the key")),
        (false, false) => {
            let pem = key_pair::generate(config.bind_address, &config.own_names, now)
                .map_err(|error| invalid_setting(error.to_string()))?;
            write(directory, &cert, &key, &pem).map_err(|error| {
                invalid_setting(format!("cannot write a certificate into {}: {error}", directory.display()))
            })?;
        }
    }
    Ok((cert, key))
}

/// Writes both files, or neither.
///
/// After only one, the next start would report the other as missing, and report a full disk as that forever. Only a crash
/// between the two renames leaves a key without a certificate.
fn write(directory: &Path, cert: &Path, key: &Path, pem: &PemKeyPair) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let (new_key, new_cert) = (beside(key), beside(cert));
    let written = put(&new_key, &pem.key, new_file::OWNER_ONLY)
        .and_then(|()| put(&new_cert, &pem.cert, 0o666))
        .and_then(|()| std::fs::rename(&new_key, key))
        .and_then(|()| std::fs::rename(&new_cert, cert));
    if written.is_err() {
        // Those that are not there need no removal.
        let _ = (std::fs::remove_file(new_key), std::fs::remove_file(new_cert));
    }
    written
}

/// Returns the path that a file is written to before its rename.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(format!(".{}.tmp", std::process::id()));
    name.into()
}

fn put(path: &Path, text: &[u8], mode: u32) -> std::io::Result<()> {
    use std::io::Write;
    new_file::open(path, std::fs::OpenOptions::new().create(true).truncate(true), mode)?.write_all(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let rows = [
            ("a.example.com", "a.example.com", true),
            ("*.example.com", "a.example.com", true),
            ("*.example.com", "b.a.example.com", false),
            ("*.example.com", "example.com", false),
            ("example.com", "a.example.com", false),
            ("*", "example", false),
        ];
        for (pattern, name, expected) in rows {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_pair_in_memory_is_renewed_before_it_ends() {
        let clock = Clock::manual(now());
        let slot = default_slot(&SecureServingConfig::default(), clock).await.unwrap();
        let first = slot.pair.load().pem.cert.clone();
        let days = |count: i64| now() + SignedDuration::from_hours(24 * count);
        slot.refresh(days(299)).await.unwrap();
        assert!(slot.pair.load().pem.cert == first);
        slot.refresh(days(300)).await.unwrap();
        assert!(slot.pair.load().pem.cert != first);
    }

    #[tokio::test]
    async fn cert_dir_is_filled_once_and_half_a_pair_is_an_error() {
        assert_eq!(SecureServingConfig::default().pair_name, "cloud-controller-manager");
        let directory = tempfile::tempdir().unwrap();
        let created = directory.path().join("made");
        let config = SecureServingConfig { cert_dir: Some(created), pair_name: "cloud-node-manager", ..Default::default() };
        let first = ServingCertificates::load(&config, Clock::System).await.unwrap();
        let second = ServingCertificates::load(&config, Clock::System).await.unwrap();
        assert!(first.slots[0].pair.load().pem == second.slots[0].pair.load().pem);
        let key = directory.path().join("made/cloud-node-manager.key");
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&key).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        std::fs::remove_file(key).unwrap();
        let error = ServingCertificates::load(&config, Clock::System).await.unwrap_err().to_string();
        assert!(error.starts_with("--cert-dir: cannot read"), "{error}");
    }

    #[tokio::test]
    async fn a_full_disk_is_reported_and_leaves_no_partial_pair() {
        let directory = tempfile::tempdir().unwrap();
        let config = SecureServingConfig { cert_dir: Some(directory.path().to_owned()), ..Default::default() };
        for file in ["cloud-controller-manager.crt", "cloud-controller-manager.key"] {
            std::os::unix::fs::symlink("/dev/full", beside(&directory.path().join(file))).unwrap();
            let error = ServingCertificates::load(&config, Clock::System).await.unwrap_err().to_string();
            let expected = format!("--cert-dir: cannot write a certificate into {}: No space", directory.path().display());
            assert!(error.starts_with(&expected), "{error}");
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "{file}");
        }
        ServingCertificates::load(&config, Clock::System).await.unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[tokio::test]
    async fn an_invalid_new_file_keeps_the_old_pair() {
        let directory = tempfile::tempdir().unwrap();
        let (cert, key) = (directory.path().join("a.crt"), directory.path().join("a.key"));
        let put = |pem: &PemKeyPair| write(directory.path(), &cert, &key, pem).unwrap();
        let (old, new) =
            (key_pair::generate([0; 4].into(), &[], now()).unwrap(), key_pair::generate([0; 4].into(), &[], now()).unwrap());
        put(&old);
        let slot = file_slot("tls-cert-file", cert.clone(), key.clone(), Vec::new()).await.unwrap();
        put(&PemKeyPair { cert: new.cert.clone(), key: old.key.clone() });
        assert!(slot.refresh(now()).await.unwrap_err().contains("cannot be used together"));
        std::fs::remove_file(&cert).unwrap();
        assert!(slot.refresh(now()).await.unwrap_err().contains("cannot read"));
        assert!(slot.pair.load().pem == old);
        put(&new);
        slot.refresh(now()).await.unwrap();
        assert!(slot.pair.load().pem == new);
    }
}
