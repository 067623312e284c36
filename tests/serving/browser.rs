//! Headless Chromium, driven with the DevTools protocol over a pair of pipes.
//!
//! `CHROMIUM` names the program; `.ci/chromium` provides one and `make test` sets it. Input: addresses and scripts. Output: values,
//! pictures, and events with the errors of the browser.

use std::{env, process::Stdio, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

/// Time limit for one message.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(60);
/// Script that connects the pipes of the protocol: file descriptors 3 and 4.
const WITH_PIPES: &str = r#"exec "$0" "$@" 3<&0 4>&1 0</dev/null 1>/dev/null"#;
const FLAGS: &[&str] = &[
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--ignore-certificate-errors",
    "--remote-debugging-pipe",
];

/// Browser with one page.
pub(crate) struct Browser {
    _process: Child,
    _profile: tempfile::TempDir,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    session: String,
    calls: u64,
    /// Received events that no call has consumed.
    events: Vec<Value>,
}

impl Browser {
    /// Starts a browser whose requests carry `token`.
    pub(crate) async fn start(token: &str) -> Self {
        let Ok(program) = env::var("CHROMIUM") else {
            panic!("CHROMIUM is not set: run `make test`, or set it to what .ci/chromium prints")
        };
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", WITH_PIPES, &program]).args(FLAGS).arg(format!("--user-data-dir={}", profile.path().display()));
        command
            .env("HOME", profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let mut process = command.spawn().unwrap_or_else(|error| panic!("{program}: {error}"));
        let (input, output) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        let (session, events) = (String::new(), Vec::new());
        let mut browser = Self { _process: process, _profile: profile, input, output, session, calls: 0, events };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"})).await;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", attach).await;
        browser.session = attached["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Runtime", "Log", "Network", "Security"] {
            browser.call(&format!("{domain}.enable"), json!({})).await;
        }
        let headers = json!({"headers": {"Authorization": format!("Bearer {token}")}});
        browser.call("Network.setExtraHTTPHeaders", headers).await;
        browser
    }

    /// Sends a command and waits for its result.
    pub(crate) async fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.calls += 1;
        let mut message = json!({"id": self.calls, "method": method, "params": parameters});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        self.input.write_all(format!("{message}\0").as_bytes()).await.unwrap();
        let id = json!(self.calls);
        let response = self.next(method, |message| message["id"] == id).await;
        assert!(response["error"].is_null(), "{method}: {response}");
        response["result"].clone()
    }

    /// Returns the next message that matches, and stores the others as events.
    async fn next(&mut self, awaited: &str, is_match: impl Fn(&Value) -> bool) -> Value {
        let read = async {
            loop {
                let mut message = Vec::new();
                let length = self.output.read_until(0, &mut message).await.unwrap();
                assert!(length > 0, "Chromium ended before it sent {awaited}");
                let message: Value = serde_json::from_slice(&message[..length - 1]).unwrap();
                if is_match(&message) {
                    return message;
                }
                self.events.push(message);
            }
        };
        timeout(MESSAGE_TIMEOUT, read).await.unwrap_or_else(|_| panic!("Chromium did not send {awaited}"))
    }

    /// Opens a page and waits until it is loaded.
    pub(crate) async fn open(&mut self, url: &str) {
        self.events.clear();
        let shown = self.call("Page.navigate", json!({"url": url})).await;
        assert!(shown["errorText"].is_null(), "{url}: {shown}");
        let is_loaded = |message: &Value| message["method"] == "Page.loadEventFired";
        if !self.events.iter().any(is_loaded) {
            self.next("Page.loadEventFired", is_loaded).await;
        }
    }

    /// Returns the value of an expression in the page.
    pub(crate) async fn value(&mut self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let response = self.call("Runtime.evaluate", parameters).await;
        assert!(response["exceptionDetails"].is_null(), "{expression}: {response}");
        response["result"]["value"].clone()
    }

    /// Sets the size of the window in CSS pixels.
    pub(crate) async fn resize(&mut self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.call("Emulation.setDeviceMetricsOverride", size).await;
    }

    /// Sets the preferred color scheme: `dark` or `light`.
    pub(crate) async fn prefer(&mut self, scheme: &str) {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", features).await;
    }

    /// Returns a screenshot as PNG in base64.
    pub(crate) async fn picture(&mut self) -> String {
        let shown = self.call("Page.captureScreenshot", json!({"format": "png", "optimizeForSpeed": false})).await;
        shown["data"].as_str().unwrap().to_owned()
    }

    /// Returns the events with these names since the page was opened.
    pub(crate) fn events(&self, names: &[&str]) -> Vec<&Value> {
        self.events.iter().filter(|event| names.iter().any(|name| event["method"] == *name)).collect()
    }
}
