use super::*;
use crate::providers::azure::config::{decode, finding::FindingSeverity};

const BASE: &str = "subscriptionId: s\nresourceGroup: rg\nlocation: l\nuseManagedIdentityExtension: true\n";
const SECRET: &str = "useManagedIdentityExtension: false\naadClientSecret: hunter2\n";

/// Findings about the base with `text` over it, as `severity field`.
fn found(text: &str) -> Vec<String> {
    let base = decode(BASE).config;
    let decoded = super::super::decode_over(base, text);
    assert!(decoded.findings.is_empty(), "{:?}", decoded.findings);
    let findings = validate(&decoded.config);
    assert!(!format!("{findings:?}").contains("hunter2"), "{findings:?}");
    let severity = |severity| if severity == FindingSeverity::Error { "error" } else { "warning" };
    findings.iter().map(|finding| format!("{} {}", severity(finding.severity), finding.field)).collect()
}

#[test]
fn each_rule() {
    let cases: &[(&str, &[&str])] = &[
        ("", &[]),
        ("subscriptionId: ''", &["error subscriptionId"]),
        ("resourceGroup: ''", &["error resourceGroup"]),
        ("location: ''", &["warning location"]),
        ("extendedLocationType: EdgeZone", &["warning extendedLocationName"]),
        ("extendedLocationType: EdgeZone\nextendedLocationName: e", &[]),
        ("disableAvailabilitySetNodes: true", &[]),
        ("disableAvailabilitySetNodes: true\nvmType: vmssflex", &["error disableAvailabilitySetNodes"]),
        ("disableAvailabilitySetNodes: true\nvmType: standard", &["error disableAvailabilitySetNodes"]),
        ("enableVmssFlexNodes: true\nvmType: standard", &["warning enableVmssFlexNodes"]),
        ("requestSharePercent: 0", &["error requestSharePercent"]),
        ("maximumPrivateLinkServiceCount: 0", &["error maximumPrivateLinkServiceCount"]),
        ("maximumPrivateLinkServiceCount: 1", &[]),
        ("maximumPrivateLinkServiceCount: 800", &[]),
        ("maximumPrivateLinkServiceCount: 801", &["error maximumPrivateLinkServiceCount"]),
        ("maximumNetworkInterfaceRuleCount: 0", &[]),
        ("maximumNetworkInterfaceRuleCount: -1", &["error maximumNetworkInterfaceRuleCount"]),
        ("maximumServiceRuleCount: 0", &[]),
        ("maximumServiceRuleCount: -1", &["error maximumServiceRuleCount"]),
        ("maximumServiceSourceRangeCount: -2147483648", &["error maximumServiceSourceRangeCount"]),
        ("maximumServiceSecurityRuleCount: -1", &["error maximumServiceSecurityRuleCount"]),
        ("maximumNamespaceFactor: -1", &["error maximumNamespaceFactor"]),
        ("maximumLoadBalancerRuleCount: -1", &["warning maximumLoadBalancerRuleCount"]),
        ("vnetName: a b", &["warning vnetName"]),
        ("subnetName: /subscriptions/s", &["warning subnetName"]),
        ("securityGroupName: nsg-", &["warning securityGroupName"]),
        ("routeTableName: routes_", &[]),
        ("loadBalancerName: a/b", &["warning loadBalancerName"]),
        ("loadBalancerName: lb-Internal", &["warning loadBalancerName"]),
        ("loadBalancerName: lb_", &[]),
        ("resourceGroup: Größe_(1)", &[]),
        ("resourceGroup: rg.", &["warning resourceGroup"]),
        ("vnetResourceGroup: a?b", &["warning vnetResourceGroup"]),
        ("primaryScaleSetName: vmss one", &["warning primaryScaleSetName"]),
        ("allowedPublicIPResourceGroups: 'a, b c,'", &["warning allowedPublicIPResourceGroups"]),
        ("requestSharePercent: 1", &[]),
        ("requestSharePercent: 100", &[]),
        ("requestSharePercent: 101", &["error requestSharePercent"]),
        ("cloudProviderRateLimitQPS: -1", &["warning cloudProviderRateLimitQPS"]),
        ("diskRateLimit: {cloudProviderRateLimitBucketWrite: -1}", &["warning entries.diskRateLimit"]),
        ("cloudProviderBackoffExponent: 0.5", &["warning cloudProviderBackoffExponent"]),
        ("allowedAdditionalPublicIPs: ''", &[]),
        ("allowedAdditionalPublicIPs: any", &[]),
        ("allowedAdditionalPublicIPs: none", &[]),
        ("allowedAdditionalPublicIPs: 20.0.0.0/24, 2603::/16", &[]),
        ("allowedAdditionalPublicIPs: all", &["error allowedAdditionalPublicIPs"]),
        ("allowedAdditionalPublicIPs: 20.0.0.1/24", &["error allowedAdditionalPublicIPs"]),
        ("allowedAdditionalPublicIPs: '20.0.0.0/24,'", &["error allowedAdditionalPublicIPs"]),
        ("tags: a=b, c = d,,e=", &[]),
        ("tags: a=b,c,=d,e=f=g", &["warning tags"]),
        ("disableOutboundSNAT: true", &[]),
        ("disableOutboundSNAT: true\nloadBalancerSku: basic", &["error disableOutboundSNAT"]),
        ("disableOutboundSNAT: false\nloadBalancerSku: basic", &[]),
        ("preConfiguredBackendPoolLoadBalancerTypes: internal", &[]),
        ("preConfiguredBackendPoolLoadBalancerTypes: Internal", &["warning preConfiguredBackendPoolLoadBalancerTypes"]),
        ("clusterServiceSharedLoadBalancerHealthProbePort: 65536", &[]),
        (
            "clusterServiceLoadBalancerHealthProbeMode: shared\nclusterServiceSharedLoadBalancerHealthProbePort: 65536",
            &["error clusterServiceSharedLoadBalancerHealthProbePort"],
        ),
        (
            "clusterServiceLoadBalancerHealthProbeMode: Shared\nclusterServiceSharedLoadBalancerHealthProbePath: x",
            &["warning clusterServiceSharedLoadBalancerHealthProbePath"],
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(found(text), *expected, "{text}");
    }
}

#[test]
fn tags_that_arm_refuses_are_reported() {
    let long = format!("tags: a={}", "v".repeat(257));
    let many: Vec<String> = (0..51).map(|number| format!("k{number}=v")).collect();
    for text in [long, "tagsMap: {a/b: c}".to_owned(), format!("tags: {}", many.join(","))] {
        assert_eq!(found(&text), ["warning tags"], "{text}");
    }
}

#[test]
fn the_service_gateway_is_all_or_nothing() {
    let parts =
        ["serviceGatewayEnabled: true\n", "loadBalancerBackendPoolConfigurationType: podIP\n", "loadBalancerSku: service\n"];
    for mask in 0..8_usize {
        let chosen: String = (0..3).filter(|part| mask >> part & 1 == 1).map(|part| parts[part]).collect();
        let expected: &[&str] = if mask == 0 || mask == 7 { &[] } else { &["error serviceGatewayEnabled"] };
        assert_eq!(found(&chosen), expected, "{chosen}");
    }
    let whole = parts.concat();
    let several = "multipleStandardLoadBalancerConfigurations: [{name: a, primaryVMSet: b}]\n";
    assert_eq!(
        found(&format!("{whole}{several}enableMigrateToIPBasedBackendPoolAPI: true")),
        [
            "error multipleStandardLoadBalancerConfigurations",
            "error enableMigrateToIPBasedBackendPoolAPI",
            "warning multipleStandardLoadBalancerConfigurations"
        ]
    );
}

#[test]
fn several_load_balancers_need_distinct_names_and_vm_sets() {
    let entries = |entries: &str| format!("multipleStandardLoadBalancerConfigurations: [{entries}]\n");
    let node_ip = "loadBalancerBackendPoolConfigurationType: nodeIP\n";
    let single = entries("{name: a, primaryVMSet: b}");
    assert_eq!(found(&format!("{node_ip}{single}")), [""; 0]);
    assert_eq!(found(&single), ["error multipleStandardLoadBalancerConfigurations"]);
    assert_eq!(found(&format!("loadBalancerSku: basic\n{single}")), ["warning multipleStandardLoadBalancerConfigurations"]);
    assert_eq!(
        found(&format!("{node_ip}{}", entries("{name: a, primaryVMSet: b}, {name: A, primaryVMSet: B}, {}"))),
        ["[1].name", "[1].primaryVMSet", "[2].name", "[2].primaryVMSet"]
            .map(|path| format!("error multipleStandardLoadBalancerConfigurations{path}"))
    );
}

#[test]
fn names_of_entries_can_be_those_of_load_balancers() {
    let of = |name: &str| {
        found(&format!(
            "loadBalancerBackendPoolConfigurationType: nodeIP\nmultipleStandardLoadBalancerConfigurations: [{{name: {name:?}, primaryVMSet: p}}]\n"
        ))
    };
    let long = "l".repeat(72);
    for name in ["", " ", "x-internal", "X-INTERNAL", "-x", "x.", "a b", "x/y", &long] {
        assert_eq!(of(name), ["error multipleStandardLoadBalancerConfigurations[0].name"], "{name:?}");
    }
    for name in ["x", "x-internal2", "X_", &long[1..]] {
        assert_eq!(of(name), [""; 0], "{name:?}");
    }
    let empty = "loadBalancerBackendPoolConfigurationType: nodeIP\nmultipleStandardLoadBalancerConfigurations: [{name: a, primaryVMSet: p, serviceLabelSelector: {}}]\n";
    assert_eq!(found(empty), ["warning multipleStandardLoadBalancerConfigurations[0].serviceLabelSelector"]);
}

#[test]
fn odd_names_are_shown_cut_with_what_is_accepted() {
    let name = format!("a b{}", "x".repeat(200));
    let config = AzureConfig { vnet_name: name.clone(), ..decode(BASE).config };
    let findings = validate(&config);
    let [finding] = findings.as_slice() else { panic!("{findings:?}") };
    assert!(finding.message.contains("expected 1 to 80 letters"), "{finding}");
    assert!(finding.message.contains(&format!("`{}`", &name[..64])), "{finding}");
}

#[test]
fn an_entry_must_have_the_name_of_the_cluster() {
    let config = |sku: &str| {
        let text = "multipleStandardLoadBalancerConfigurations: [{name: Kubernetes, primaryVMSet: p}]\n";
        crate::providers::azure::config::decode(&format!("{text}loadBalancerSku: {sku}\n")).config
    };
    let missing = |cluster: &str, sku: &str| super::missing_cluster_entry(&config(sku), cluster).is_some();
    assert_eq!(["kubernetes", "other", ""].map(|cluster| missing(cluster, "standard")), [false, true, false]);
    assert!(!missing("other", "basic"));
    assert!(super::missing_cluster_entry(&AzureConfig::default(), "other").is_none());
}

#[test]
fn a_cluster_name_is_judged_where_it_names_load_balancers() {
    let named = AzureConfig { load_balancer_name: "lb".into(), ..AzureConfig::default() };
    let (longest, long) = ("c".repeat(71), "c".repeat(72));
    for (cluster, accepted) in [
        ("kubernetes", None),
        ("", None),
        (&longest, None),
        (&long, Some("at most 71 letters")),
        ("my cluster", Some("found `my cluster`")),
        ("prod-internal", Some("must not end in -internal")),
    ] {
        let finding = super::unusable_cluster_name(&AzureConfig::default(), cluster).map(|finding| finding.to_string());
        match accepted {
            Some(text) => assert!(finding.as_ref().is_some_and(|finding| finding.contains(text)), "{cluster}: {finding:?}"),
            None => assert_eq!(finding, None, "{cluster}"),
        }
        assert_eq!(super::unusable_cluster_name(&named, cluster), None, "{cluster}");
    }
}

#[test]
fn credentials_are_complete() {
    let whole = "tenantId: t\naadClientId: c\n";
    let none = "useManagedIdentityExtension: false\n";
    let workload = format!("{whole}useFederatedWorkloadIdentityExtension: true\n");
    let cases = [
        (format!("{SECRET}{whole}"), vec![]),
        (SECRET.to_owned(), vec!["error tenantId", "error aadClientId"]),
        (format!("{none}aadClientCertPath: /c\ntenantId: t"), vec!["error aadClientId"]),
        (format!("{none}aadMSIDataPlaneIdentityPath: /c"), vec![]),
        (workload.clone(), vec!["error aadFederatedTokenFile"]),
        (format!("{workload}aadFederatedTokenFile: /f"), vec![]),
        (format!("{SECRET}{whole}userAssignedIdentityID: u"), vec!["warning userAssignedIdentityID"]),
        (none.to_owned(), vec!["warning "]),
        (format!("{none}cloudConfigType: file"), vec!["error cloudConfigType"]),
        (format!("{none}cloudConfigType: file\nuseInstanceMetadata: true"), vec!["warning "]),
        ("tenantId: t\nnetworkResourceTenantID: T".to_owned(), vec![]),
        ("tenantId: t\nnetworkResourceTenantID: other".to_owned(), vec!["error auxiliaryTokenProvider"]),
        ("auxiliaryTokenProvider: {vaultName: v}".to_owned(), vec!["error auxiliaryTokenProvider"]),
        (format!("{SECRET}{whole}networkResourceTenantID: other"), vec![]),
        ("cloud: azurechinacloud".to_owned(), vec![]),
        ("cloud: AzureGermanCloud".to_owned(), vec!["warning cloud"]),
        ("cloud: own\nresourceManagerEndpoint: https://arm.example:8443/".to_owned(), vec![]),
        ("resourceManagerEndpoint: arm.example".to_owned(), vec!["error resourceManagerEndpoint"]),
        ("resourceManagerEndpoint: https://u:hunter2@arm.example".to_owned(), vec!["error resourceManagerEndpoint"]),
    ];
    for (text, expected) in cases {
        assert_eq!(found(&text), expected, "{text}");
    }
}
