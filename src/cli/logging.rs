//! Log of the program: filter and format of its lines.
//!
//! In: [`LoggingOptions`] and the program's `tracing` events. Out: lines on stderr, as klog writes them (`k8s.io/klog`) or as JSON with
//! the keys of `k8s.io/component-base/logs/json`. Events of libraries below `info` are never written, because TLS and HTTP libraries
//! log headers, and with them tokens, at lower levels.

mod line;

use tracing::{Metadata, Subscriber, level_filters::LevelFilter, subscriber::Interest};
use tracing_subscriber::{
    Registry,
    fmt::format::JsonFields,
    layer::{Context, Layer, SubscriberExt},
    reload,
    util::SubscriberInitExt,
};

use self::line::{JsonLine, KlogFields, KlogLine};
use crate::runtime::clock::Clock;

/// Format of the lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    #[default]
    Text,
    /// JSON, with one object per line.
    Json,
}

/// Item of `--vmodule`: a verbosity for some source files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleLevel {
    /// Source file without its suffix, or the name of a module, with the wildcards `*` and `?`.
    pub pattern: String,
    pub verbosity: u8,
}

/// Options of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggingOptions {
    pub format: LogFormat,
    /// `-v`.
    pub verbosity: u8,
    /// `--vmodule`.
    pub modules: Vec<ModuleLevel>,
    /// Whether only errors are written with `-v=0`, as by commands.
    pub quiet: bool,
    /// Crates to which the verbosity applies. The binary of a third-party provider adds its own crate.
    pub crates: Vec<String>,
}

impl Default for LoggingOptions {
    fn default() -> Self {
        Self {
            format: LogFormat::Text,
            verbosity: 0,
            modules: Vec::new(),
            quiet: false,
            crates: vec!["cloud_controller_manager".to_owned()],
        }
    }
}

/// Returns the level for a klog verbosity.
pub fn level(verbosity: u8) -> LevelFilter {
    match verbosity {
        0..=3 => LevelFilter::INFO,
        4..=5 => LevelFilter::DEBUG,
        6.. => LevelFilter::TRACE,
    }
}

/// Decides which events are written.
#[derive(Debug, Clone)]
struct LogFilter(LoggingOptions);

impl LogFilter {
    /// Returns the most verbose level that is written for events of `target`, a module path, declared in `file`.
    fn level_for(&self, target: &str, file: Option<&str>) -> LevelFilter {
        // This module logs each failed request as an error. The caller logs the failure, too, with the purpose of the request.
        if target.starts_with("kube_client::client::builder") {
            return LevelFilter::OFF;
        }
        if self.0.quiet && self.0.verbosity == 0 {
            return LevelFilter::ERROR;
        }
        let origin = target.split("::").next().unwrap_or(target);
        if !self.0.crates.iter().any(|name| name == origin) {
            return LevelFilter::INFO;
        }
        let is_named = |entry: &&ModuleLevel| module_names(target, file).any(|name| matches(&entry.pattern, name));
        level(self.0.modules.iter().find(is_named).map_or(self.0.verbosity, |entry| entry.verbosity))
    }

    fn allows(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= &self.level_for(metadata.target(), metadata.file())
    }

    fn max_level(&self) -> LevelFilter {
        let modules = self.0.modules.iter().map(|entry| entry.verbosity);
        level(modules.fold(self.0.verbosity, u8::max))
    }
}

/// Returns the names that a pattern of `--vmodule` may match: the source file and the modules of its path.
fn module_names<'a>(target: &'a str, file: Option<&'a str>) -> impl Iterator<Item = &'a str> {
    let file = file.and_then(|file| file.rsplit('/').next()).map(|file| file.trim_end_matches(".rs"));
    target.split("::").chain(file)
}

/// Returns `true` if `name` matches a pattern with `*` (any text) and `?` (any character).
fn matches(pattern: &str, name: &str) -> bool {
    let Some(first) = pattern.chars().next() else { return name.is_empty() };
    let rest = &pattern[first.len_utf8()..];
    let mut letters = name.chars();
    match first {
        '*' => matches(rest, name) || letters.next().is_some_and(|_| matches(pattern, letters.as_str())),
        '?' => letters.next().is_some_and(|_| matches(rest, letters.as_str())),
        first => letters.next() == Some(first) && matches(rest, letters.as_str()),
    }
}

impl<S: Subscriber> Layer<S> for LogFilter {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.allows(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.allows(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.max_level())
    }
}

/// Failure to install or change the log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Another log is already installed in the process.
    #[error("a log is installed already: {0}")]
    Installed(#[from] tracing_subscriber::util::TryInitError),
    /// The log has been dropped.
    #[error("the verbosity cannot be changed: {0}")]
    Gone(#[from] reload::Error),
}

/// Handle that changes the running log. Clones change the same log.
#[derive(Debug, Clone)]
pub struct LogHandle(reload::Handle<LogFilter, Registry>);

impl LogHandle {
    /// Changes the verbosity that `-v` has set.
    pub fn set_verbosity(&self, verbosity: u8) -> Result<(), LogError> {
        Ok(self.0.modify(|filter| filter.0.verbosity = verbosity)?)
    }
}

/// Installs the log for the whole process.
pub fn install(config: &LoggingOptions) -> Result<LogHandle, LogError> {
    let (filter, handle) = reload::Layer::new(LogFilter(config.clone()));
    let clock = Clock::System;
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(filter);
    match config.format {
        LogFormat::Text => registry.with(lines.fmt_fields(KlogFields).event_format(KlogLine { clock })).try_init()?,
        LogFormat::Json => registry.with(lines.fmt_fields(JsonFields::new()).event_format(JsonLine { clock })).try_init()?,
    }
    Ok(LogHandle(handle))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(verbosity: u8, modules: &[(&str, u8)]) -> LogFilter {
        let modules =
            modules.iter().map(|(pattern, verbosity)| ModuleLevel { pattern: (*pattern).to_owned(), verbosity: *verbosity });
        let options = LoggingOptions { verbosity, modules: modules.collect(), ..LoggingOptions::default() };
        LogFilter(options)
    }

    #[test]
    fn verbosities_are_levels() {
        for (verbosity, expected) in [
            (0, LevelFilter::INFO),
            (2, LevelFilter::INFO),
            (3, LevelFilter::INFO),
            (4, LevelFilter::DEBUG),
            (5, LevelFilter::DEBUG),
            (6, LevelFilter::TRACE),
            (255, LevelFilter::TRACE),
        ] {
            assert_eq!(level(verbosity), expected, "{verbosity}");
        }
    }

    #[test]
    fn libraries_never_log_below_info() {
        let filter = filter(10, &[("*", 10)]);
        for target in ["hyper::proto::h1", "hyper_util", "rustls::client", "h2", "tower", "kube_client::client", "log"] {
            assert_eq!(filter.level_for(target, Some("src/conn.rs")), LevelFilter::INFO, "{target}");
        }
        assert_eq!(filter.level_for("kube_client::client::builder", None), LevelFilter::OFF);
        assert_eq!(filter.level_for("cloud_controller_manager", None), LevelFilter::TRACE);
        assert_eq!(filter.level_for("cloud_controller_manager_x", None), LevelFilter::INFO);
    }

    #[test]
    fn patterns_match_files_and_modules_and_the_first_applies() {
        let filter = filter(0, &[("rou?e", 4), ("work_*", 6), ("plan", 5), ("route", 9)]);
        for (target, file, expected) in [
            ("cloud_controller_manager::controllers::route::plan", "src/controllers/route/plan.rs", LevelFilter::DEBUG),
            ("cloud_controller_manager::runtime::work_queue", "src/runtime/work_queue.rs", LevelFilter::TRACE),
            ("cloud_controller_manager", "src/plan.rs", LevelFilter::DEBUG),
            ("cloud_controller_manager::serving", "src/serving/mod.rs", LevelFilter::INFO),
        ] {
            assert_eq!(filter.level_for(target, Some(file)), expected, "{target}");
        }
        assert_eq!(filter.max_level(), LevelFilter::TRACE);
    }

    #[test]
    fn verbosity_of_a_running_log_changes() {
        let handle = install(&LoggingOptions::default()).unwrap();
        let enabled = || tracing::enabled!(target: "cloud_controller_manager::route", tracing::Level::DEBUG);
        let library = || tracing::enabled!(target: "rustls::client", tracing::Level::DEBUG);
        assert!(!enabled());
        handle.set_verbosity(5).unwrap();
        assert!(enabled() && !library());
        handle.set_verbosity(0).unwrap();
        assert!(!enabled());
        assert!(install(&LoggingOptions::default()).is_err());
    }

    #[test]
    fn patterns_match_with_wildcards() {
        for (pattern, name, expected) in [
            ("", "", true),
            ("", "a", false),
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("*", "abc", true),
            ("a*c", "abbc", true),
            ("a*c", "abbd", false),
            ("?", "é", true),
            ("?", "", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern:?} {name:?}");
        }
    }
}
