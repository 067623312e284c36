//! Runtime, signals, output and exit codes of the process.

mod termination;
#[cfg(windows)]
pub(super) mod windows_service;

use std::{io::Write, process::ExitCode, sync::Arc};

use self::termination::TerminationRequests;
use crate::{cli::logging, runtime::shutdown::Shutdown};

/// Prints `text`. Returns `code`, or a failure if the text cannot be written. A closed pipe does not count as a failure.
pub(super) fn print(text: &str, code: ExitCode) -> ExitCode {
    let mut output = std::io::stdout().lock();
    match writeln!(output, "{}", text.trim_end()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            fail(&format!("cannot write to standard output: {error}"))
        }
        _ => code,
    }
}

pub(super) fn fail(problem: &dyn std::fmt::Display) -> ExitCode {
    let _ = writeln!(std::io::stderr().lock(), "{problem}");
    ExitCode::FAILURE
}

/// Exits the process from any thread, because the threads that could stop it in order may be blocked.
pub(super) fn exit_with(problem: &str) -> ! {
    fail(&problem);
    std::process::exit(1)
}

/// Runs `work` with a shutdown that SIGTERM and SIGINT begin. A second signal ends it immediately, as in
/// `k8s.io/apiserver/pkg/server`.
///
/// # Errors
///
/// The runtime or the signal handlers cannot be created, or a second signal arrived.
pub fn on_runtime<F, R>(work: F) -> std::io::Result<R::Output>
where
    F: FnOnce(Shutdown) -> R,
    R: Future,
{
    run_on(two_threads(), work)
}

/// Configures two threads, whatever the number of cores.
///
/// The manager waits much more than it computes, and each thread has its own part of the heap, most of which is unused.
fn two_threads() -> tokio::runtime::Builder {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2);
    builder
}

/// Configures one thread; short blocking work, such as resolving a name, gets another one.
pub(super) fn single_threaded() -> tokio::runtime::Builder {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.max_blocking_threads(2).thread_keep_alive(std::time::Duration::from_secs(1));
    builder
}

pub(super) fn run_on<F, R>(mut runtime: tokio::runtime::Builder, work: F) -> std::io::Result<R::Output>
where
    F: FnOnce(Shutdown) -> R,
    R: Future,
{
    let runtime = runtime.enable_all().build()?;
    let ended = runtime.block_on(async {
        let stop = Shutdown::new();
        let mut requests = TerminationRequests::listen()?;
        let shutdown = stop.clone();
        let second_signal = tokio::spawn(async move {
            requests.next().await;
            shutdown.begin();
            requests.next().await;
        });
        tokio::select! {
            biased;
            output = work(stop) => Ok(output),
            _ = second_signal => Err(std::io::Error::other("received a second signal: exiting without releasing the lease")),
        }
    });
    // Hanging tasks must not delay the exit.
    runtime.shutdown_background();
    ended
}

/// Returns the function behind `PUT /debug/flags/v`.
pub(super) fn verbosity(log: logging::LogHandle) -> Arc<dyn Fn(u8) + Send + Sync> {
    Arc::new(move |level| {
        if let Err(error) = log.set_verbosity(level) {
            tracing::warn!(%error, level, "cannot set the verbosity");
        }
    })
}
