//! Tests of the simulator through a client.

mod distortion;
mod faults;
mod operations;

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response};
use serde_json::{Value, json};

use super::{Azure, AzureOptions, canonical};
use crate::providers::azure::transport::ArmTransport;

/// What `$NET/` is short for, in tests.
const RECORDED: &str = include_str!("tests/recorded.json");

struct Client {
    azure: Azure,
    transport: Arc<dyn ArmTransport>,
}

struct Reply {
    status: u16,
    headers: http::HeaderMap,
    body: Value,
}

impl Reply {
    fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or_default()
    }
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }
}

impl Client {
    fn new(options: AzureOptions) -> Self {
        let azure = Azure::new(options);
        azure.load(canonical::parse(RECORDED).unwrap()).unwrap();
        Self { transport: azure.transport(), azure }
    }

    async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: Bytes) -> Reply {
        let url = if path.starts_with("https:") {
            path.to_owned()
        } else {
            let separator = if path.contains('?') { '&' } else { '?' };
            format!("https://management.test{}{separator}api-version=2025-05-01", canonical::expand(path))
        };
        let mut request = Request::builder().method(method).uri(url.replace('\'', "%27").replace(' ', "%20"));
        request = request.header("authorization", "Bearer t");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        reply(self.transport.send(request.body(body).unwrap()).await.unwrap())
    }

    async fn get(&self, path: &str) -> Reply {
        self.send(Method::GET, path, &[], Bytes::new()).await
    }

    async fn put(&self, path: &str, body: Value) -> Reply {
        self.put_if(path, body, &[]).await
    }

    async fn put_if(&self, path: &str, body: Value, headers: &[(&str, &str)]) -> Reply {
        let body = Bytes::from(canonical::expand(&body.to_string()));
        self.send(Method::PUT, path, headers, body).await
    }

    async fn delete(&self, path: &str) -> Reply {
        self.send(Method::DELETE, path, &[], Bytes::new()).await
    }

    async fn etag(&self, path: &str) -> String {
        let reply = self.get(path).await;
        assert_eq!(reply.status, 200, "{path}");
        reply.body["etag"].as_str().unwrap().to_owned()
    }
}

fn reply(response: Response<Bytes>) -> Reply {
    let (parts, body) = response.into_parts();
    let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() };
    Reply { status: parts.status.as_u16(), headers: parts.headers, body }
}
