//! Bad input, given to the built binary: it exits with 1 and says in one line what to change.
#![allow(clippy::unwrap_used)]

use std::{net::TcpListener, process::Command};

/// Exit code and what was printed to standard error.
fn run(flags: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cloud-controller-manager"));
    let output = command.args(flags).env_remove("KUBERNETES_SERVICE_HOST").output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn one_line_names_the_flag_the_value_and_what_is_accepted() {
    const FAKE: &str = "--cloud-provider=fake";
    let rows: &[(&[&str], &[&str])] = &[
        (&[], &["--cloud-provider"]),
        (&["--cloud-provider=nimbus"], &["--cloud-provider", "nimbus", "fake"]),
        (&[FAKE, "--leader-elect-renew-deadline=20s"], &["renew-deadline", "20s", "lease-duration"]),
        (&[FAKE, "--node-monitor-period=soon"], &["--node-monitor-period", "soon", "1m30s"]),
        (&[FAKE, "--secure-port=70000"], &["--secure-port", "70000", "65535"]),
        (&[FAKE, "--controllers=*,-tides"], &["tides", "controllers"]),
        (&[FAKE, "--feature-gates=Nonsense=true"], &["--feature-gates", "Nonsense"]),
        (&[FAKE, "--cluster-cidr=10.0.0.0/99"], &["--cluster-cidr", "10.0.0.0/99"]),
        (&[FAKE, "--leader-elects=true"], &["--leader-elects", "--leader-elect"]),
        (&[FAKE, "--cloud-config=/nowhere/cloud.yaml"], &["/nowhere/cloud.yaml"]),
        (&[FAKE, "--kubeconfig=/nowhere/kubeconfig"], &["--kubeconfig", "/nowhere/kubeconfig"]),
        (&[FAKE], &["--kubeconfig"]),
    ];
    for (flags, words) in rows {
        let (code, text) = run(flags);
        assert_eq!(code, 1, "{flags:?}: {text}");
        let last = text.trim_end().lines().last().unwrap_or_default();
        for word in *words {
            assert!(last.contains(word), "{flags:?}: {word:?} is missing from {text:?}");
        }
    }
}

#[test]
fn a_port_in_use_is_named_with_its_flag() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let text = "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n\
                contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {token: secret-token}}]\n";
    std::fs::write(&kubeconfig, text).unwrap();
    let flags = [
        "--cloud-provider=fake".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        "--configure-cloud-routes=false".to_owned(),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--secure-port={port}"),
        "--v=8".to_owned(),
    ];
    let (code, text) = run(&flags.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(code, 1, "{text}");
    let last = text.trim_end().lines().last().unwrap_or_default();
    assert!(last.contains("--secure-port") && last.contains(&port.to_string()), "{text}");
    assert!(!text.contains("secret-token"), "the token was printed: {text}");
}
