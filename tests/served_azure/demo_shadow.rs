//! Commands that the demo on a simulated Azure prints, run while it runs: a plan, a dry-run manager, and the diagnostic commands.

use std::{
    io::{BufRead, BufReader},
    net::TcpListener,
    path::Path,
    process::{ChildStderr, ChildStdout, Command, Stdio},
    time::Duration,
};

use crate::served_azure::{Ended, PROGRAM};

/// Returns the lines up to the first one that contains `words`.
fn until(lines: &mut impl Iterator<Item = std::io::Result<String>>, words: &str) -> Vec<String> {
    let mut seen = Vec::new();
    loop {
        let line = lines.next().unwrap_or_else(|| panic!("no {words:?} in {seen:#?}")).unwrap();
        seen.push(line);
        if seen.last().unwrap().contains(words) {
            return seen;
        }
    }
}

/// Runs a command line in a shell. Returns the exit code and the output.
fn typed(folder: &Path, words: &str) -> (i32, String) {
    let output = in_shell(folder, words).output().unwrap();
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
    (output.status.code().unwrap(), text)
}

fn in_shell(folder: &Path, words: &str) -> Command {
    let mut command = Command::new("bash");
    let words = format!("export SSL_CERT_FILE=.azure-ca.pem\nexec {words}");
    command.args(["-c", &words]).current_dir(folder).env_remove("KUBECONFIG").env_remove("KUBERNETES_SERVICE_HOST");
    command
}

fn with_pipe(command: &mut Command) -> (Ended, std::io::Lines<BufReader<ChildStdout>>) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (Ended(child), lines)
}

fn with_log(command: &mut Command) -> (Ended, std::io::Lines<BufReader<ChildStderr>>) {
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    (Ended(child), lines)
}

#[test]
fn commands_that_the_demo_prints_work() {
    let folder = tempfile::tempdir().unwrap();
    let mut demo = Command::new(PROGRAM);
    let (_demo, mut lines) = with_pipe(demo.args(["demo", "--cloud-provider=azure"]).current_dir(folder.path()));
    let printed = until(&mut lines, "/reportz");
    let command =
        |words: &str| printed.iter().find(|line| line.contains(words)).unwrap_or_else(|| panic!("{printed:#?}")).trim();
    assert_eq!(command("SSL_CERT_FILE"), "export SSL_CERT_FILE=.azure-ca.pem");
    // Only events of Nodes that have just joined may still be pending.
    until(&mut lines, "Updated load balancer with new hosts");
    let (code, text) = typed(folder.path(), command(" plan --all --report "));
    assert_eq!(
        (code, text.lines().next()),
        (0, Some("ready to switch: 0 writes planned, 0 leftovers would be removed")),
        "{text}"
    );

    // The printed port may be in use.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let [shadow, report] = ["--dry-run", "/reportz"].map(|words| command(words).replace("10288", &port));
    let (_shadow, mut log) = with_log(&mut in_shell(folder.path(), &shadow));
    until(&mut log, "shadow mode (--dry-run): nothing is written");
    let reported = (0..100).map(|_| {
        std::thread::sleep(Duration::from_millis(100));
        typed(folder.path(), &report).1
    });
    let last = reported.take_while(|text| !text.contains("nothing was written")).last().unwrap_or_default();
    let text = typed(folder.path(), &report).1;
    assert!(text.contains("ready to switch: 0 writes planned") && !text.contains("not ready"), "{text} after {last}");

    let flags = "--cloud-config=.azure.json --kubeconfig=.kubeconfig --cluster-cidr=100.64.0.0/10";
    let (code, text) = typed(folder.path(), &format!("{PROGRAM} doctor {flags}"));
    // The demo's manager is a process and not a pod.
    assert!(code == 0 && text.contains("0 problems, 1 warnings, 0 could not be checked"), "{code} {text}");
    assert_eq!(typed(folder.path(), &format!("{PROGRAM} orphans {flags}")), (0, "no orphans\n".to_owned()));
    let events = typed(folder.path(), &format!("{PROGRAM} status default/demo-service-0 --kubeconfig=.kubeconfig"));
    assert!(events.0 == 1 && events.1.contains("EnsuredLoadBalancer"), "{}", events.1);
}
