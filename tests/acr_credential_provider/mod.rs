//! `acr-credential-provider` against a simulated registry, Entra, metadata service and identity binding.
//!
//! `wire` calls the code in process, with every refusal. `program` runs the built binary as the kubelet does, over TLS. `CCM_BINARY`
//! names the program of the image instead of the built one.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests outside test functions")]
#![allow(clippy::disallowed_methods, reason = "the program is another process, whose clock cannot be paused")]

mod program;
mod wire;

use std::{fs, path::PathBuf};

use cloud_controller_manager::{
    runtime::clock::Clock,
    sandbox::azure::{
        AzureOptions,
        entra::Credential,
        topology::{Login, Pool, PoolKind, Reach, Topology},
        world::{CLIENT_ID, CLIENT_SECRET, World},
    },
};
use serde_json::{Value, json};

/// Application that trusts the service account token.
const POD_CLIENT: &str = "00000000-0000-0000-0000-0000000000b0";
const POD_TENANT: &str = "11111111-0000-0000-0000-0000000000b0";
/// Part of every secret. No log may contain it.
const MARK: &str = "pl4nt3d";
const POD_TOKEN: &str = "pl4nt3d-service-account-token";
const REGISTRY: &str = "foo.azurecr.io";
const MIRROR: &str = "abc.azurecr.io";
const BINDING: &str = "ib.cluster.example";

/// Returns a cloud with one machine, registries, an identity binding and an application for the Pod.
fn simulated_cloud() -> World {
    let topology = Topology::new().pool(Pool::new(PoolKind::Uniform, "pool1", 1));
    let simulation = World::new(topology, AzureOptions::immediate(), Clock::System).unwrap();
    [REGISTRY, MIRROR].into_iter().for_each(|host| simulation.add_registry(host));
    simulation.add_identity_binding(BINDING);
    let tenant = simulation.topology().tenant;
    simulation.with_directory(|directory| {
        for tenant in [POD_TENANT, &tenant] {
            directory.add_credential(tenant, POD_CLIENT, Credential::FederatedToken(POD_TOKEN.to_owned()));
        }
    });
    simulation
}

/// Client id of the machine's identity.
const MACHINE: &str = "00000000-0000-0000-0000-0000000000d0";

fn node(simulation: &World) -> String {
    simulation.nodes()[0].metadata.name.clone().unwrap()
}

/// Writes an azure.json with the machine's identity, or with the service principal.
fn azure_json(simulation: &World, folder: &tempfile::TempDir, managed: bool) -> PathBuf {
    let principal = Login::Secret(CLIENT_ID.to_owned(), format!("{CLIENT_SECRET}-{MARK}"));
    let mut config = simulation.topology().config(&Reach::Public, &principal);
    config["useManagedIdentityExtension"] = json!(managed);
    let path = folder.path().join("azure.json");
    fs::write(&path, config.to_string()).unwrap();
    path
}

/// Returns the request of the kubelet for an image. `pod` adds the token and the annotations of its service account.
fn request(image: &str, pod: bool) -> Value {
    let mut request = json!({
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1", "kind": "CredentialProviderRequest", "image": image,
    });
    if pod {
        request["serviceAccountToken"] = json!(POD_TOKEN);
        request["serviceAccountAnnotations"] = json!({
            "kubernetes.azure.com/acr-client-id": POD_CLIENT, "kubernetes.azure.com/acr-tenant-id": POD_TENANT,
        });
    }
    request
}

/// Returns the response with these logins and the anonymous login.
fn response(logins: &[(&str, &str, &str)]) -> Value {
    let mut auth = json!({"*.azurecr.*": {"username": "", "password": ""}});
    for (pattern, username, password) in logins {
        auth[*pattern] = json!({"username": username, "password": password});
    }
    json!({
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1", "kind": "CredentialProviderResponse",
        "cacheKeyType": "Registry", "cacheDuration": "1h0m0s", "auth": auth,
    })
}

const TOKEN_USER: &str = "00000000-0000-0000-0000-000000000000";
