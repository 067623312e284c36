//! Headless Chromium, driven with the DevTools protocol over a pair of pipes.
//!
//! `CHROMIUM` names it; `.ci/chromium` provides one and `make test` sets it. In: addresses, and scripts of the test. Out: values, pictures,
//! and everything that the browser complained about.

use std::{env, process::Stdio, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

const PATIENCE: Duration = Duration::from_secs(60);
/// The protocol's pipes are the descriptors 3 and 4.
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

/// A browser with one page.
pub(crate) struct Browser {
    _process: Child,
    _profile: tempfile::TempDir,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    session: String,
    calls: u64,
    /// Events that nobody has asked for yet.
    events: Vec<Value>,
}

impl Browser {
    /// Starts it; its requests carry `token`.
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
        let answer = self.next(method, |message| message["id"] == id).await;
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// The next message that is `wanted`; the others are kept.
    async fn next(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let read = async {
            loop {
                let mut message = Vec::new();
                let length = self.output.read_until(0, &mut message).await.unwrap();
                assert!(length > 0, "Chromium ended before it answered {what}");
                let message: Value = serde_json::from_slice(&message[..length - 1]).unwrap();
                if wanted(&message) {
                    return message;
                }
                self.events.push(message);
            }
        };
        timeout(PATIENCE, read).await.unwrap_or_else(|_| panic!("Chromium did not answer {what}"))
    }

    /// Shows a page and waits until it is loaded.
    pub(crate) async fn open(&mut self, url: &str) {
        self.events.clear();
        let shown = self.call("Page.navigate", json!({"url": url})).await;
        assert!(shown["errorText"].is_null(), "{url}: {shown}");
        let is_loaded = |message: &Value| message["method"] == "Page.loadEventFired";
        if !self.events.iter().any(is_loaded) {
            self.next("Page.loadEventFired", is_loaded).await;
        }
    }

    /// The value of an expression in the page.
    pub(crate) async fn value(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", asked).await;
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// The size of the window, in CSS pixels.
    pub(crate) async fn resize(&mut self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.call("Emulation.setDeviceMetricsOverride", size).await;
    }

    /// What the user prefers: `dark` or `light`.
    pub(crate) async fn prefer(&mut self, scheme: &str) {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", features).await;
    }

    /// What the window shows, as PNG in base64.
    pub(crate) async fn picture(&mut self) -> String {
        let shown = self.call("Page.captureScreenshot", json!({"format": "png", "optimizeForSpeed": false})).await;
        shown["data"].as_str().unwrap().to_owned()
    }

    /// Events since the page was opened that have one of these names.
    pub(crate) fn events(&self, names: &[&str]) -> Vec<&Value> {
        self.events.iter().filter(|event| names.iter().any(|name| event["method"] == *name)).collect()
    }
}
