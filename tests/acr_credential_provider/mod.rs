//! `acr-credential-provider` against a simulated registry, Entra, metadata service and identity binding.
//!
//! `wire` calls it in process, with every refusal; `program` runs the built binary as the kubelet does, over TLS.
//! `CCM_BINARY` names another program than the one just built: that of the image.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, outside of test functions")]
#![allow(clippy::disallowed_methods, reason = "the program is another process, whose clock nobody pauses")]

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

/// An application that trusts the service account token.
const POD_CLIENT: &str = "00000000-0000-0000-0000-0000000000b0";
const POD_TENANT: &str = "11111111-0000-0000-0000-0000000000b0";
/// In everything that no log may show.
const MARK: &str = "pl4nt3d";
const POD_TOKEN: &str = "pl4nt3d-service-account-token";
const REGISTRY: &str = "foo.azurecr.io";
const MIRROR: &str = "abc.azurecr.io";
const BINDING: &str = "ib.cluster.example";

/// A cloud with one machine, registries, an identity binding and an application for the Pod.
fn world() -> World {
    let topology = Topology::new().pool(Pool::new(PoolKind::Uniform, "pool1", 1));
    let world = World::new(topology, AzureOptions::immediate(), Clock::System).unwrap();
    [REGISTRY, MIRROR].into_iter().for_each(|host| world.add_registry(host));
    world.add_identity_binding(BINDING);
    let tenant = world.topology().tenant;
    world.with_directory(|directory| {
        for tenant in [POD_TENANT, &tenant] {
            directory.add_credential(tenant, POD_CLIENT, Credential::FederatedToken(POD_TOKEN.to_owned()));
        }
    });
    world
}

/// The client id of the machine's identity.
const MACHINE: &str = "00000000-0000-0000-0000-0000000000d0";

fn node(world: &World) -> String {
    world.nodes()[0].metadata.name.clone().unwrap()
}

/// azure.json with the machine's identity, or with the service principal.
fn azure_json(world: &World, folder: &tempfile::TempDir, managed: bool) -> PathBuf {
    let principal = Login::Secret(CLIENT_ID.to_owned(), format!("{CLIENT_SECRET}-{MARK}"));
    let mut config = world.topology().config(&Reach::Public, &principal);
    config["useManagedIdentityExtension"] = json!(managed);
    let path = folder.path().join("azure.json");
    fs::write(&path, config.to_string()).unwrap();
    path
}

/// What the kubelet sends for an image; `pod`: with the token and the annotations of its service account.
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

/// The response with these logins besides the anonymous one.
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
