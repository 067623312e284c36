//! The process: its runtime, its signals, its output, its exit codes.

mod termination;
#[cfg(windows)]
pub(super) mod windows_service;

use std::{io::Write, process::ExitCode, sync::Arc};

use self::termination::TerminationRequests;
use crate::{cli::logging, runtime::shutdown::Shutdown};

/// Prints `text`, and ends with `code` unless it cannot be written. A reader that closes the pipe early is no failure.
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

/// Ends the process from whatever thread notices that it must not go on: those that could end it in good order may be blocked.
pub(super) fn exit_with(problem: &str) -> ! {
    fail(&problem);
    std::process::exit(1)
}

/// Runs `work` with a shutdown that SIGTERM and SIGINT begin; a second signal ends it at once, as in `k8s.io/apiserver/pkg/server`.
pub fn on_runtime<F, R>(work: F) -> std::io::Result<R::Output>
where
    F: FnOnce(Shutdown) -> R,
    R: Future,
{
    run_on(two_threads(), work)
}

/// Configures two threads, however many cores the machine has.
///
/// The manager waits much more than it computes, and each thread has a part of the heap to itself, of which most is unused.
fn two_threads() -> tokio::runtime::Builder {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2);
    builder
}

/// Configures one thread for everything; short blocking work, such as resolving a name, gets one of its own.
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
            _ = second_signal => Err(std::io::Error::other("a second signal came: ending at once, the lease is not released")),
        }
    });
    // What still hangs must not keep the process from ending.
    runtime.shutdown_background();
    ended
}

/// Returns the function behind `PUT /debug/flags/v`.
pub(super) fn verbosity(log: logging::LogHandle) -> Arc<dyn Fn(u8) + Send + Sync> {
    Arc::new(move |level| {
        if let Err(error) = log.set_verbosity(level) {
            tracing::warn!(%error, level, "the verbosity stays as it was");
        }
    })
}
