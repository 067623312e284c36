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

/// Starts with `kubeconfig` in `folder` and a secure port that is closed.
fn candidate(folder: &Path, server: &str) -> Command {
    let kubeconfig = folder.join("kubeconfig");
    fs::write(&kubeconfig, KUBECONFIG.replace("http://127.0.0.1:1", server)).unwrap();
    let mut command = program();
    command
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .args(["--secure-port=0", "--configure-cloud-routes=false"]);
    command
}

#[test]
fn a_server_whose_name_cannot_be_looked_up_is_named_and_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = candidate(folder.path(), "https://nothing.invalid:6443");
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    for _ in 0..2 {
        let line = read_until(&mut log, "cannot acquire the lease, retrying");
        assert!(line.contains("cannot connect to nothing.invalid:6443") && !line.contains("t0k3n"), "{line}");
    }
    terminate(&child);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_log_that_cannot_be_written_stops_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = candidate(folder.path(), &format!("http://{}", server.local_addr().unwrap()));
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut child = command.arg("--v=10").stderr(full).spawn().unwrap();
    drop(server.accept().unwrap());
    let _again = server.accept().unwrap();
    terminate(&child);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn what_was_asked_for_and_cannot_be_written_is_an_error() {
    for arguments in [&["completion", "bash"][..], &["--version"]] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_cloud-controller-manager"));
        let output = command.args(arguments).stdout(full).output().unwrap();
        let (code, line) = complaint(&output);
        assert_eq!(code, Some(1), "{arguments:?}");
        assert!(line.contains("standard output: No space left on device"), "{line}");
    }
}

/// A manager whose API server takes connections and never answers; it is a candidate when this returns.
fn waiting(folder: &Path, server: &TcpListener) -> (Child, BufReader<std::process::ChildStderr>) {
    let mut command = candidate(folder, &format!("http://{}", server.local_addr().unwrap()));
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    read_until(&mut log, "attempting to acquire");
    (child, log)
}

/// The next line with `text`.
fn read_until(log: &mut impl BufRead, text: &str) -> String {
    let mut all = String::new();
    loop {
        let mut line = String::new();
        assert!(log.read_line(&mut line).unwrap() > 0, "{text:?} is not in the log:\n{all}");
        if line.contains(text) {
            return line;
        }
        all.push_str(&line);
    }
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
