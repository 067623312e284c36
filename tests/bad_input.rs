//! Bad input to the built binary: the program exits with 1 and says in one line what to change.
#![allow(clippy::unwrap_used)]

use std::{net::TcpListener, process::Command};

/// Runs the program. Returns the exit code and standard error.
fn run(flags: &[&str]) -> (i32, String) {
    let (code, _, errors) = outcome(flags);
    (code, errors)
}

/// Runs the program. Returns the exit code, standard output and standard error.
fn outcome(flags: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cloud-controller-manager"));
    let output = command.args(flags).env_remove("KUBERNETES_SERVICE_HOST").output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn bad_flag_is_reported_in_one_line_with_accepted_values() {
    const FAKE: &str = "--cloud-provider=fake";
    let rows: &[(&[&str], &[&str])] = &[
        // Azure's build of the Go program needs no --cloud-provider.
        (&[], &["--cloud-config"]),
        (&["--cloud-provider=nimbus"], &["--cloud-provider", "nimbus", "fake"]),
        (&[FAKE, "--cluster-cidr=10.0.0.0/99"], &["--cluster-cidr", "10.0.0.0/99"]),
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

/// Returns a kubeconfig for an address without a server. The only context that it defines is `c`.
fn kubeconfig(context: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: {context}\nclusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:1'}}}}]\n\
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: {{token: secret-token}}}}]\n"
    )
}

#[test]
fn a_port_in_use_is_named_with_its_flag() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, kubeconfig("c")).unwrap();
    let flags = [
        "--cloud-provider=fake".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        "--configure-cloud-routes=false".to_owned(),
        format!("--kubeconfig={}", path.display()),
        format!("--secure-port={port}"),
        "--v=8".to_owned(),
    ];
    let (code, text) = run(&flags.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(code, 1, "{text}");
    let last = text.trim_end().lines().last().unwrap_or_default();
    assert!(last.contains("--secure-port") && last.contains(&port.to_string()), "{text}");
    assert!(!text.contains("secret-token"), "the token was printed: {text}");
}

#[test]
fn help_and_version_are_commands_and_flags() {
    for (words, flags) in [
        (&["version"][..], &["--version"][..]),
        (&["help"], &["--help"]),
        (&["help", "check-config"], &["check-config", "--help"]),
        (&["cloud-node-manager", "version"], &["cloud-node-manager", "--version"]),
        (&["cloud-node-manager", "help"], &["cloud-node-manager", "--help"]),
    ] {
        let (code, printed, errors) = outcome(words);
        assert_eq!((code, errors.as_str()), (0, ""), "{words:?}");
        assert!(!printed.is_empty() && printed == outcome(flags).1, "{words:?}: {printed}");
    }
}

#[test]
fn all_usage_errors_are_reported_together_and_once() {
    // A row has the words of each line.
    let rows: &[(&[&str], &[&[&str]])] = &[
        (&["check-confg"], &[&["did you mean check-config"]]),
        (&["help", "check-confg"], &[&["check-confg", "check-config"]]),
        (&["completion"], &[&["shell", "bash", "fish", "zsh"]]),
        (&["completion", "tcsh"], &[&["tcsh", "shell", "bash", "fish", "zsh"]]),
        (&["--v=abc", "--secure-port=99999"], &[&["--v:"], &["--secure-port:"]]),
        (&["--secure-prot=1", "--nonsense", "value", "--v=abc"], &[&["--secure-prot:"], &["--nonsense:"], &["--v:"]]),
        (
            &["--enable-leader-migration", "--leader-migration-config=/nowhere", "--secure-port=99999"],
            &[&["--leader-migration-config:"], &["--secure-port:"]],
        ),
        // The renew deadline is checked against the lease duration, which is unreadable.
        (
            &["--leader-elect-lease-duration=soon", "--leader-elect-renew-deadline=20s"],
            &[&["--leader-elect-lease-duration:"]],
        ),
        (
            &["check-config", "--nonsense", "--configure-cloud-routes=maybe"],
            &[&["--nonsense:"], &["--configure-cloud-routes:"]],
        ),
        (
            &["cloud-node-manager", "--wait-routes=maybe", "--node-status-update-frequency=0s"],
            &[&["--wait-routes:"], &["--node-status-update-frequency:"]],
        ),
    ];
    for (flags, expected) in rows {
        let (code, text) = run(flags);
        assert_eq!((code, text.trim_end().lines().count()), (1, expected.len()), "{flags:?}: {text}");
        for (line, words) in text.lines().zip(*expected) {
            assert!(words.iter().all(|word| line.contains(word)), "{flags:?}: not all of {words:?} are in {line:?}");
        }
    }
}

#[test]
fn flags_with_a_default_are_not_required_in_the_help() {
    for words in [&["--help"][..], &["check-config", "--help"], &["cloud-node-manager", "--help"]] {
        let (code, help, _) = outcome(words);
        assert_eq!(code, 0, "{words:?}");
        let lines = || help.lines().skip_while(|line| !line.contains("--cloud-provider ")).skip(1);
        let about = lines().take_while(|line| !line.trim_start().starts_with('-')).collect::<String>();
        assert!(about.contains("[default: azure]") && !about.contains("Required"), "{words:?}: {about}");
    }
}

/// Runs `check-config` on a configuration with `fields` and the required ones. Returns the exit code and the findings.
fn checked(fields: &str, flags: &[&str]) -> (i32, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("azure.json");
    let least = r#""subscriptionId": "s", "resourceGroup": "rg", "location": "l", "useManagedIdentityExtension": true"#;
    std::fs::write(&file, format!("{{{least}{fields}}}")).unwrap();
    let path = format!("--cloud-config={}", file.display());
    let (code, report, _) = outcome(&[&["check-config", &path], flags].concat());
    let is_finding = |line: &&str| ["error: ", "warning: "].iter().any(|mark| line.starts_with(mark));
    (code, report.lines().filter(is_finding).map(str::to_owned).collect())
}

#[test]
fn check_config_finds_fields_that_block_services_and_routes() {
    const SEVERAL: &str = r#", "loadBalancerBackendPoolConfigurationType": "nodeIP", "multipleStandardLoadBalancerConfigurations":
        [{"name": "kubernetes", "primaryVMSet": "b"}]"#;
    const GATEWAY: &str = r#", "serviceGatewayEnabled": true, "loadBalancerSku": "service",
        "loadBalancerBackendPoolConfigurationType": "podIP""#;
    const NAMES: &str = r#", "routeTableName": "rt", "securityGroupName": "nsg""#;
    let rows: &[(&str, &[&str])] = &[
        (NAMES, &[]),
        (r#", "securityGroupName": "nsg""#, &["routeTableName"]),
        (r#", "routeTableName": "rt""#, &["securityGroupName"]),
        (&format!("{NAMES}{SEVERAL}"), &[]),
        (
            &format!("{NAMES}{GATEWAY}"),
            &["serviceGatewayEnabled", "loadBalancerBackendPoolConfigurationType", "loadBalancerSku"],
        ),
    ];
    for (fields, expected) in rows {
        for (flags, severity, code) in [(&[][..], "warning", 0), (&["--strict"], "error", i32::from(!expected.is_empty()))] {
            let (found, lines) = checked(fields, flags);
            assert_eq!((found, lines.len()), (code, expected.len()), "{fields}: {lines:?}");
            for (line, field) in lines.iter().zip(*expected) {
                assert!(line.starts_with(&format!("{severity}: {field}")), "{fields}: {line}");
            }
        }
    }
    let (code, lines) = checked(r#", "securityGroupName": "nsg""#, &["--strict", "--configure-cloud-routes=false"]);
    assert_eq!((code, lines.len()), (0, 0), "without routes no table is needed: {lines:?}");
}

const NO_ROUTES: &str = "--configure-cloud-routes=false";

/// Texts of commands that could read everything.
const COMPLETE_RESULTS: [&str; 7] = [
    "0 leftovers would be removed\n",
    "\nready to switch",
    "no orphans\n",
    "Waiting: none",
    "\"complete\": true",
    " 0 could not be checked",
    "nothing to do",
];

/// With an unreachable cluster or a useless kubeconfig, no command claims that it has read the cluster.
#[test]
fn commands_without_a_cluster_never_report_completeness() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let azure = r#"{"subscriptionId": "s", "resourceGroup": "rg", "location": "l", "tenantId": "t", "aadClientId": "c",
        "aadClientSecret": "planted", "routeTableName": "rt", "securityGroupName": "nsg", "vnetName": "v", "subnetName": "n",
        "resourceManagerEndpoint": "https://127.0.0.1:1/"}"#;
    let cloud = format!("--cloud-config={}", file("azure.json", azure));
    let clusters = [
        (file("unserved", &kubeconfig("c")), "127.0.0.1:1"),
        (file("other-context", &kubeconfig("other")), "other"),
        ("/nowhere/kubeconfig".to_owned(), "/nowhere/kubeconfig"),
    ];
    let bundle = format!("--file={}", folder.path().join("bundle.tar.gz").display());
    let commands: &[&[&str]] = &[
        &["plan", "--all", &cloud, NO_ROUTES],
        &["plan", "--all", "-o", "json", &cloud, NO_ROUTES],
        &["plan", "--all", "--report", &cloud, NO_ROUTES],
        &["status"],
        &["status", "-o", "json"],
        &["status", "default/web"],
        &["doctor", &cloud, NO_ROUTES],
        &["doctor", "-o", "json", &cloud, NO_ROUTES],
        &["orphans", &cloud, NO_ROUTES],
        &["orphans", "-o", "json", &cloud, NO_ROUTES],
        &["support-bundle", &cloud, NO_ROUTES, &bundle],
    ];
    for (kubeconfig, cause) in &clusters {
        for words in commands {
            let flag = format!("--kubeconfig={kubeconfig}");
            let (code, printed, errors) = outcome(&[*words, &[flag.as_str()]].concat());
            let all = format!("\n{printed}{errors}");
            assert!(code == 1 || (code == 2 && words[0] == "doctor"), "{words:?} {kubeconfig}: {code} {all}");
            for sentence in COMPLETE_RESULTS {
                assert!(!all.contains(sentence), "{words:?} {kubeconfig}: {sentence:?} in {all}");
            }
            let is_reported = words[0] == "support-bundle" || all.contains(cause);
            assert!(
                is_reported && !all.contains("secret-token") && !all.contains("planted"),
                "{words:?} {kubeconfig}: {all}"
            );
        }
    }
}
