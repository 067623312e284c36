//! The built program as a process: bad files end it with one line without secrets, signals end it cleanly.
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

/// Returns the exit code, and the only line that the program wrote outside of its log.
fn complaint(output: &Output) -> (Option<i32>, String) {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!text.contains("t0k3n"), "a secret is shown: {text}");
    let is_log = |line: &&str| line.starts_with("W1") || line.starts_with("W0");
    let lines: Vec<_> = text.lines().filter(|line| !is_log(line)).collect();
    assert_eq!(lines.len(), 1, "{text}");
    (output.status.code(), lines[0].to_owned())
}

#[test]
fn bad_file_ends_the_program_and_is_reported_with_its_flag() {
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

/// Returns a command with a kubeconfig in `folder` for `server`, and without a secure port.
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
fn unresolvable_server_name_is_reported_and_retried() {
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
fn log_that_cannot_be_written_does_not_stop_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = candidate(folder.path(), &format!("http://{}", server.local_addr().unwrap()));
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut child = command.arg("--v=10").stderr(full).spawn().unwrap();
    drop(server.accept().unwrap());
    let _retry = server.accept().unwrap();
    terminate(&child);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    for arguments in [&["completion", "bash"][..], &["--version"]] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_cloud-controller-manager"));
        let output = command.args(arguments).stdout(full).output().unwrap();
        let (code, line) = complaint(&output);
        assert_eq!(code, Some(1), "{arguments:?}");
        assert!(line.contains("standard output: No space left on device"), "{line}");
    }
}

/// Starts a manager whose API server accepts connections and never responds. Returns when the manager tries to acquire the lease.
fn waiting(folder: &Path, server: &TcpListener) -> (Child, BufReader<std::process::ChildStderr>) {
    let mut command = candidate(folder, &format!("http://{}", server.local_addr().unwrap()));
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    read_until(&mut log, "attempting to acquire");
    (child, log)
}

/// Returns the next line with `text`.
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
fn first_signal_ends_cleanly_and_a_second_immediately() {
    let folder = tempfile::tempdir().unwrap();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let (mut first, _log) = waiting(folder.path(), &server);
    terminate(&first);
    assert_eq!(first.wait().unwrap().code(), Some(0));

    let (mut second, mut log) = waiting(folder.path(), &server);
    terminate(&second);
    read_until(&mut log, "stopping");
    terminate(&second);
    assert_eq!(second.wait().unwrap().code(), Some(1));
    read_until(&mut log, "a second signal");
}
