//! Single flight: concurrent callers share the result of one task.
//!
//! In: work, and the result if it ends early. Out: a [`SharedTask`] that any number may wait for. The work is a task of its
//! own: cancelled callers neither end nor repeat it. Caching of results is up to the callers.

use std::future::{Future, IntoFuture};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};

/// Work in progress. Clones wait for the same task.
#[derive(Debug, Clone)]
pub struct SharedTask<T: Clone>(Shared<BoxFuture<'static, T>>);

impl<T: Clone + Send + Sync + 'static> SharedTask<T> {
    /// Starts `work`. `ended_early` returns the result if it panics; it is called while a caller waits.
    pub fn start(
        work: impl Future<Output = T> + Send + 'static,
        ended_early: impl FnOnce(String) -> T + Send + 'static,
    ) -> Self {
        let task = tokio::spawn(work);
        Self(task.map(|joined| joined.unwrap_or_else(|error| ended_early(error.to_string()))).boxed().shared())
    }

    /// Returns `under_way`, unless it has ended; else the task from `start`.
    pub fn join_or_start(under_way: Option<&Self>, start: impl FnOnce() -> Self) -> Self {
        under_way.filter(|task| task.0.peek().is_none()).cloned().unwrap_or_else(start)
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

    /// Answers how often it was started, after a second.
    fn counting(starts: &Arc<AtomicU32>) -> SharedTask<Result<u32, String>> {
        let number = starts.fetch_add(1, Ordering::SeqCst) + 1;
        let work = async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(number)
        };
        SharedTask::start(work, Err)
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_ask_while_it_is_under_way_share_it() {
        let starts = Arc::default();
        let first = SharedTask::join_or_start(None, || counting(&starts));
        let second = SharedTask::join_or_start(Some(&first), || counting(&starts));
        assert_eq!((first.clone().await, second.await), (Ok(1), Ok(1)));
        let third = SharedTask::join_or_start(Some(&first), || counting(&starts));
        assert_eq!(third.await, Ok(2), "the first has ended");
    }

    #[tokio::test(start_paused = true)]
    async fn it_goes_on_when_nobody_waits_any_more() {
        let task = counting(&Arc::default());
        let waiting = tokio::time::timeout(Duration::from_millis(100), task.clone());
        assert!(waiting.await.is_err());
        let start = tokio::time::Instant::now();
        assert_eq!(task.await, Ok(1));
        assert!(start.elapsed() < Duration::from_secs(1));
    }

    #[tokio::test]
    async fn a_panic_is_an_answer() {
        let task: SharedTask<Result<u32, String>> = SharedTask::start(async { panic!("planted panic") }, Err);
        assert!(task.await.unwrap_err().contains("panic"));
    }
}
