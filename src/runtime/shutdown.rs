//! Shutdown of the process: no new work is accepted, running steps end, and then the process stops.
//!
//! In: SIGTERM or SIGINT, or a fatal error. Out: a token that all tasks wait on, and a tracker of running tasks. Work that
//! must not be interrupted runs under [`Shutdown::spawn`]; [`Shutdown::drain`] waits for it, up to a deadline.

use std::{future::Future, time::Duration};

use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Handle of the process's shutdown. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    token: CancellationToken,
    tasks: TaskTracker,
}

impl Shutdown {
    /// Creates a shutdown that has not begun.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a child that can be shut down separately, and shuts down with its parent. Its tasks are tracked separately.
    pub fn child(&self) -> Self {
        Self { token: self.token.child_token(), tasks: TaskTracker::new() }
    }

    /// Begins the shutdown. Repeating it changes nothing.
    pub fn begin(&self) {
        self.token.cancel();
    }

    /// Returns `true` if the shutdown has begun.
    pub fn has_begun(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Resolves when the shutdown begins.
    pub async fn begun(&self) {
        self.token.cancelled().await;
    }

    /// Runs `work` to its end. Returns `None` if the shutdown begins first, which drops `work`.
    pub async fn run_until_begun<F: Future>(&self, work: F) -> Option<F::Output> {
        self.token.run_until_cancelled(work).await
    }

    /// Runs `task` to its end, so that [`Shutdown::drain`] waits for it. The task itself watches [`Shutdown::begun`].
    pub fn spawn<F>(&self, task: F) -> tokio::task::JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tasks.spawn(task)
    }

    /// Waits until all spawned tasks have ended, at most `limit`. Returns `true` if all have ended.
    pub async fn drain(&self, limit: Duration) -> bool {
        self.tasks.close();
        tokio::time::timeout(limit, self.tasks.wait()).await.is_ok()
    }
}
