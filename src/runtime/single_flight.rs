//! Single flight: concurrent callers share the result of one task.
//!
//! In: work, and the result after a panic. Out: a [`SharedTask`] for any number of callers. The work is a separate task, so
//! cancelled callers neither end nor repeat it. Results are not cached.

use std::future::{Future, IntoFuture};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};

/// Task in progress. Clones wait for the same task.
#[derive(Debug, Clone)]
pub struct SharedTask<T: Clone>(Shared<BoxFuture<'static, T>>);

impl<T: Clone + Send + Sync + 'static> SharedTask<T> {
    /// Starts `work`. If it panics, `on_panic` returns the result.
    pub fn start(
        work: impl Future<Output = T> + Send + 'static,
        on_panic: impl FnOnce(String) -> T + Send + 'static,
    ) -> Self {
        let task = tokio::spawn(work);
        Self(task.map(|joined| joined.unwrap_or_else(|error| on_panic(error.to_string()))).boxed().shared())
    }

    /// Returns `in_flight`, or the task from `start` if there is none or it has ended.
    pub fn join_or_start(in_flight: Option<&Self>, start: impl FnOnce() -> Self) -> Self {
        in_flight.filter(|task| task.0.peek().is_none()).cloned().unwrap_or_else(start)
    }
}

impl<T: Clone> IntoFuture for SharedTask<T> {
    type Output = T;
    type IntoFuture = Shared<BoxFuture<'static, T>>;

    fn into_future(self) -> Self::IntoFuture {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicU32, Ordering},
        },
        time::Duration,
    };

    use super::*;

    /// Starts a task that returns the number of starts after a second.
    fn counting(starts: &Arc<AtomicU32>) -> SharedTask<Result<u32, String>> {
        let number = starts.fetch_add(1, Ordering::SeqCst) + 1;
        let work = async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(number)
        };
        SharedTask::start(work, Err)
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_callers_share_the_task() {
        let starts = Arc::default();
        let first = SharedTask::join_or_start(None, || counting(&starts));
        let second = SharedTask::join_or_start(Some(&first), || counting(&starts));
        assert_eq!((first.clone().await, second.await), (Ok(1), Ok(1)));
        let third = SharedTask::join_or_start(Some(&first), || counting(&starts));
        assert_eq!(third.await, Ok(2), "the first has ended");
    }

    #[tokio::test(start_paused = true)]
    async fn the_task_continues_without_callers() {
        let task = counting(&Arc::default());
        let waiting = tokio::time::timeout(Duration::from_millis(100), task.clone());
        assert!(waiting.await.is_err());
        let start = tokio::time::Instant::now();
        assert_eq!(task.await, Ok(1));
        assert!(start.elapsed() < Duration::from_secs(1));
    }

    #[tokio::test]
    async fn a_panic_is_returned_as_the_result() {
        let task: SharedTask<Result<u32, String>> = SharedTask::start(async { panic!("planted panic") }, Err);
        assert!(task.await.unwrap_err().contains("panic"));
    }
}
