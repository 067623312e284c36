//! Printed texts, and pages that show the configuration.

use super::*;

#[test]
fn help_and_version_are_printed() {
    for line in ["--help", "-h", "--cloud-provider=nope --help"] {
        let help = printed(line);
        for text in [
            "Usage: cloud-controller-manager",
            "Leader election:",
            "Secure serving:",
            "--leader-elect-renew-deadline",
            "[default: 10s]",
            "completion",
        ] {
            assert!(help.contains(text), "{line}: {text}\n{help}");
        }
        assert!(!help.contains("--node-sync-period") && !help.contains("generate-docs"), "{help}");
    }
    assert_eq!(printed("--version"), format!("{NAME} {VERSION}\n"));
    assert_eq!(printed("--version=true"), printed("--version"));
    assert!(printed("--version=raw").starts_with("version.Info{Major:\"0\""));
}

#[test]
fn completions_for_every_shell_have_the_flags() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        assert!(printed(&format!("completion {shell}")).contains("leader-elect-renew-deadline"), "{shell}");
    }
    assert_eq!(parsed("completion csh").unwrap_err().lines().len(), 1);
}

#[test]
fn pages_are_printed() {
    assert_eq!(printed("generate-docs flags"), docs::flags(&FlagTable::new(registry().flags())));
    assert_eq!(printed("generate-docs feature-gates"), docs::feature_gates());
    assert_eq!(printed("generate-docs controllers"), docs::controllers());
}

#[test]
fn flagz_shows_every_flag_and_reads_back() {
    let first = config("--min-resync-period=90s --controllers=route --feature-gates=AllBeta=false --profiling=0");
    let flagz = first.flagz();
    assert_eq!(flagz.len(), FlagTable::new(registry().flags()).all().count());
    let value = |name: &str| flagz.iter().find(|(flag, _)| flag == name).unwrap().1.clone();
    assert_eq!(value("min-resync-period"), "1m30s");
    assert_eq!(value("profiling"), "false");
    assert_eq!(value("feature-gates"), "AllBeta=false");
    let words: Vec<OsString> = [NAME.to_owned()]
        .into_iter()
        .chain(flagz.iter().map(|(name, value)| format!("--{name}={value}")))
        .map(OsString::from)
        .collect();
    let CliCommand::Run(second) = parse_for(words, providers(registry().flags())).unwrap() else {
        panic!("not a command to run")
    };
    assert_eq!(second.flagz(), flagz);
    assert_eq!(second.controllers, first.controllers);
}

#[test]
fn configz_has_upstreams_shape() {
    let object = config("--leader-elect-lease-duration=1m --controllers=route --cluster-cidr=10.0.0.0/8").configz();
    assert_eq!(object["kind"], "CloudControllerManagerConfiguration");
    assert_eq!(object["apiVersion"], "cloudcontrollermanager.config.k8s.io/v1alpha1");
    assert_eq!(object["Generic"]["LeaderElection"]["leaseDuration"], "1m0s");
    assert_eq!(object["Generic"]["Controllers"], serde_json::json!(["route"]));
    assert_eq!(object["Generic"]["ClientConnection"]["burst"], 30);
    assert_eq!(object["KubeCloudShared"]["CloudProvider"]["Name"], "fake");
    assert_eq!(object["KubeCloudShared"]["ClusterCIDR"], "10.0.0.0/8");
    assert_eq!(object["KubeCloudShared"]["NodeMonitorPeriod"], "5s", "as before Kubernetes 1.37");
    let lifecycle = serde_json::json!({ "NodeMonitorPeriod": "5s", "ConcurrentNodeLifecycleSyncs": 100 });
    assert_eq!(object["NodeLifecycleController"], lifecycle);
    assert_eq!(object["NodeStatusUpdateFrequency"], "5m0s");
    assert_eq!(object["Webhook"]["Webhooks"], serde_json::json!([]));
}

#[test]
fn check_config_reads_the_flags_of_the_manager() {
    let check = |line: &str| match parsed(&format!("check-config {line}")) {
        Ok(CliCommand::Check(check)) => *check,
        other => panic!("{line}: {other:?}"),
    };
    let checked = check("--cloud-config=/etc/azure.json --strict");
    assert_eq!((checked.cloud.provider.as_str(), checked.cloud.config.cluster_name.as_str()), ("azure", "kubernetes"));
    assert_eq!(
        (checked.cloud.config.cloud_config, checked.online, checked.strict),
        (Some("/etc/azure.json".into()), false, true)
    );
    let secret = check("--cloud-config-secret-name=c --online").cloud.config.cloud_config_secret.unwrap();
    assert_eq!([secret.namespace, secret.name, secret.key], ["kube-system", "c", "cloud-config"]);
    let error = parsed("check-config --cloud-provider=fake").unwrap_err();
    assert_eq!(error.lines(), [r#"invalid value "fake" for --cloud-provider: expected one of azure"#]);
    assert!(parsed("check-config --leader-elect").is_err());
}
