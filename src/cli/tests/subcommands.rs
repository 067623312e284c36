//! Arguments of subcommands, and of programs with the name of a subcommand.

use super::*;
use crate::cloud_provider::config::IdentityBindingConfig;

/// Returns the options of a line, which must be of this command.
macro_rules! read {
    ($kind:ident, $line:expr) => {
        match typed($line) {
            Ok(CliCommand::$kind(options)) => options,
            other => panic!("{}: {other:?}", $line),
        }
    };
}

#[test]
fn invalid_arguments_are_reported() {
    for (line, expected) in [
        ("ccm plan web", "expected NAMESPACE/NAME"),
        ("ccm plan a/b/c", "expected NAMESPACE/NAME"),
        ("ccm plan --cloud-provider=other", "expected one of azure"),
        ("ccm plan --nonsense", "unknown flag --nonsense"),
        ("ccm status web", "expected NAMESPACE/NAME of a Service, svc/NAME with -n NAMESPACE, or node/NAME"),
        ("ccm status a/b/c", "expected NAMESPACE/NAME of a Service"),
        ("ccm status --url http://h", "expected https://HOST:PORT"),
        ("ccm status --token-file t", "only with --url"),
        ("ccm support-bundle --token-file=t", "only with --url"),
        ("ccm doctor --service-account=me", "expected NAMESPACE/NAME"),
        ("ccm orphans --service-account=a/b", "unknown flag --service-account"),
        ("ccm orphans --cloud-provider=other", "expected one of azure"),
        ("ccm man nothing", "expected one of cloud-controller-manager, "),
        ("ccm --wait-routes", "unknown flag --wait-routes"),
        ("ccm --target-port=1", "unknown flag --target-port"),
        ("cloud-node-manager --leader-elect=false", "unknown flag --leader-elect"),
        ("cloud-node-manager --node-status-update-frequency=0s", "expected more than zero"),
        ("cloud-node-manager --cloud-provider=gce", "expected one of azure, fake"),
        ("health-probe-proxy --target-port=0", "--target-port: 0 is not a valid port"),
        ("health-probe-proxy --health-check-port=65536", "--health-check-port: 65536 is not a valid port"),
        ("health-probe-proxy --health-check-port=10256", "give two ports"),
        ("health-probe-proxy --leader-elect=false", "unknown flag --leader-elect"),
        ("acr-credential-provider", "the path of azure.json is missing"),
        ("acr-credential-provider a b", "unexpected argument \"b\""),
        ("acr-credential-provider x --ib-sni-name=s", "--ib-sni-name: needs --ib-apiserver-ip"),
        ("acr-credential-provider x --ib-apiserver-ip=1.2.3.4", "--ib-apiserver-ip: needs --ib-sni-name"),
        ("acr-credential-provider x --ib-default-client-id=c", "--ib-default-client-id: needs --ib-sni-name"),
        ("acr-credential-provider x --ib-default-tenant-id=t", "--ib-default-tenant-id: needs --ib-sni-name"),
        ("acr-credential-provider x --ib-sni-name=https://s --ib-apiserver-ip=1.2.3.4", "without https://"),
        ("acr-credential-provider x --ib-sni-name=http://s --ib-apiserver-ip=1.2.3.4", "without https://"),
        ("acr-credential-provider x --leader-elect=false", "unknown flag --leader-elect"),
    ] {
        let error = typed(line).unwrap_err().to_string();
        assert!(error.contains(expected), "{line}: {error}");
    }
}

#[test]
fn each_program_prints_its_version() {
    for (line, begin) in [
        ("cloud-node-manager --version", "Cloud Node Manager v"),
        ("health-probe-proxy version", "health-probe-proxy v"),
        ("acr-credential-provider --version", "acr-credential-provider v"),
        ("acr-credential-provider version", "acr-credential-provider v"),
    ] {
        assert!(read!(Print, line).starts_with(begin), "{line}");
    }
}

#[test]
fn plan_accepts_the_flags_of_the_manager_and_only_reads() {
    let options = read!(Plan, "ccm plan --all --cluster_name=c --cloud-config a_b -o json --diff");
    assert!(options.json && options.diff && !options.report && options.service.is_none());
    let manager = options.manager;
    assert!(manager.dry_run && manager.cloud.config.read_only && !manager.use_service_account_credentials);
    assert_eq!(manager.cloud.config.cluster_name, "c");
    assert_eq!(read!(Plan, "ccm plan default/web").service.as_deref(), Some("default/web"));
    assert_eq!(read!(Plan, "ccm plan svc/web -n shop").service.as_deref(), Some("shop/web"));
    assert!(read!(Plan, "ccm plan --dry-run=false --use-service-account-credentials").manager.dry_run);
}

#[test]
fn doctor_accepts_the_flags_of_the_manager_and_only_reads() {
    let line = "ccm doctor --cloud-config=a --cluster-name=c --dry-run=false --service-account=ns/me -o json";
    let options = read!(Examine, line);
    assert!(options.json && options.manager.dry_run && options.manager.cloud.config.read_only);
    assert_eq!(options.account, Some(("ns".to_owned(), "me".to_owned())));
    assert_eq!(options.manager.cloud.config.cluster_name, "c");
    assert!(!read!(FindOrphans, "ccm orphans").json);
}

#[test]
fn support_bundle_reads_the_address_of_the_manager() {
    let line =
        "ccm support-bundle --file=x.tar.gz --leader-elect-resource-name=l --secure-port=1 --url=https://h:2 --token-file=t";
    let options = read!(GatherSupport, line);
    assert_eq!((options.file.to_str(), options.status.port), (Some("x.tar.gz"), 1));
    assert_eq!(options.status.lease.1, "l");
    assert_eq!(options.status.url.unwrap().token_file, Some("t".into()));
}

#[test]
fn status_reads_subject_and_address() {
    let default = read!(Status, "ccm status");
    assert_eq!((default.subject, default.url, default.json, default.port), (StatusSubject::Manager, None, false, 10258));
    assert_eq!(default.lease, ("kube-system".to_owned(), "cloud-controller-manager".to_owned()));
    let service = |namespace: &str| StatusSubject::Service { namespace: namespace.to_owned(), name: "web".to_owned() };
    let node = || StatusSubject::Node("a".to_owned());
    for (words, subject) in [
        ("default/web --url https://h:1 --token-file t --insecure-skip-tls-verify", service("default")),
        ("svc/web", service("default")),
        ("service/web -n shop", service("shop")),
        ("services/web --namespace shop", service("shop")),
        ("web -n shop", service("shop")),
        ("-n svc web", service("svc")),
        ("node/a -o json", node()),
        ("nodes/a", node()),
    ] {
        let line = format!("ccm status {words}");
        let options = read!(Status, &line);
        assert_eq!(options.subject, subject, "{line}");
        let url = options.url.map(|url| (url.token_file, url.insecure));
        assert_eq!(url, words.contains("--url").then(|| (Some("t".into()), true)), "{line}");
    }
}

#[test]
fn every_command_has_a_manual_page_with_its_flags() {
    let names = printed("man");
    let table = FlagTable::new(registry().flags());
    for command in command(&table).get_subcommands().filter(|command| !command.is_hide_set()) {
        let ends = |name: &&str| name.ends_with(command.get_name());
        let name = names.lines().find(ends).unwrap_or_else(|| panic!("{} has no page: {names}", command.get_name()));
        let page = printed(&format!("man {name}"));
        for part in [".TH", "NAME", "SYNOPSIS"] {
            assert!(page.contains(part), "{name} lacks {part}: {page}");
        }
        let flags = command.get_arguments().filter(|flag| !flag.is_hide_set()).filter_map(|flag| flag.get_long());
        for flag in flags {
            assert!(page.contains(&flag.replace('-', "\\-")), "{name} lacks --{flag}");
        }
    }
    let whole = printed("man cloud-controller-manager");
    assert!(whole.contains("cloud\\-provider") && !whole.contains("generate\\-docs"), "the program's own page");
}

#[test]
fn node_manager_arguments_are_the_same_as_of_its_program() {
    let flags = "--node-name=Node-A --wait_routes --kube-api-qps 50";
    let expected = read!(ManageNode, &format!("cloud-controller-manager cloud-node-manager {flags}"));
    for program in ["cloud-node-manager", "/usr/local/bin/cloud-node-manager", "./cloud-node-manager.exe"] {
        assert_eq!(read!(ManageNode, &format!("{program} {flags}")), expected, "{program}");
    }
    assert_eq!((expected.node_name.as_deref(), expected.settings.wait_routes), (Some("node-a"), true));
    read!(Run, "/cloud-node-manager/other --leader-elect=false --cloud-provider=fake");
}

#[test]
fn node_manager_defaults_are_those_of_upstream() {
    let config = read!(ManageNode, "cloud-node-manager");
    assert_eq!((config.provider.as_str(), config.cloud_config, config.node_name), ("azure", None, None));
    assert!(config.use_instance_metadata && !config.settings.wait_routes);
    assert_eq!(config.settings.status_update_frequency, seconds(300));
    assert_eq!((config.serving.port, config.serving.profiling), (0, false));
    assert_eq!(config.notices, Vec::<String>::new());
    assert!(config.flagz.contains(&("secure-port".to_owned(), "0".to_owned())));
    assert!(!config.flagz.iter().any(|(name, _)| name == "leader-elect"));
    let line = "cloud-node-manager --windows-service --min-resync-period=10h --enable-deprecated-beta-topology-labels";
    let config = read!(ManageNode, line);
    assert!(config.settings.beta_labels && config.windows_service);
    assert_eq!(config.notices.len(), 1, "flags without effect are reported: {:?}", config.notices);
}

#[test]
fn probe_proxy_accepts_flags_with_one_dash_as_go() {
    for program in ["cloud-controller-manager health-probe-proxy", "/usr/bin/health-probe-proxy"] {
        for (flags, ports) in [
            ("", (10356, 10256)),
            ("--health-check-port=1 --target-port=2", (1, 2)),
            ("--health_check_port 1 --target_port 2", (1, 2)),
            ("-health-check-port=1 -target-port=2", (1, 2)),
            ("-health-check-port 1 -target-port 2 -v=4", (1, 2)),
        ] {
            let config = read!(ProxyProbes, &format!("{program} {flags}"));
            assert_eq!((config.health_check_port, config.target_port), ports, "{flags}");
        }
    }
}

#[test]
fn arguments_of_the_go_credential_provider_are_accepted() {
    for program in ["cloud-controller-manager acr-credential-provider", "/var/lib/kubelet/acr-credential-provider"] {
        let plain = read!(ProvideImageCredentials, &format!("{program} /etc/kubernetes/azure.json")).config;
        assert_eq!(plain.cloud_config.to_str(), Some("/etc/kubernetes/azure.json"));
        assert_eq!((plain.registry_mirrors.len(), plain.identity_binding), (0, None));
        for mirrors in ["-r a:b,c:d", "--registry-mirror=a:b,c:d", "--registry-mirror a:b,c:d", "-r=a:b -r c:d -v=4"] {
            for words in [format!("{program} /x {mirrors}"), format!("{program} {mirrors} /x")] {
                assert_eq!(read!(ProvideImageCredentials, &words).config.registry_mirrors, ["a:b", "c:d"], "{words}");
            }
        }
    }
    let flags = "--ib-sni-name=s --ib-apiserver-ip=10.0.0.1 --ib-default-client-id=c --ib-default-tenant-id=t /x";
    let binding = read!(ProvideImageCredentials, &format!("acr-credential-provider {flags}")).config.identity_binding;
    let expected = IdentityBindingConfig {
        sni_name: "s".to_owned(),
        api_server: "10.0.0.1".to_owned(),
        default_client_id: "c".to_owned(),
        default_tenant_id: "t".to_owned(),
        ca_file: "/etc/kubernetes/certs/ca.crt".into(),
    };
    assert_eq!(binding, Some(expected));
}
