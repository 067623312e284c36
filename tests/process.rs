//! The built program as a process: bad files end it with one line that shows no secret, signals end it in good order.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    fs,
    io::{BufRead, BufReader},
    net::TcpListener,
    path::Path,
    process::{Child, Command, Output, Stdio},
};

const KUBECONFIG: &str = "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n\
    contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {token: t0k3n}}]\n";

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cloud-controller-manager"));
    command.env_remove("KUBERNETES_SERVICE_HOST").arg("--cloud-provider=fake");
    command
}

/// The exit code, and the only line that the program wrote besides its log.
fn complaint(output: &Output) -> (Option<i32>, String) {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!text.contains("t0k3n"), "a secret is shown: {text}");
    let is_log = |line: &&str| line.starts_with("W1") || line.starts_with("W0");
    let lines: Vec<_> = text.lines().filter(|line| !is_log(line)).collect();
    assert_eq!(lines.len(), 1, "{text}");
    (output.status.code(), lines[0].to_owned())
}

#[test]
fn a_bad_file_ends_it_with_one_line_that_names_the_flag() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let kubeconfig = format!("--kubeconfig={}", path("good"));
    fs::write(path("good"), KUBECONFIG).unwrap();
    fs::write(path("broken"), KUBECONFIG.replace("}}]\n", "}}\n")).unwrap();
    let rows: [(&[&str], &[&str]); 4] = [
        (&["--kubeconfig", &path("broken")], &["--kubeconfig ", "broken"]),
        (&[&kubeconfig, "--cloud-config=/nowhere"], &["--cloud-config /nowhere", "No such file"]),
        (&[&kubeconfig, "--cloud-config", &path("broken")], &["--cloud-config ", "broken"]),
        (&[&kubeconfig], &["--cluster-cidr", "give one CIDR"]),
    ];
    for (flags, parts) in rows {
        let (code, line) = complaint(&program().args(flags).output().unwrap());
        assert_eq!(code, Some(1), "{flags:?}: {line}");
        assert!(parts.iter().all(|part| line.contains(part)), "{flags:?}: {line}");
    }
}

/// A manager whose API server takes connections and never answers; it is a candidate when this returns.
fn waiting(folder: &Path, server: &TcpListener) -> (Child, BufReader<std::process::ChildStderr>) {
    let kubeconfig = folder.join("kubeconfig");
    fs::write(&kubeconfig, KUBECONFIG.replace("127.0.0.1:1", &server.local_addr().unwrap().to_string())).unwrap();
    let mut command = program();
    command
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .args(["--secure-port=0", "--configure-cloud-routes=false"]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    read_until(&mut log, "attempting to acquire");
    (child, log)
}

fn read_until(log: &mut impl BufRead, text: &str) {
    let mut line = String::new();
    while log.read_line(&mut line).unwrap() > 0 {
        if line.contains(text) {
            return;
        }
    }
    panic!("{text:?} is not in the log:\n{line}");
}

fn terminate(child: &Child) {
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
}

#[test]
fn one_signal_ends_in_good_order_and_a_second_one_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let (mut patient, _log) = waiting(folder.path(), &server);
    terminate(&patient);
    assert_eq!(patient.wait().unwrap().code(), Some(0));

    let (mut hurried, mut log) = waiting(folder.path(), &server);
    terminate(&hurried);
    read_until(&mut log, "stopping");
    terminate(&hurried);
    assert_eq!(hurried.wait().unwrap().code(), Some(1));
    read_until(&mut log, "a second signal");
}
