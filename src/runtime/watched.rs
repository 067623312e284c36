//! State that tasks wait for.
//!
//! Unlike `tokio::sync::watch`, it wakes them in the order in which they began to wait, so that a simulation repeats
//! exactly.

use parking_lot::Mutex;
use tokio::sync::Notify;

/// State under a lock, with a signal for each update.
#[derive(Debug, Default)]
pub struct Watched<T> {
    state: Mutex<T>,
    updated: Notify,
}

impl<T> Watched<T> {
    /// Calls `read` with the state.
    pub fn read<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        read(&self.state.lock())
    }

    /// Calls `update` with the state, and wakes all waiting tasks.
    pub fn update<R>(&self, update: impl FnOnce(&mut T) -> R) -> R {
        let result = update(&mut self.state.lock());
        self.updated.notify_waiters();
        result
    }

    /// Waits until `is_met` returns `true`. It is called at once and after each update.
    pub async fn until(&self, is_met: impl Fn(&T) -> bool) {
        loop {
            let updated = self.updated.notified();
            tokio::pin!(updated);
            updated.as_mut().enable();
            if self.read(&is_met) {
                return;
            }
            updated.await;
        }
    }
}
