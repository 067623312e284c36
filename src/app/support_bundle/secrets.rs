//! Secrets that this process can read, for the redaction of every file.
//!
//! In: the environment, the kubeconfig, files of tokens. Out: their values. A file that this process cannot read cannot leak.

use std::path::Path;

use serde_json::Value;

use crate::{cli::SupportBundleOptions, runtime::yaml};

/// Maximum size of a file that is searched, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// Fields of a kubeconfig with secrets.
const KUBECONFIG_FIELDS: [&str; 5] = ["token", "password", "client-key-data", "id-token", "refresh-token"];
/// Fields with paths of files that are secrets.
const KUBECONFIG_FILES: [&str; 2] = ["tokenFile", "client-key"];
/// Words in names of variables whose values are secrets.
const VARIABLES: [&str; 4] = ["SECRET", "PASSWORD", "TOKEN", "_KEY"];
/// Path of a pod's token.
const POD_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// Returns the values of all secrets that were found.
pub(super) fn secret_values(options: &SupportBundleOptions, environment: &[(String, String)]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for (name, value) in environment {
        let is_secret = VARIABLES.iter().any(|word| name.to_ascii_uppercase().contains(word));
        // A path is not a secret itself.
        found.extend((is_secret && !value.starts_with('/')).then(|| value.clone()));
        found.extend(passwords(value));
    }
    if let Some(file) = &options.diagnose.manager.kube_api.kubeconfig {
        let tree = read(file).and_then(|text| yaml::parse::<Value>(&text).ok());
        tree.iter().for_each(|tree| collect(tree, file.parent().unwrap_or(Path::new("")), &mut found));
    }
    let token = options.status.url.as_ref().and_then(|url| url.token_file.clone());
    found.extend(token.iter().map(|file| file.as_path()).chain([Path::new(POD_TOKEN)]).filter_map(read));
    found
}

fn read(path: &Path) -> Option<String> {
    let is_small = std::fs::metadata(path).is_ok_and(|facts| facts.is_file() && facts.len() <= MAX_FILE);
    is_small.then(|| std::fs::read_to_string(path).ok()).flatten()
}

fn collect(tree: &Value, folder: &Path, found: &mut Vec<String>) {
    match tree {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if KUBECONFIG_FIELDS.contains(&name.as_str()) => found.push(text.clone()),
                    Value::String(text) if KUBECONFIG_FILES.contains(&name.as_str()) => {
                        found.extend(read(&folder.join(text)))
                    }
                    Value::String(text) => found.extend(passwords(text)),
                    value => collect(value, folder, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, folder, found)),
        _ => {}
    }
}

/// Returns the password in `scheme://user:password@host`.
fn passwords(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("://")?;
    let (user, _) = rest.split(['/', '?', '#']).next()?.rsplit_once('@')?;
    user.split_once(':').map(|(_, password)| password.to_owned())
}
