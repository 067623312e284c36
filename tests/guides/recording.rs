//! The recording of `make demo` that the README shows.
//!
//! In: what the built program prints. Out: `docs/demo.svg`, plain text in SVG, and the shape of a recording: its lines without times,
//! ports and identities, sorted, since Services are worked on in parallel. Updates are left out: a Service gets one only if it was
//! created before the last Node was initialised.

use std::{
    fmt::Write as _,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    sync::mpsc,
    time::Duration,
};

/// Services in the demo, each with an event at its end.
const SERVICES: usize = 3;
/// The demo takes half a second.
const LIMIT: Duration = Duration::from_secs(20);
/// Longer lines are cut.
const COLUMNS: usize = 112;
const LINE: usize = 18;

/// The lines of a demo that stays up, in the order of a run, but with the events first.
pub(crate) fn record() -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_cloud-controller-manager"));
    let mut child = command.arg("demo").current_dir(folder.path()).stdout(Stdio::piped()).spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let (sender, receiver) = mpsc::channel();
    let reader = std::thread::spawn(move || output.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok()));
    let mut lines = Vec::new();
    while !is_complete(&lines) {
        lines.push(receiver.recv_timeout(LIMIT).unwrap_or_else(|_| panic!("the demo stopped at {lines:#?}")));
    }
    drop(receiver);
    let _ = child.kill();
    child.wait().unwrap();
    let _ = reader.join();
    let is_event = |line: &String| line.contains(" s  Normal ") || line.contains(" s  Warning ");
    let (events, others): (Vec<_>, Vec<_>) = lines.drain(1..).partition(is_event);
    lines.into_iter().chain(events).chain(others).map(cut).collect()
}

fn cut(line: String) -> String {
    if line.chars().count() <= COLUMNS { line } else { line.chars().take(COLUMNS - 1).chain(['…']).collect() }
}

fn is_complete(lines: &[String]) -> bool {
    let ensured = lines.iter().filter(|line| line.contains("Ensured load balancer")).count();
    ensured == SERVICES && lines.iter().any(|line| line.contains("kubectl apply"))
}

/// What two recordings have in common.
pub(crate) fn shape(lines: &[String]) -> Vec<String> {
    let is_sure = |line: &String| !line.is_empty() && !line.contains("Updat");
    let mut shape: Vec<String> = lines.iter().map(|line| words(line)).filter(is_sure).collect();
    shape.sort();
    shape
}

/// The words that do not change from run to run.
fn words(line: &str) -> String {
    let is_number = |word: &str| word.parse::<f64>().is_ok();
    let changes = |word: &str| is_number(word) || word.starts_with("http://127.0.0.1:") || word.contains('_');
    line.split_whitespace().map(|word| if changes(word) { "*" } else { word }).collect::<Vec<_>>().join(" ")
}

/// The picture with these lines. Its size grows with them; frame and colors stay.
pub(crate) fn svg(old: &str, recorded: &[String]) -> String {
    let (head, _) = old.split_once("<tspan").unwrap();
    let height = |count: usize| ((count + 2) * LINE + 16).to_string();
    let mut svg = head.replace(&height(lines(old).len()), &height(recorded.len()));
    for line in std::iter::once("$ make demo").chain(recorded.iter().map(String::as_str)) {
        let _ = writeln!(svg, "<tspan x=\"16\" dy=\"{LINE}\"{}>{}</tspan>", class(line), escape(line));
    }
    svg + "</text>\n</svg>\n"
}

fn class(line: &str) -> &'static str {
    match line {
        _ if line.starts_with("$ ") || line.starts_with("  kubectl") || line.starts_with("  e") => " class=\"command\"",
        _ if line.starts_with("converged") => " class=\"done\"",
        _ => "",
    }
}

fn escape(line: &str) -> String {
    // A tspan without text has no height.
    let text = if line.is_empty() { " " } else { line };
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The lines that an SVG shows, without the command.
pub(crate) fn lines(svg: &str) -> Vec<String> {
    let tspans = svg.lines().filter_map(|line| line.strip_prefix("<tspan ")?.strip_suffix("</tspan>")?.split_once('>'));
    let plain = |text: &str| text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    tspans.map(|(_, text)| plain(text)).skip(1).collect()
}
