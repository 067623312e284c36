//! `check-config` on the simulated cloud: what fails it, and that nothing is sent offline.

use super::*;

async fn checked(cloud: &World, config: &Value, is_online: bool, is_strict: bool) -> CheckReport {
    let folder = tempfile::tempdir().unwrap();
    let diagnostics = AzureDiagnostics::over(cloud.azure().transport(), BTreeMap::new());
    let report = diagnostics.check(&request(config, &folder, Vec::new()), is_online, is_strict).await;
    let text = format!("{report:?}");
    assert!(!text.contains(CLIENT_SECRET) && !text.contains("sandbox-token"), "{text}");
    report
}

fn errors(report: &CheckReport) -> Vec<&DiagnosticFinding> {
    report.findings.iter().filter(|finding| finding.state == Problem).collect()
}

#[tokio::test(start_paused = true)]
async fn offline_check_sends_nothing_and_names_errors() {
    let cloud = cloud();
    assert!(errors(&checked(&cloud, &cloud.config(), false, true).await).is_empty());
    let typo = with(cloud.config(), "subnetNam", json!("x"));
    let lenient = checked(&cloud, &typo, false, false).await;
    assert_found(&lenient.findings, (CONFIG, Warning, "did you mean subnetName", ""));
    assert!(errors(&lenient).is_empty() && lenient.configuration.is_some(), "{lenient:?}");
    let strict = checked(&cloud, &typo, false, true).await;
    assert!(errors(&strict).len() == 1 && strict.configuration.is_none(), "{strict:?}");
    let bad = checked(&cloud, &with(cloud.config(), "vmCacheTTLInSeconds", json!("soon")), true, false).await;
    assert!(errors(&bad)[0].text.contains("vmCacheTTLInSeconds"), "{bad:?}");
    assert_eq!(cloud.azure().requests().len(), 0, "what is wrong offline is not tried");
}

#[tokio::test(start_paused = true)]
async fn the_watches_of_a_configuration_are_listed() {
    let cloud = cloud();
    let entry =
        json!({"name": "kubernetes", "primaryVMSet": "uni", "serviceNamespaceSelector": {"matchLabels": {"a": "b"}}});
    let several = with(cloud.config(), "multipleStandardLoadBalancerConfigurations", json!([entry]));
    let several = with(several, "loadBalancerBackendPoolConfigurationType", json!("nodeIP"));
    for (config, is_watched) in [(cloud.config(), false), (several, true)] {
        let text = checked(&cloud, &config, false, false).await.configuration.unwrap();
        let watches = ["Namespaces", "EndpointSlices"].map(|kind| text.contains(&format!("watches {kind}, since")));
        assert_eq!(watches, [is_watched; 2], "{config}");
    }
    let negative = with(cloud.config(), "loadBalancerBackendPoolUpdateIntervalInSeconds", json!(-1));
    let refused = checked(&cloud, &negative, false, false).await;
    assert!(errors(&refused)[0].text.contains("not below 0"), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn online_check_reads_permissions_and_writes_nothing() {
    let cloud = cloud();
    let report = checked(&cloud, &cloud.config(), true, false).await;
    assert_found(&report.findings, (WRITES, Fine, "actions that write are granted", ""));
    assert!(report.findings.iter().all(|finding| finding.state == Fine), "{report:?}");
    assert!(cloud.azure().count(|request| request.resource_type == "microsoft.authorization/permissions") > 0);
    assert_eq!(cloud.azure().count(|request| request.method != "GET" && !request.path.ends_with("/token")), 0);
}

#[tokio::test(start_paused = true)]
async fn online_check_fails_on_missing_permissions() {
    let cloud = cloud();
    let planted = cloud.config_with(&Login::Secret(CLIENT_ID.to_owned(), "planted".to_owned()));
    let report = checked(&cloud, &planted, true, false).await;
    assert!(errors(&report).len() == 1 && !format!("{report:?}").contains("planted"), "{report:?}");
    for (denied, expected) in [("Microsoft.Network/loadBalancers/write", 1), ("Microsoft.Authorization/permissions/read", 0)]
    {
        cloud.azure().allow_all();
        cloud.azure().deny(denied, "");
        let report = checked(&cloud, &cloud.config(), true, false).await;
        assert_eq!(errors(&report).len(), expected, "{denied}: {report:?}");
    }
    cloud.azure().allow_all();
    cloud.azure().faults().set_down(true);
    let report = checked(&cloud, &cloud.config(), true, false).await;
    assert_found(&report.findings, (NETWORK, Problem, "no route to", "resourceManagerEndpoint"));
}

#[test]
fn unread_rights_fail_the_check_and_clocks_do_not() {
    let unread = DiagnosticFinding::undetermined(READS, "HTTP 503", "try again later");
    let expected = DiagnosticFinding::problem(READS, "HTTP 503", "try again later");
    assert_eq!(verdicts::for_check(unread), Some(expected));
    assert_eq!(verdicts::for_check(DiagnosticFinding::problem(CLOCK, "600 s behind", "")), None);
}
