//! Invalid values, misplaced flags, and flags without effect.

use super::*;

fn errors(line: &str) -> Vec<String> {
    parsed(line).unwrap_err().lines().to_vec()
}

#[test]
fn invalid_values_are_truncated_after_64_characters() {
    let (long, cut) = ("x".repeat(500), "x".repeat(64));
    for line in [
        "--node-monitor-period=LONG",
        "--tls-min-version=LONG",
        "--tls-cipher-suites=LONG",
        "--cloud-provider=LONG",
        "--controllers=LONG",
        "--feature-gates=LONG",
        "--feature-gates=a=LONG",
        "--node-filter-requirements=LONG",
        "--vmodule=LONG",
        "--enable-leader-migration --leader-migration-config=LONG",
        "--LONG=1",
        "LONG",
        "check-config --cloud-provider=LONG",
        "check-config -o LONG",
        "plan LONG",
        "status LONG",
        "status --url=LONG",
        "doctor --service-account=LONG",
        "completion LONG",
        "man LONG",
    ] {
        let found = errors(&line.replace("LONG", &long)).join("\n");
        assert!(found.contains(&cut[..60]) && !found.contains(&format!("{cut}x")), "{line}: {found}");
    }
}

#[test]
fn subcommands_name_flags_of_the_manager_and_their_own() {
    for (line, expected) in [
        (
            "check-config --secure-port=1",
            "unknown flag --secure-port: the manager has it, check-config does not; check-config takes --",
        ),
        (
            "check-config --secure_port 1",
            "unknown flag --secure-port: the manager has it, check-config does not; check-config takes --",
        ),
        ("check-config -v=2", "unknown flag -v: the manager has it, check-config does not; check-config takes --"),
        (
            "version --secure-port=1",
            "unknown flag --secure-port: the manager has it, version does not; version takes no flags",
        ),
        ("check-config -o yaml", "invalid value \"yaml\" for --output <FORMAT>: expected one of "),
        (
            "cloud-node-manager --leader-elect=false",
            "unknown flag --leader-elect: the manager has it, cloud-node-manager does not; cloud-node-manager --help lists",
        ),
        ("check-config --cloud-confg=/c", "unknown flag --cloud-confg: did you mean --cloud-config?"),
        ("--cluster-name=c check-config", "--cluster-name before check-config has no effect: write it after check-config"),
    ] {
        let found = errors(line);
        assert!(found.len() == 1 && found[0].starts_with(expected), "{line}: {found:?}");
    }
    let found = errors("check-config --secure-port=1");
    assert!(["--cloud-config", "--strict", "--cluster-name"].iter().all(|flag| found[0].contains(flag)), "{found:?}");
}

#[test]
fn flags_of_a_disabled_node_controller_are_reported() {
    for (line, expected) in [
        ("--reconcile-node-labels", 0),
        ("--controllers=service", 0),
        ("--reconcile-node-labels --controllers=service", 1),
        ("--reconcile-node-labels --controllers=*,-cloud-node", 1),
        ("--reconcile-node-labels --enable-deprecated-beta-topology-labels --enable-node-controller=false", 2),
    ] {
        let notices = config(line).notices;
        let found =
            notices.iter().filter(|notice| notice.contains("has no effect: --controllers or --enable-node-controller"));
        assert_eq!(found.count(), expected, "{line}: {notices:?}");
    }
}

#[test]
fn unknown_gates_are_notices_and_unknown_flags_errors() {
    let gate = "x".repeat(500);
    let notices = config(&format!("--feature-gates=CloudProviderNodeOwnership=true,{gate}=false")).notices;
    assert!(
        notices.len() == 2 && notices[0].contains("\"CloudProviderNodeOwnership\" is unknown and has no effect"),
        "{notices:?}"
    );
    assert!(notices[1].len() < 250, "{notices:?}");
    assert_eq!(config("--feature-gates=SeparateCacheWatchRPC=true").notices.len(), 1, "1.36 locks it");
    assert!(errors("--cloud-provider-platforms=azure")[0].starts_with("unknown flag --cloud-provider-platforms"));
}

#[test]
fn explain_accepts_names_with_and_without_dashes() {
    for (line, name, json) in [
        ("explain --route-reconciliation-period", "--route-reconciliation-period", false),
        ("explain --route_reconciliation_period -o json", "--route-reconciliation-period", true),
        ("explain -o json -v", "-v", true),
        ("explain route-reconciliation-period", "route-reconciliation-period", false),
    ] {
        let Ok(CliCommand::Explain(options)) = parsed(line) else { panic!("{line}") };
        assert_eq!((options.name.as_str(), options.json), (name, json), "{line}");
    }
    assert!(printed("explain --help").contains("<NAME>"));
}
