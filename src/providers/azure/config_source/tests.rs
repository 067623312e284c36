use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

use http::{Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::json;

use super::*;

pub(super) const GOOD: &str = "subscriptionId: s\nresourceGroup: RG\nlocation: a\nuseManagedIdentityExtension: true\n";

/// An API server with Secrets, or with a status for everything.
#[derive(Clone, Default)]
pub(super) struct Server {
    pub(super) secrets: Arc<Mutex<BTreeMap<String, Secret>>>,
    pub(super) status: Arc<Mutex<Option<u16>>>,
}

impl Server {
    pub(super) fn put(&self, path: &str, key: &str, text: &str) {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "any"}});
        let mut secret: Secret = serde_json::from_value(secret).unwrap();
        secret.data = Some([(key.to_owned(), k8s_openapi::ByteString(text.as_bytes().to_vec()))].into());
        self.secrets.lock().insert(path.to_owned(), secret);
    }

    pub(super) fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let found = server.secrets.lock().get(request.uri().path()).cloned();
            let code = server.status.lock().unwrap_or(if found.is_some() { 200 } else { 404 });
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "reason": "no", "code": code});
            let body = if code == 200 { serde_json::to_vec(&found).unwrap() } else { status.to_string().into_bytes() };
            async move { Ok::<_, Infallible>(Response::builder().status(code).body(Body::from(body)).unwrap()) }
        });
        kube::Client::new(service, "default")
    }
}

pub(super) const PATH: &str = "/api/v1/namespaces/kube-system/secrets/azure-cloud-provider";

pub(super) fn loader(file: Option<PathBuf>, server: Option<&Server>) -> ConfigLoader {
    ConfigLoader {
        source: ConfigSource { file, secret: server.map(|_| default_secret()) },
        client: server.map(Server::client),
        environment: EnvironmentOverrides::default(),
        is_strict: false,
    }
}

fn file(folder: &tempfile::TempDir, text: &str) -> Option<PathBuf> {
    let path = folder.path().join("azure.json");
    std::fs::write(&path, text).unwrap();
    Some(path)
}

#[tokio::test]
async fn the_secret_is_not_read_when_the_file_excludes_it() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server { status: Arc::new(Mutex::new(Some(500))), ..Server::default() };
    let path = file(&folder, &format!("{GOOD}cloudConfigType: file"));
    assert_eq!(loader(path, Some(&server)).load().await.unwrap().config.location, "a");
}

#[tokio::test]
async fn errors_say_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let problem = async |loader: ConfigLoader| loader.load().await.unwrap_err();
    let server = Server::default();
    let missing = problem(loader(None, Some(&server))).await;
    assert!(missing.to_string().contains("kubectl -n kube-system create secret generic azure-cloud-provider"), "{missing}");
    server.put(PATH, "azure.json", "hunter2");
    let other_key = problem(loader(None, Some(&server))).await.to_string();
    assert!(other_key.contains("its keys: azure.json") && !other_key.contains("hunter2"), "{other_key}");
    server.put(PATH, "cloud-config", "");
    assert!(problem(loader(None, Some(&server))).await.to_string().contains("nothing under the key cloud-config"));
    *server.status.lock() = Some(403);
    let forbidden = problem(loader(None, Some(&server))).await;
    assert!(forbidden.to_string().contains("resourceNames [azure-cloud-provider], verbs [get]"), "{forbidden}");
    *server.status.lock() = Some(503);
    assert!(matches!(problem(loader(None, Some(&server))).await, ConfigLoadError::Unavailable(_)));
    let without_client = ConfigLoader { client: None, ..loader(None, Some(&server)) };
    assert!(problem(without_client).await.to_string().contains("without access to the API server"));
    let none = problem(loader(None, None)).await.to_string();
    assert!(none.contains("--cloud-config-secret-name"), "{none}");
    let absent = problem(loader(Some("/nowhere/azure.json".into()), None)).await.to_string();
    assert!(absent.contains("--cloud-config /nowhere/azure.json"), "{absent}");
    let invalid = problem(loader(file(&folder, "location: [hunter2]"), None)).await;
    let text = format!("{invalid} {invalid:?}");
    assert!(
        matches!(invalid, ConfigLoadError::Invalid(_)) && text.contains("location (line 1)") && !text.contains("hunter2"),
        "{text}"
    );
    let path = folder.path().join("binary");
    std::fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(problem(loader(Some(path), None)).await.to_string().contains("not UTF-8"));
}

#[tokio::test]
async fn a_response_that_is_not_a_secret_is_not_quoted() {
    let service = tower::service_fn(|_: Request<Body>| async {
        let body = json!({"kind": "Secret", "metadata": {"name": "any"}, "data": {"cloud-config": "hunter2!"}});
        Ok::<_, Infallible>(Response::new(Body::from(body.to_string().into_bytes())))
    });
    let client = Some(kube::Client::new(service, "default"));
    let error = ConfigLoader { client, ..loader(None, Some(&Server::default())) }.load().await.unwrap_err();
    let text = format!("{error} {error:?}");
    assert!(matches!(error, ConfigLoadError::Unavailable(_)) && !text.contains("hunter2"), "{text}");
}
