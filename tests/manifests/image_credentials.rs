//! The kubelet's configuration for acr-credential-provider: the kubelet accepts it, and the program accepts its arguments.

use super::*;

const FOLDER: &str = "acr-credential-provider";

#[test]
fn the_kubelet_calls_the_program_for_every_registry() {
    let config: Value = only_document(&format!("{FOLDER}/credential-provider-config.yaml"));
    let kind = (&config["apiVersion"], &config["kind"]);
    assert_eq!(kind, (&"kubelet.config.k8s.io/v1".into(), &"CredentialProviderConfig".into()));
    let [provider] = config["providers"].as_array().unwrap().as_slice() else { panic!("{config}") };
    assert_eq!(provider["name"], FOLDER, "the provider has the name of the program");
    assert_eq!(provider["apiVersion"], "credentialprovider.kubelet.k8s.io/v1");
    let patterns: Vec<&str> = provider["matchImages"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let suffixes = ["azurecr.io", "azurecr.cn", "azurecr.de", "azurecr.us"];
    let regional = suffixes.map(|suffix| format!("*.*.geo.{suffix}"));
    assert_eq!(patterns, [suffixes.map(|suffix| format!("*.{suffix}")), regional].concat());
    let arguments: Vec<String> = serde_json::from_value(provider["args"].clone()).unwrap();
    let CliCommand::ProvideImageCredentials(options) = parse(FOLDER, &arguments) else { panic!("{arguments:?}") };
    assert_eq!(options.config.cloud_config.to_str(), Some("/etc/kubernetes/azure.json"));
}
