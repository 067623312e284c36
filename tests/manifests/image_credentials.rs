//! The kubelet's configuration for acr-credential-provider: the kubelet accepts it, and it calls the program as it wants to be called.

use super::*;

const FOLDER: &str = "acr-credential-provider";

#[test]
fn the_kubelet_calls_the_program_for_every_registry() {
    let config = documents(&format!("{FOLDER}/credential-provider-config.yaml")).remove(0);
    let kind = (&config["apiVersion"], &config["kind"]);
    assert_eq!(kind, (&"kubelet.config.k8s.io/v1".into(), &"CredentialProviderConfig".into()));
    let [provider] = config["providers"].as_array().unwrap().as_slice() else { panic!("{config}") };
    assert_eq!(provider["name"], FOLDER, "the program is called like its provider");
    assert_eq!(provider["apiVersion"], "credentialprovider.kubelet.k8s.io/v1");
    let patterns: Vec<&str> = provider["matchImages"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(patterns, ["*.azurecr.io", "*.azurecr.cn", "*.azurecr.de", "*.azurecr.us"]);
    let words = provider["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned());
    let words = std::iter::once(FOLDER.to_owned()).chain(words).map(OsString::from);
    let Ok(CliCommand::ProvideImageCredentials(options)) = cli::parse(words, &["azure"], &[]) else {
        panic!("{}", provider["args"])
    };
    assert_eq!(options.config.cloud_config.to_str(), Some("/etc/kubernetes/azure.json"));
}
