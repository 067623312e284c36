//! Gathers the requests of many callers for one document while a write of it is in flight, and executes them at once.
//!
//! In: items, each from a caller that waits. Out: each caller's result. The first caller becomes the leader, waits as
//! [`super::delay`] decides, and runs the batch for all. There is no background task. A cancelled leader abandons its batch:
//! the other callers get an error and retry.

use std::{
    collections::BTreeMap,
    future::{Future, pending},
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

use super::delay::{BatchStatus, batch_delay, count_reservations};

/// Error of a request whose batch was abandoned because its leader was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the batch of this write was abandoned")]
pub struct BatchInterrupted;

struct BatchItem<T, R> {
    number: u64,
    item: T,
    since: Instant,
    reply: oneshot::Sender<R>,
}

/// Waiting requests and reservations of a batcher.
struct BatchQueue<T, R> {
    waiting: Vec<BatchItem<T, R>>,
    /// Number of requests so far.
    requested: u64,
    /// Times of announcement, by number.
    reservations: BTreeMap<u64, Instant>,
    /// Time of announcement of the newest reservation that has arrived.
    newest_arrival: Option<Instant>,
    /// End of the last batch.
    last_ended: Option<Instant>,
    /// Number of written items since the reservation count was last zero.
    written: usize,
}

impl<T, R> BatchQueue<T, R> {
    /// Returns the number of reservations that are not overtaken, and the time until the next one is.
    fn reserved(&self) -> (usize, Option<Duration>) {
        let ages = self.reservations.values().map(Instant::elapsed);
        count_reservations(ages, self.newest_arrival.map(|announced| announced.elapsed()))
    }
}

/// Executor of work in batches, one at a time.
pub struct Batcher<T, R> {
    queue: Mutex<BatchQueue<T, R>>,
    /// Signal to the leader that a request has arrived or a reservation has been dropped.
    changed: Notify,
    leader: tokio::sync::Mutex<()>,
    min_delay: Duration,
    max_delay: Duration,
    /// Maximum time that the next batch waits for the end of the current one; `None` for no limit.
    max_exclusive: Option<Duration>,
    is_written: fn(&R) -> bool,
}

/// Reservation of a caller that will submit an item. Dropping it ends the wait for it.
pub struct BatchReservation<'a, T, R> {
    batcher: &'a Batcher<T, R>,
    number: u64,
    announced: Instant,
}

impl<T, R> Drop for BatchReservation<'_, T, R> {
    fn drop(&mut self) {
        self.batcher.queue().reservations.remove(&self.number);
        self.batcher.changed.notify_waiters();
    }
}

impl<T, R> Batcher<T, R> {
    /// Creates a batcher. `min_delay` is the minimum time to gather, for callers without reservations; `max_delay` limits
    /// the wait for reservations.
    pub fn new(min_delay: Duration, max_delay: Duration) -> Self {
        let (waiting, reservations) = (Vec::new(), BTreeMap::new());
        let queue = BatchQueue { waiting, requested: 0, reservations, newest_arrival: None, last_ended: None, written: 0 };
        Self {
            queue: Mutex::new(queue),
            changed: Notify::new(),
            leader: tokio::sync::Mutex::default(),
            min_delay,
            max_delay,
            max_exclusive: None,
            is_written: |_| true,
        }
    }

    /// Allows the next batch to start in parallel with one that takes longer than `max_exclusive`. Overlapping batches must not write the same parts.
    ///
    /// `is_written`: whether a result counts as a write; later batches wait until they contain as many items as were written.
    #[must_use]
    pub fn overlapping(self, max_exclusive: Duration, is_written: fn(&R) -> bool) -> Self {
        Self { max_exclusive: Some(max_exclusive), is_written, ..self }
    }

    /// Reserves a slot for a later item.
    pub fn reserve(&self) -> BatchReservation<'_, T, R> {
        let (mut queue, announced) = (self.queue(), Instant::now());
        let number = queue.reservations.last_key_value().map_or(0, |(last, _)| last + 1);
        queue.reservations.insert(number, announced);
        BatchReservation { batcher: self, number, announced }
    }

    /// Returns the number of waiting items, for the status page.
    pub fn waiting(&self) -> usize {
        self.queue().waiting.len()
    }

    /// Submits `item` to the next batch. `work` returns a result for each item, in their order.
    pub async fn submit<F>(
        &self,
        item: T,
        reservation: Option<BatchReservation<'_, T, R>>,
        work: impl FnOnce(Vec<T>) -> F,
    ) -> Result<R, BatchInterrupted>
    where
        F: Future<Output = Vec<R>>,
    {
        let (reply_tx, mut reply_rx) = oneshot::channel();
        let number = self.enqueue(item, reply_tx, reservation);
        let leader = tokio::select! {
            biased;
            result = &mut reply_rx => return result.map_err(|_| BatchInterrupted),
            leader = self.leader.lock() => leader,
        };
        // The caller of an item in a running batch does not lead another one: it would wait for the items of others.
        if !self.queue().waiting.iter().any(|waiting| waiting.number == number) {
            drop(leader);
            return reply_rx.await.map_err(|_| BatchInterrupted);
        }
        self.gather().await;
        // Abandoned items are dropped: their callers may have submitted another one.
        let waiting = std::mem::take(&mut self.queue().waiting).into_iter().filter(|waiting| !waiting.reply.is_closed());
        let (items, reply_txs): (Vec<_>, Vec<_>) = waiting.map(|waiting| (waiting.item, waiting.reply)).unzip();
        // Boxed because only the leader runs the work: otherwise every waiting caller's future would reserve memory for it.
        let mut work = Box::pin(work(items));
        let (limit, mut leader) = (self.max_exclusive, Some(leader));
        let overlaps = async { if let Some(limit) = limit { tokio::time::sleep(limit).await } else { pending().await } };
        let ended = tokio::select! {
            biased;
            results = &mut work => Some(results),
            () = overlaps => None,
        };
        let results = match ended {
            Some(results) => results,
            None => {
                drop(leader.take());
                work.await
            }
        };
        self.end_batch(&results);
        drop(leader);
        for (reply_tx, result) in reply_txs.into_iter().zip(results) {
            // A cancelled caller needs no result.
            let _ = reply_tx.send(result);
        }
        reply_rx.await.map_err(|_| BatchInterrupted)
    }

    /// Adds `item` to the queue and returns its number.
    fn enqueue(&self, item: T, reply: oneshot::Sender<R>, reservation: Option<BatchReservation<'_, T, R>>) -> u64 {
        let mut queue = self.queue();
        queue.requested += 1;
        let number = queue.requested;
        queue.waiting.push(BatchItem { number, item, since: Instant::now(), reply });
        queue.newest_arrival = queue.newest_arrival.max(reservation.as_ref().map(|arrived| arrived.announced));
        // Unlock first: dropping a reservation locks the queue.
        drop(queue);
        drop(reservation);
        self.changed.notify_waiters();
        number
    }

    fn end_batch(&self, results: &[R]) {
        let written = results.iter().filter(|result| (self.is_written)(result)).count();
        if written > 0 {
            let mut queue = self.queue();
            queue.last_ended = Some(Instant::now());
            queue.written = if queue.reserved().0 == 0 { 0 } else { queue.written + written };
        }
    }

    async fn gather(&self) {
        if !self.min_delay.is_zero() {
            tokio::time::sleep(self.min_delay).await;
        }
        self.wait_for_reservations().await;
        if self.status().is_some_and(|status| status.reserved > 0 && status.youngest < self.min_delay) {
            // A response that completes several requests releases their callers within a moment; wait for all of them.
            tokio::time::sleep(self.min_delay).await;
            self.wait_for_reservations().await;
        }
    }

    async fn wait_for_reservations(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let Some(limit) = self.status().and_then(|status| batch_delay(&status, self.max_delay)) else {
                return;
            };
            tokio::select! {
                biased;
                () = changed => {}
                () = tokio::time::sleep(limit) => {}
            }
        }
    }

    fn status(&self) -> Option<BatchStatus> {
        let queue = self.queue();
        let (reserved, next_overtaken) = queue.reserved();
        let waiting_times = || queue.waiting.iter().map(|waiting| waiting.since.elapsed());
        Some(BatchStatus {
            waiting: queue.waiting.len(),
            reserved,
            next_overtaken,
            overtaken: queue.reservations.len() - reserved,
            oldest: waiting_times().max()?,
            youngest: waiting_times().min()?,
            written: queue.written,
            idle: queue.last_ended.map(|ended| ended.elapsed()),
        })
    }

    fn queue(&self) -> MutexGuard<'_, BatchQueue<T, R>> {
        self.queue.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_DELAY: Duration = Duration::from_secs(15);

    type Counting = Batcher<u32, (u32, usize)>;

    /// Returns each item with the size of its batch, after a second.
    async fn work(items: Vec<u32>) -> Vec<(u32, usize)> {
        tokio::time::sleep(Duration::from_secs(1)).await;
        items.iter().map(|item| (*item, items.len())).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn requests_during_a_batch_form_the_next_one() {
        let batcher = Counting::new(Duration::ZERO, MAX_DELAY);
        let first = batcher.submit(0, None, work);
        let later = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            futures::future::join_all((1..=9).map(|item| batcher.submit(item, None, work))).await
        };
        let (first, later) = tokio::join!(first, later);
        assert_eq!(first, Ok((0, 1)));
        assert_eq!(later, (1..=9).map(|item| Ok((item, 9))).collect::<Vec<_>>());
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_waits_for_reservations_until_they_are_dropped() {
        let batcher = Counting::new(Duration::ZERO, MAX_DELAY);
        let reservations: Vec<_> = (0..4).map(|_| batcher.reserve()).collect();
        let late = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let mut reservations = reservations.into_iter();
            drop(reservations.next());
            futures::future::join_all(reservations.map(|reservation| batcher.submit(7, Some(reservation), work))).await
        };
        let started = Instant::now();
        let first = async {
            let first = batcher.submit(0, None, work).await;
            (first, batcher.submit(1, None, work).await)
        };
        let ((first, second), _) = tokio::join!(first, late);
        assert_eq!(first, Ok((0, 1)), "nothing was written before");
        assert_eq!(second, Ok((1, 4)), "three reservations were pending");
        assert_eq!(started.elapsed().as_secs(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn reservations_that_arrive_together_form_one_batch() {
        let batcher = Counting::new(Duration::from_millis(50), MAX_DELAY);
        let reserve = |count: usize| (0..count).map(|_| batcher.reserve()).collect::<Vec<_>>();
        let (few, many, others) = (reserve(2), reserve(6), reserve(9));
        let submit = |reservations: Vec<_>| {
            let submissions = reservations.into_iter().map(|reservation| batcher.submit(1, Some(reservation), work));
            futures::future::join_all(submissions)
        };
        let later = async {
            tokio::time::sleep(Duration::from_secs(7)).await;
            submit(many).await
        };
        let (first, later) = tokio::join!(submit(few), later);
        assert_eq!((first, later), (vec![Ok((1, 2)); 2], vec![Ok((1, 6)); 6]));
        drop(others);
    }

    #[tokio::test(start_paused = true)]
    async fn an_overtaken_reservation_causes_no_delay() {
        let batcher = Counting::new(Duration::from_millis(50), MAX_DELAY);
        let started = Instant::now();
        let hanging = batcher.reserve();
        let reservations: Vec<_> = (0..3).map(|_| batcher.reserve()).collect();
        let submit = |reservation| batcher.submit(1, Some(reservation), work);
        let early = futures::future::join_all(reservations.into_iter().map(submit)).await;
        assert_eq!(early, vec![Ok((1, 3)); 3]);
        tokio::time::sleep_until(started + Duration::from_secs(3)).await;
        assert_eq!(batcher.submit(2, Some(batcher.reserve()), work).await, Ok((2, 1)));
        assert_eq!(started.elapsed().as_secs(), 11, "the first reservation is overtaken then");
        assert_eq!(batcher.submit(3, Some(batcher.reserve()), work).await, Ok((3, 1)));
        assert_eq!(started.elapsed().as_secs(), 17, "an overtaken reservation spaces the writes only");
        drop(hanging);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_batch_delays_the_next_one_for_a_moment() {
        let batcher = Counting::new(Duration::ZERO, MAX_DELAY).overlapping(Duration::from_secs(5), |(item, _)| *item > 0);
        let started = Instant::now();
        let first = batcher.submit(1, None, |items| async move {
            tokio::time::sleep(Duration::from_secs(60)).await;
            work(items).await
        });
        let next = async {
            tokio::task::yield_now().await;
            (batcher.submit(0, None, work).await, started.elapsed().as_secs(), batcher.queue().last_ended)
        };
        let (first, next) = tokio::join!(first, next);
        assert_eq!((first, next), (Ok((1, 1)), (Ok((0, 1)), 6, None)), "unwritten items do not count");
        assert_eq!(batcher.queue().last_ended, Some(started + Duration::from_secs(61)));
    }

    #[tokio::test(start_paused = true)]
    async fn members_of_a_slow_batch_lead_no_later_batch() {
        let batcher = Counting::new(Duration::from_millis(10), MAX_DELAY).overlapping(Duration::from_secs(5), |_| true);
        let started = Instant::now();
        let slow = |seconds: u64| {
            move |items: Vec<u32>| async move {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                work(items).await
            }
        };
        let submit = async |item| (batcher.submit(item, None, slow(7)).await, started.elapsed().as_secs());
        let first = futures::future::join_all([submit(1), submit(2)]);
        let next = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            batcher.submit(3, None, slow(600)).await
        };
        let (first, next) = tokio::join!(first, next);
        assert_eq!((first, next), (vec![(Ok((1, 2)), 8), (Ok((2, 2)), 8)], Ok((3, 1))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_leader_drops_only_its_batch() {
        let batcher = Counting::new(Duration::ZERO, MAX_DELAY);
        let leader = batcher.submit(1, None, work);
        let (cancelled, next) = tokio::join!(tokio::time::timeout(Duration::from_millis(100), leader), async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            batcher.submit(2, None, work).await
        });
        assert!(cancelled.is_err());
        assert_eq!(next, Ok((2, 1)));
    }

    #[tokio::test(start_paused = true)]
    async fn items_of_cancelled_callers_are_dropped() {
        let batcher = Counting::new(Duration::ZERO, MAX_DELAY);
        let (_, cancelled, next) = tokio::join!(
            batcher.submit(1, None, work),
            tokio::time::timeout(Duration::from_millis(100), batcher.submit(2, None, work)),
            async {
                tokio::time::sleep(Duration::from_millis(500)).await;
                batcher.submit(3, None, work).await
            }
        );
        assert!(cancelled.is_err());
        assert_eq!(next, Ok((3, 1)));
    }

    #[tokio::test(start_paused = true)]
    async fn members_of_an_abandoned_batch_get_an_error() {
        let batcher = Counting::new(Duration::from_millis(10), MAX_DELAY);
        let leader = tokio::time::timeout(Duration::from_millis(100), batcher.submit(1, None, work));
        let (cancelled, other) = tokio::join!(leader, batcher.submit(2, None, work));
        assert!(cancelled.is_err());
        assert_eq!(other, Err(BatchInterrupted));
    }
}
