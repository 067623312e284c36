//! Channel for the latest value, with the interface of tokio's `watch`. It wakes receivers in the order in which they began
//! to wait.
//!
//! Tokio's channel wakes receivers in random order. Receivers whose next step is a request would then send their requests in
//! random order, also under a paused clock.

use std::{pin::pin, sync::Arc};

use futures::FutureExt;
pub use tokio::sync::watch::Ref;
use tokio::{
    sync::{
        Notify,
        watch::{
            self,
            error::{RecvError, SendError},
        },
    },
    task::coop::{consume_budget, unconstrained},
};

/// Sender of values. Clones have the same receivers.
#[derive(Debug)]
pub struct Sender<T> {
    // Fields are dropped in this order, so that receivers are woken after the channel was closed.
    inner: watch::Sender<T>,
    changed: WakeOnDrop,
}

/// Receiver of the latest value.
#[derive(Debug)]
pub struct Receiver<T> {
    inner: watch::Receiver<T>,
    changed: Arc<Notify>,
}

#[derive(Debug, Clone, Default)]
struct WakeOnDrop(Arc<Notify>);

impl Drop for WakeOnDrop {
    fn drop(&mut self) {
        self.0.notify_waiters();
    }
}

/// Returns a channel that starts with `value`.
pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let sender = Sender::new(value);
    let receiver = sender.subscribe();
    (sender, receiver)
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), changed: self.changed.clone() }
    }
}

impl<T: Default> Default for Sender<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Sender<T> {
    pub fn new(value: T) -> Self {
        Self { inner: watch::Sender::new(value), changed: WakeOnDrop::default() }
    }

    /// Returns a receiver that has seen the current value.
    pub fn subscribe(&self) -> Receiver<T> {
        Receiver { inner: self.inner.subscribe(), changed: Arc::clone(&self.changed.0) }
    }

    pub fn borrow(&self) -> Ref<'_, T> {
        self.inner.borrow()
    }

    /// Returns `true` if there is no receiver.
    pub fn is_closed(&self) -> bool {
        self.inner.is_closed()
    }

    /// Sends `value` to all receivers.
    ///
    /// # Errors
    ///
    /// Returns `value` if there is no receiver.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        self.inner.send(value)?;
        self.changed.0.notify_waiters();
        Ok(())
    }

    /// Sends `value`, also without receivers, and returns the previous one.
    pub fn send_replace(&self, value: T) -> T {
        let previous = self.inner.send_replace(value);
        self.changed.0.notify_waiters();
        previous
    }

    /// Changes the value and wakes the receivers.
    pub fn send_modify(&self, change: impl FnOnce(&mut T)) {
        self.inner.send_modify(change);
        self.changed.0.notify_waiters();
    }

    /// Changes the value and wakes the receivers if `change` returns `true`, which this returns.
    pub fn send_if_modified(&self, change: impl FnOnce(&mut T) -> bool) -> bool {
        let is_modified = self.inner.send_if_modified(change);
        if is_modified {
            self.changed.0.notify_waiters();
        }
        is_modified
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), changed: Arc::clone(&self.changed) }
    }
}

impl<T> Receiver<T> {
    pub fn borrow(&self) -> Ref<'_, T> {
        self.inner.borrow()
    }

    /// Returns the current value and marks it as seen.
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        self.inner.borrow_and_update()
    }

    /// Returns `true` if there is a value that was not seen.
    ///
    /// # Errors
    ///
    /// Fails if all senders are gone.
    pub fn has_changed(&self) -> Result<bool, RecvError> {
        self.inner.has_changed()
    }

    pub fn mark_unchanged(&mut self) {
        self.inner.mark_unchanged();
    }

    /// Waits for a value that was not seen, and marks it as seen.
    ///
    /// # Errors
    ///
    /// Fails if all senders are gone and the last value was seen.
    pub async fn changed(&mut self) -> Result<(), RecvError> {
        consume_budget().await;
        loop {
            let mut changed = pin!(self.changed.notified());
            // This also notifies of changes between the check of the value and the wait.
            changed.as_mut().enable();
            // The value is only polled: tokio's channel would wake waiters in random order.
            if let Some(result) = unconstrained(self.inner.changed()).now_or_never() {
                return result;
            }
            changed.await;
        }
    }

    /// Waits until `condition` holds for the value, which is marked as seen.
    ///
    /// # Errors
    ///
    /// Fails if all senders are gone and the condition does not hold for the last value.
    pub async fn wait_for(&mut self, mut condition: impl FnMut(&T) -> bool) -> Result<Ref<'_, T>, RecvError> {
        while !condition(&self.inner.borrow_and_update()) {
            self.changed().await?;
        }
        // The condition is evaluated once more under the lock that the caller gets. It is ready at once on one thread.
        self.inner.wait_for(condition).await
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn receivers_wake_in_the_order_in_which_they_wait() {
        let sender = Sender::new(0);
        let woken = Arc::new(Mutex::new(Vec::new()));
        for number in 0..50 {
            let (mut receiver, woken) = (sender.subscribe(), Arc::clone(&woken));
            tokio::spawn(async move {
                receiver.wait_for(|value| *value == 1).await.unwrap();
                woken.lock().push(number);
            });
        }
        yield_now().await;
        sender.send_replace(1);
        while woken.lock().len() < 50 {
            yield_now().await;
        }
        assert_eq!(*woken.lock(), (0..50).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn receivers_see_the_last_value_and_then_the_end() {
        let (sender, mut receiver) = channel(0);
        let other = sender.clone();
        let waits = tokio::spawn(async move {
            receiver.changed().await.unwrap();
            let seen = *receiver.borrow();
            (seen, receiver.changed().await.is_err(), receiver.wait_for(|value| *value == 2).await.is_err())
        });
        yield_now().await;
        other.send_modify(|value| *value = 1);
        yield_now().await;
        drop(sender);
        yield_now().await;
        assert!(!waits.is_finished());
        drop(other);
        assert_eq!(waits.await.unwrap(), (1, true, true));
    }
}
