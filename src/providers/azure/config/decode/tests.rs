use std::{collections::BTreeMap, time::Duration};

use super::*;
use crate::providers::azure::config::{BackendPoolType, CloudConfigType, LoadBalancerSku, VmType, has_errors};

const SECRET: &str = "hunter2";

/// Decodes a text that is free of errors.
fn good(text: &str) -> AzureConfig {
    let decoded = decode(text);
    assert!(!has_errors(&decoded.findings), "{text:?}: {:?}", decoded.findings);
    decoded.config
}

/// Findings as `severity field line message`.
fn findings(text: &str) -> Vec<String> {
    decode(text).findings.iter().map(ToString::to_string).collect()
}

#[test]
fn accepted_texts() {
    type Case = (&'static str, fn(&mut AzureConfig));
    let cases: &[Case] = &[
        ("", |_| {}),
        ("# nothing\n", |_| {}),
        ("null", |_| {}),
        ("{}", |_| {}),
        ("vmType: VMSS\nresourceGroup: RG", |c| c.resource_group = "RG".into()),
        (r#"{"vmType":"standard","useInstanceMetadata":true}"#, |c| {
            c.vm_type = VmType::Standard;
            c.use_instance_metadata = true;
        }),
        ("tenantID: t\nAADCLIENTID: c\ncloudProviderRatelimit: true", |c| {
            (c.tenant_id, c.aad_client_id, c.cloud_provider_rate_limit) = ("t".into(), "c".into(), true);
        }),
        ("location: true\nvnetName: 5\nsubnetName: 1.5", |c| {
            (c.location, c.vnet_name, c.subnet_name) = ("true".into(), "5".into(), "1.5".into());
        }),
        ("tagsMap: {a: 1, b: true, c: null}", |c| {
            c.tags_map = [("a", "1"), ("b", "true"), ("c", "")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        }),
        ("useManagedIdentityExtension: yes", |c| c.use_managed_identity_extension = true),
        // Zero values are the default, as for Go's `omitempty` fields.
        ("vmType: ''\nloadBalancerSku: ''\ncloud: ''\nvmCacheTTLInSeconds: 0\nmaximumLoadBalancerRuleCount: 0", |_| {}),
        ("location:\nvmCacheTTLInSeconds: null\ntagsMap: ~", |_| {}),
        ("vmCacheTTLInSeconds: 7\nputVMSSVMBatchSize: 5.0", |c| {
            (c.vm_cache_ttl, c.put_vmss_vm_batch_size) = (Duration::from_secs(7), 5);
        }),
        ("routeUpdateWaitingInSeconds: -1", |_| {}),
        ("vmCacheTTLInSeconds: 9223372036854775807", |c| c.vm_cache_ttl = Duration::from_secs(i32::MAX as u64)),
        ("requestSharePercent: 0", |c| c.request_share_percent = 0),
        ("loadBalancerBackendPoolConfigurationType: nodeip\ncloudConfigType: SECRET", |c| {
            c.load_balancer_backend_pool_configuration_type = BackendPoolType::NodeIp;
            c.cloud_config_type = CloudConfigType::Secret;
        }),
        ("disableOutboundSNAT: false\nexcludeMasterFromStandardLB: null", |c| c.disable_outbound_snat = Some(false)),
        ("vmType: nonsense\nloadBalancerSku: nonsense", |c| {
            (c.vm_type, c.load_balancer_sku) = (VmType::Standard, LoadBalancerSku::Basic);
        }),
        ("location: a\nLOCATION: b", |c| c.location = "b".into()),
        ("location: a\nLOCATION: null", |_| {}),
        ("aadClientID: &id x\nuserAssignedIdentityID: *id", |c| {
            (c.aad_client_id, c.user_assigned_identity_id) = ("x".into(), "x".into());
        }),
    ];
    for (text, change) in cases {
        let mut expected = AzureConfig::default();
        change(&mut expected);
        assert_eq!(good(text), expected, "{text:?}");
    }
}

/// Configuration of the nodes of a managed cluster.
const TYPICAL: &str = r#"{
    "cloud": "AzurePublicCloud", "tenantId": "t", "subscriptionId": "s", "aadClientId": "msi", "aadClientSecret": "msi",
    "resourceGroup": "MC_rg", "location": "westeurope", "vmType": "vmss", "subnetName": "aks-subnet",
    "securityGroupName": "nsg", "vnetName": "vnet", "vnetResourceGroup": "", "routeTableName": "rt",
    "primaryAvailabilitySetName": "", "primaryScaleSetName": "aks-nodepool1-vmss", "cloudProviderBackoffMode": "v2",
    "cloudProviderBackoff": true, "cloudProviderBackoffRetries": 6, "cloudProviderBackoffDuration": 5,
    "cloudProviderRateLimit": true, "cloudProviderRateLimitQPS": 10, "cloudProviderRateLimitBucket": 100,
    "cloudProviderRateLimitQPSWrite": 10, "cloudProviderRateLimitBucketWrite": 100,
    "useManagedIdentityExtension": true, "userAssignedIdentityID": "u", "useInstanceMetadata": true,
    "loadBalancerSku": "Standard", "disableOutboundSNAT": false, "excludeMasterFromStandardLB": true,
    "providerVaultName": "", "maximumLoadBalancerRuleCount": 250, "providerKeyName": "k8s", "providerKeyVersion": ""
}"#;

#[test]
fn a_typical_file_is_fine_but_for_keys_of_old() {
    let found = findings(TYPICAL);
    let is_unknown_field = |finding: &String| finding.starts_with("warning: ") && finding.contains("unknown field, ignored");
    assert!(found.len() == 4 && found.iter().all(is_unknown_field), "{found:?}");
    assert!(crate::providers::azure::config::validate(&good(TYPICAL)).is_empty());
}

#[test]
fn every_problem_is_reported_at_once() {
    let text = "\
tenantId: 5
useInstanceMetadata: \"true\"
vmCacheTTLInSeconds: soon
loadBalancerBackendPoolConfigurationType: pods
tagsMap: [a]
subscriptoinId: s
multipleStandardLoadBalancerConfigurations:
- name: [a]
  primaryVmSet: x
  nodeSelectr: {}
- serviceLabelSelector: {MATCHLABELS: {a: {}}, matchExpressions: [{key: a, operator: Is}]}
putVMSSVMBatchSize: 99999999999
cloudProviderBackoffJitter: .nan
nothingLikeIt: 1
location: a
Location: b
";
    let expected = [
        "error: tenantId (line 1): expected string; put the value in quotes",
        "error: useInstanceMetadata (line 2): expected true or false",
        "error: vmCacheTTLInSeconds (line 3): expected whole number of seconds",
        "error: loadBalancerBackendPoolConfigurationType (line 4): expected one of nodeIPConfiguration, nodeIP, podIP",
        "error: tagsMap (line 5): expected map of string",
        "warning: subscriptoinId (line 6): unknown field, ignored; did you mean subscriptionId?",
        "error: multipleStandardLoadBalancerConfigurations[0].name (line 8): expected string",
        "warning: multipleStandardLoadBalancerConfigurations[0].nodeSelectr (line 10): unknown field, ignored; did you mean nodeSelector?",
        "error: multipleStandardLoadBalancerConfigurations[1].serviceLabelSelector.matchLabels.a (line 11): expected string",
        "error: multipleStandardLoadBalancerConfigurations[1].serviceLabelSelector.matchExpressions[0] (line 11): expected object \
         with key, values and operator, one of In, NotIn, Exists, DoesNotExist; In and NotIn need values, Exists and \
         DoesNotExist have none",
        "error: putVMSSVMBatchSize (line 12): expected whole number",
        "error: cloudProviderBackoffJitter (line 13): expected number",
        "warning: nothingLikeIt (line 14): unknown field, ignored",
        "warning: location (line 16): given more than once, perhaps in different letter case; the last value counts",
    ];
    assert_eq!(findings(text), expected);
}

#[test]
fn limits_by_client_count_in_both_forms() {
    let text = "\
Entries:
  LoadBalancerRateLimit: {cloudProviderRateLimit: true, cloudproviderratelimitqps: 2}
  publicIPAddressRateLimit: {cloudProviderRateLimitBucket: 3}
publicIpAddressRateLimit: {cloudProviderRateLimitBucketWrite: 4}
";
    let limit = ClientRateLimit::default();
    let expected: BTreeMap<_, _> = [
        (
            "loadBalancerRateLimit".to_owned(),
            ClientRateLimit { cloud_provider_rate_limit: true, cloud_provider_rate_limit_qps: 2.0, ..limit.clone() },
        ),
        ("publicIPAddressRateLimit".to_owned(), ClientRateLimit { cloud_provider_rate_limit_bucket_write: 4, ..limit }),
    ]
    .into();
    assert_eq!(good(text).rate_limit_entries, expected);
    assert_eq!(
        findings("entries: {loadBalancersRateLimit: {}}"),
        ["warning: entries.loadBalancersRateLimit (line 1): unknown field, ignored; did you mean loadBalancerRateLimit?"]
    );
}

#[test]
fn selectors_are_read_with_keys_in_any_case() {
    let text = "multipleStandardLoadBalancerConfigurations: [{NAME: lb, nodeselector: {matchlabels: {a: b}, \
                matchExpressions: [{Key: k, operator: In, values: [v]}]}}]";
    let config = good(text);
    let selector = config.multiple_standard_load_balancer_configurations[0].node_selector.clone().unwrap();
    assert_eq!(selector.match_labels.unwrap()["a"], "b");
    assert_eq!(selector.match_expressions.unwrap()[0].values.as_deref(), Some(&["v".to_owned()][..]));
}

#[test]
fn a_second_text_wins_where_it_says_something() {
    let base = good("location: a\nvmType: standard\naadClientId: x");
    let merged = decode_over(base, "location: b\nvmType: ''").config;
    assert_eq!((merged.location.as_str(), merged.vm_type, merged.aad_client_id.as_str()), ("b", VmType::Vmss, "x"));
}

/// Values of every wrong type, each with the secret in it.
fn disguises() -> Vec<String> {
    vec![
        format!("[{SECRET}]"),
        format!("{{{SECRET}: {SECRET}}}"),
        format!("*{SECRET}"),
        format!("!{SECRET} [1]"),
        format!("\"{SECRET}"),
        format!("{SECRET}: {SECRET}"),
    ]
}

#[test]
fn secrets_appear_nowhere() {
    let mut config = AzureConfig::default();
    config.plant_secrets(SECRET);
    let shown = format!("{config:?} {config:#?} {}", config.effective());
    assert!(shown.contains("(set)") && !shown.contains(SECRET), "{shown}");
    let secrets: Vec<_> = FIELDS.iter().filter(|field| field.secret).collect();
    assert_eq!(secrets.len(), 2);
    for field in FIELDS {
        for value in disguises() {
            let decoded = decode(&format!("{}: {value}", field.name));
            let shown = format!("{:?}", decoded.findings).to_lowercase();
            // Keys are not values; only maps show theirs.
            let is_key = value.starts_with('{') && !field.secret;
            assert!(is_key || !shown.contains(SECRET), "{}: {shown}", field.name);
        }
    }
    for number in ["1234567", "true", "1.234567"] {
        let shown = format!("{:?}", decode(&format!("aadClientSecret: {number}")).findings);
        assert!(shown.contains("expected string") && !shown.contains("234567"), "{shown}");
    }
}

#[test]
fn effective_configuration_decodes_to_itself() {
    let text = "resourceGroup: rg\nvmCacheTTLInSeconds: 9\ntagsMap: {a: b}\ndisableOutboundSNAT: false\n\
                auxiliaryTokenProvider: {vaultName: v}\nrouteTableRateLimit: {cloudProviderRateLimitQPS: 1.5}\n\
                multipleStandardLoadBalancerConfigurations: [{name: n, nodeSelector: {matchLabels: {a: b}}}]";
    let config = good(text);
    assert_eq!(good(&config.effective().to_string()), config);
    assert_eq!(good(&AzureConfig::default().effective().to_string()), AzureConfig::default());
}

#[test]
fn the_table_is_sound() {
    let mut names: Vec<_> = FIELDS.iter().map(|field| field.name.to_ascii_lowercase()).collect();
    names.extend(RATE_LIMIT_CLIENTS.iter().map(|name| name.to_ascii_lowercase()));
    names.sort();
    names.dedup();
    assert_eq!(names.len(), FIELDS.len() + RATE_LIMIT_CLIENTS.len());
    let effective = AzureConfig::default().effective();
    for field in FIELDS.iter().filter(|field| !field.default.is_empty()) {
        let shown = effective[field.name].to_string();
        assert_eq!(shown.trim_matches('"').trim_end_matches(".0"), field.default.trim_end_matches(".0"), "{}", field.name);
    }
}

#[test]
fn large_and_deep_texts_are_read_or_refused_without_delay() {
    let texts = [
        (0..20_000).map(|n| format!("unknownKey{n}: v\n")).collect::<String>(),
        (0..20_000).map(|n| format!("lOcation: {n}\n")).collect(),
        format!("tagsMap: {{{}}}", (0..20_000).map(|n| format!("k{n}: v, ")).collect::<String>()),
        format!("tagsMap: {{{}}}", (0..20_000).map(|n| format!("k{n}: [], ")).collect::<String>()),
        (0..20_000).map(|n| format!("{n}: v\n")).collect(),
        (0..20_000).map(|n| format!("0x{n}: v\n{n}: &a{n} v\n")).collect(),
        format!("location: &a {}\ntagsMap: [{}]", "v".repeat(300_000), "*a, ".repeat(900)),
        format!("{}: v", "k".repeat(300_000)),
        format!("location: {}", "v".repeat(300_000)),
        format!("multipleStandardLoadBalancerConfigurations: [{}]", "{}, ".repeat(20_000)),
        format!("tagsMap: {}1{}", "[".repeat(10_000), "]".repeat(10_000)),
    ];
    for text in texts {
        let decoded = decode(&text);
        let longest = decoded.findings.iter().map(|finding| finding.to_string().len()).max();
        assert!(longest.is_none_or(|length| length < 300), "{longest:?}");
    }
}

#[test]
fn an_error_after_many_warnings_is_still_reported() {
    let many: String = (0..200).map(|n| format!("k{n}: , ")).collect();
    let text = format!("tagsMap: {{{}}}\nlocation: [a]", many.repeat(2));
    let found = findings(&text);
    assert_eq!(found.len(), 101, "{found:?}");
    assert_eq!(found.iter().filter(|finding| finding.starts_with("error: location (line 2)")).count(), 1);
    assert_eq!(found.last().map(String::as_str), Some("warning: configuration: 101 further findings"));
}

#[test]
fn fractions_and_words_are_no_whole_numbers() {
    for value in ["5.5", "'5'", "1e300", ".inf", "x", "true", "[5]"] {
        assert_eq!(
            findings(&format!("vmCacheTTLInSeconds: {value}\nputVMSSVMBatchSize: {value}")),
            [
                "error: vmCacheTTLInSeconds (line 1): expected whole number of seconds",
                "error: putVMSSVMBatchSize (line 2): expected whole number"
            ],
            "{value}"
        );
    }
}

#[test]
fn unknown_fields_beyond_fifty_are_counted() {
    let found = findings(&(0..70).map(|n| format!("unknownKey{n}: v\n")).collect::<String>());
    assert_eq!(found.len(), 51);
    assert!(found[50].contains("20 further unknown fields"), "{}", found[50]);
}
