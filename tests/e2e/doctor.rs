//! The diagnostic commands as a person runs them: on a healthy cluster, with injected faults, after the deletion of a Service without a
//! manager, and a support bundle without secrets.

use std::{io::Read, path::Path, process::Command};

use serde_json::{Value, json};

use crate::{
    azure::{Azure, initialized},
    control_plane::{ADMIN_TOKEN, ControlPlane},
    objects::Objects,
    support::{Manager, binary},
};

/// Client secret in the `azure.json` of the simulation.
const SECRET: &str = "sandbox-secret";

/// Runs a command with the manager's configuration, and returns its exit code and output.
fn run(plane: &ControlPlane, azure: &Azure, words: &[&str]) -> (i32, String) {
    let kubeconfig = plane.folder().join("admin.kubeconfig");
    let mut command = Command::new(binary());
    command.args(words).arg(format!("--kubeconfig={}", kubeconfig.display()));
    command.arg(format!("--cloud-config={}", azure.config.display())).env("SSL_CERT_FILE", &azure.ca_file);
    let output = command.output().expect("the command runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!text.contains(SECRET) && !text.contains(ADMIN_TOKEN), "{text}");
    (output.status.code().unwrap_or(-1), text + &String::from_utf8_lossy(&output.stderr))
}

/// Runs doctor with the rights of an account, and returns its exit code and rows of check, state and text.
fn examined(plane: &ControlPlane, azure: &Azure, account: &str) -> (i32, Vec<(String, String, String)>) {
    let account = format!("--service-account={account}");
    let (code, text) = run(plane, azure, &["doctor", "-o", "json", "--configure-cloud-routes=false", &account]);
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let text = |row: &Value, field: &str| row[field].as_str().unwrap_or_default().to_owned();
    let rows = report["findings"].as_array().expect("findings");
    (code, rows.iter().map(|row| (text(row, "check"), text(row, "state"), text(row, "text"))).collect())
}

pub(crate) async fn finds_faults(plane: &mut ControlPlane, objects: &Objects) {
    let azure = Azure::start(plane, "doctor").await;
    let manager = azure.manager_with_only(plane, "doctor", &["--configure-cloud-routes=false"]).await;
    initialized(&azure, objects).await;
    objects.add_service("web").await;
    azure.simulation.azure().clear_requests();
    let account = "kube-system/cloud-controller-manager";
    let (code, rows) = examined(plane, &azure, account);
    let not_ok: Vec<_> = rows.iter().filter(|(_, state, _)| state != "ok").collect();
    // The manager under test is not a pod, and the API server may be old.
    let is_expected =
        |row: &&(String, String, String)| row.1 == "warning" && ["lease", "versions"].contains(&row.0.as_str());
    assert!(code == 0 && not_ok.iter().all(is_expected), "{rows:#?}");
    assert!(not_ok.iter().any(|(check, ..)| check == "lease"), "{rows:#?}");
    assert_eq!(run(plane, &azure, &["orphans"]), (0, "no orphans\n".to_owned()));

    let (code, rows) = examined(plane, &azure, "default/nobody");
    let rights = rows.iter().filter(|(check, state, _)| check == "rights" && state == "problem");
    assert!(code == 2 && rights.clone().count() > 20, "{rows:#?}");
    assert!(rights.clone().any(|(_, _, text)| text.contains("default/nobody may not patch nodes/status")), "{rows:#?}");

    bundle(plane, &azure, &manager);
    manager.stop().await;
    orphans(plane, &azure, objects).await;
    let (code, rows) = examined(plane, &azure, account);
    let has = |check: &str, state: &str| rows.iter().any(|row| row.0 == check && row.1 == state);
    assert!(code == 2 && has("lease", "problem") && has("azure-orphans", "warning"), "{rows:#?}");
}

/// A Service whose finalizer was removed is deleted while no manager runs: its Azure resources remain.
async fn orphans(plane: &ControlPlane, azure: &Azure, objects: &Objects) {
    objects.patch_service("web", json!({"metadata": {"finalizers": null}})).await;
    objects.remove_service("web").await;
    let (code, text) = run(plane, azure, &["orphans", "-o", "json"]);
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let mut kinds: Vec<&str> =
        report["orphans"].as_array().expect("orphans").iter().filter_map(|orphan| orphan["kind"].as_str()).collect();
    kinds.dedup();
    assert_eq!(kinds, ["load_balancing_rule", "probe", "front_end", "security_rule", "public_ip"], "{report:#}");
    assert!(code == 2 && report["complete"] == true, "{report:#}");
    let (code, text) = run(plane, azure, &["orphans"]);
    assert!(
        code == 2 && text.contains("default/web no longer exists") && text.contains("az network public-ip delete --ids"),
        "{text}"
    );
}

fn bundle(plane: &ControlPlane, azure: &Azure, manager: &Manager) {
    let (token, file) = (plane.folder().join("bundle.token"), plane.folder().join("bundle.tar.gz"));
    std::fs::write(&token, ADMIN_TOKEN).expect("the token");
    let url = format!("--url={}", manager.url());
    let words = [format!("--token-file={}", token.display()), format!("--file={}", file.display())];
    let words =
        ["support-bundle", "--insecure-skip-tls-verify", "--configure-cloud-routes=false", &url, &words[0], &words[1]];
    let (code, text) = run(plane, azure, &words);
    let content = unpacked(&file);
    assert!(code == 0 && content.contains("no report: this manager writes"), "{text}\n{content}");
    assert!(!content.contains(SECRET) && !content.contains(ADMIN_TOKEN), "{content}");
    for part in [
        "ccm-support/metrics.txt",
        "workqueue_depth",
        "\"leading\":true",
        "\"aadClientSecret\": \"(set)\"",
        "EnsuredLoadBalancer",
    ] {
        assert!(content.contains(part), "{part} is missing: {content}");
    }
}

fn unpacked(file: &Path) -> String {
    let mut bytes = Vec::new();
    let archive = std::fs::File::open(file).expect("the archive");
    flate2::read::GzDecoder::new(archive).read_to_end(&mut bytes).expect("gzip");
    String::from_utf8_lossy(&bytes).into_owned()
}
