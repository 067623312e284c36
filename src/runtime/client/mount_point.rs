//! Files of a HostProcess container of Windows, whose volumes are below a folder that only the container runtime knows.
//!
//! In: a path as in the manifest, [`VARIABLE`]. Out: the path that exists. Where the runtime binds volumes at their paths
//! (containerd 1.7 with Windows Server 2022), both exist and are the same file. Upstream: `start.ps1` of the Helm chart,
//! which edits the kubeconfig.

use std::{
    ffi::OsString,
    path::{Component, Path, PathBuf},
};

use kube::config::Kubeconfig;

/// Environment variable with the folder of the container's image and volumes, which only hcsshim sets.
pub(super) const VARIABLE: &str = "CONTAINER_SANDBOX_MOUNT_POINT";

/// Returns `path` below the mount point if it exists there, else `path`.
pub(super) fn locate(path: &Path, mount_point: Option<&OsString>) -> PathBuf {
    let Some(mount_point) = mount_point.filter(|folder| !folder.is_empty()) else { return path.to_owned() };
    let names = path.components().filter(|component| matches!(component, Component::Normal(_)));
    let below = Path::new(mount_point).join(names.collect::<PathBuf>());
    if below.exists() { below } else { path.to_owned() }
}

/// Locates every file that `kubeconfig` names.
pub(super) fn locate_files(kubeconfig: &mut Kubeconfig, mount_point: Option<&OsString>) {
    let clusters = kubeconfig.clusters.iter_mut().filter_map(|cluster| cluster.cluster.as_mut());
    let authorities = clusters.map(|cluster| &mut cluster.certificate_authority);
    let users = kubeconfig.auth_infos.iter_mut().filter_map(|user| user.auth_info.as_mut());
    let own = users.flat_map(|user| [&mut user.token_file, &mut user.client_certificate, &mut user.client_key]);
    for path in authorities.chain(own).filter_map(Option::as_mut) {
        *path = locate(Path::new(path.as_str()), mount_point).to_string_lossy().into_owned();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Kubeconfig like that of kubeadm's kube-proxy, and a user with a certificate.
    const TEXT: &str = "apiVersion: v1
kind: Config
clusters:
- {name: default, cluster: {server: 'https://a:1', certificate-authority: /var/run/secrets/ca.crt}}
users:
- {name: default, user: {tokenFile: /var/run/secrets/token}}
- {name: other, user: {client-certificate: /elsewhere/crt, client-key: /elsewhere/key}}
";

    #[test]
    fn files_below_the_mount_point_come_first() {
        let folder = tempfile::tempdir().unwrap();
        let secrets = folder.path().join("var/run/secrets");
        fs::create_dir_all(&secrets).unwrap();
        for name in ["ca.crt", "token"] {
            fs::write(secrets.join(name), "").unwrap();
        }
        let files = |mount_point: Option<OsString>| {
            let mut parsed = Kubeconfig::from_yaml(TEXT).unwrap();
            locate_files(&mut parsed, mount_point.as_ref());
            let authorities = parsed.clusters[0].cluster.as_ref().unwrap().certificate_authority.clone();
            let [token, certificate] = [0, 1].map(|index| parsed.auth_infos[index].auth_info.clone().unwrap());
            [authorities, token.token_file, certificate.client_certificate].map(|path| PathBuf::from(path.unwrap()))
        };
        let as_written = ["/var/run/secrets/ca.crt", "/var/run/secrets/token", "/elsewhere/crt"].map(PathBuf::from);
        assert_eq!(files(None), as_written);
        assert_eq!(files(Some("".into())), as_written);
        let located = [secrets.join("ca.crt"), secrets.join("token"), "/elsewhere/crt".into()];
        assert_eq!(files(Some(folder.path().into())), located);
    }
}
