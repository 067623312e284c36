//! `check-config` on the simulated cloud: what fails it, and that nothing is sent offline.

use super::*;

async fn checked(world: &World, config: &Value, is_online: bool, is_strict: bool) -> CheckReport {
    let folder = tempfile::tempdir().unwrap();
    let diagnostics = AzureDiagnostics::over(world.azure().transport(), BTreeMap::new());
    let report = diagnostics.check(&request(config, &folder, Vec::new()), is_online, is_strict).await;
    let text = format!("{report:?}");
    assert!(!text.contains(CLIENT_SECRET) && !text.contains("sandbox-token"), "{text}");
    report
}

fn errors(report: &CheckReport) -> Vec<&DiagnosticFinding> {
    report.findings.iter().filter(|finding| finding.state == Problem).collect()
}

#[tokio::test(start_paused = true)]
async fn offline_nothing_is_sent_and_what_is_wrong_is_named() {
    let world = world();
    assert!(errors(&checked(&world, &world.config(), false, true).await).is_empty());
    let typo = with(world.config(), "subnetNam", json!("x"));
    let lenient = checked(&world, &typo, false, false).await;
    assert_found(&lenient.findings, (CONFIG, Warning, "did you mean subnetName", ""));
    assert!(errors(&lenient).is_empty() && lenient.configuration.is_some(), "{lenient:?}");
    let strict = checked(&world, &typo, false, true).await;
    assert!(errors(&strict).len() == 1 && strict.configuration.is_none(), "{strict:?}");
    let bad = checked(&world, &with(world.config(), "vmCacheTTLInSeconds", json!("soon")), true, false).await;
    assert!(errors(&bad)[0].text.contains("vmCacheTTLInSeconds"), "{bad:?}");
    assert_eq!(world.azure().requests().len(), 0, "what is wrong offline is not tried");
}

#[tokio::test(start_paused = true)]
async fn the_watches_of_a_configuration_are_listed() {
    let world = world();
    let entry =
        json!({"name": "kubernetes", "primaryVMSet": "uni", "serviceNamespaceSelector": {"matchLabels": {"a": "b"}}});
    let several = with(world.config(), "multipleStandardLoadBalancerConfigurations", json!([entry]));
    let several = with(several, "loadBalancerBackendPoolConfigurationType", json!("nodeIP"));
    for (config, is_watched) in [(world.config(), false), (several, true)] {
        let text = checked(&world, &config, false, false).await.configuration.unwrap();
        let watches = ["Namespaces", "EndpointSlices"].map(|kind| text.contains(&format!("watches {kind}, since")));
        assert_eq!(watches, [is_watched; 2], "{config}");
    }
    let negative = with(world.config(), "loadBalancerBackendPoolUpdateIntervalInSeconds", json!(-1));
    let refused = checked(&world, &negative, false, false).await;
    assert!(errors(&refused)[0].text.contains("not below 0"), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn online_permissions_are_looked_up_and_nothing_is_written() {
    let world = world();
    let report = checked(&world, &world.config(), true, false).await;
    assert_found(&report.findings, (WRITES, Fine, "actions that write are granted", ""));
    assert!(report.findings.iter().all(|finding| finding.state == Fine), "{report:?}");
    assert!(world.azure().count(|request| request.resource_type == "microsoft.authorization/permissions") > 0);
    assert_eq!(world.azure().count(|request| request.method != "GET" && !request.path.ends_with("/token")), 0);
}

#[tokio::test(start_paused = true)]
async fn online_what_is_missing_fails_the_check() {
    let world = world();
    let planted = world.config_with(&Login::Secret(CLIENT_ID.to_owned(), "planted".to_owned()));
    let report = checked(&world, &planted, true, false).await;
    assert!(errors(&report).len() == 1 && !format!("{report:?}").contains("planted"), "{report:?}");
    for (denied, expected) in [("Microsoft.Network/loadBalancers/write", 1), ("Microsoft.Authorization/permissions/read", 0)]
    {
        world.azure().allow_all();
        world.azure().deny(denied, "");
        let report = checked(&world, &world.config(), true, false).await;
        assert_eq!(errors(&report).len(), expected, "{denied}: {report:?}");
    }
    world.azure().allow_all();
    world.azure().faults().set_down(true);
    let report = checked(&world, &world.config(), true, false).await;
    assert_found(&report.findings, (NETWORK, Problem, "no route to", "resourceManagerEndpoint"));
}

#[test]
fn unread_rights_fail_the_check_and_clocks_do_not() {
    let unread = DiagnosticFinding::unknown(READS, "HTTP 503", "try again later");
    let expected = DiagnosticFinding::problem(READS, "HTTP 503", "try again later");
    assert_eq!(verdicts::for_check(unread), Some(expected));
    assert_eq!(verdicts::for_check(DiagnosticFinding::problem(CLOCK, "600 s behind", "")), None);
}
