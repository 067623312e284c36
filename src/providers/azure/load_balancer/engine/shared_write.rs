//! One step that several Services wait for and that is done once.

use tokio::sync::OnceCell;

use crate::providers::azure::model::ArmResult;

/// See the module.
pub(super) struct SharedWrite<C> {
    change: C,
    done: OnceCell<ArmResult<()>>,
}

impl<C> SharedWrite<C> {
    /// Not done yet.
    pub(super) fn new(change: C) -> Self {
        Self { change, done: OnceCell::new() }
    }

    /// Returns the change that is written.
    pub(super) fn change(&self) -> &C {
        &self.change
    }

    /// Has `work` do it, or waits until somebody else has done it.
    pub(super) async fn run<'a, F>(&'a self, work: impl FnOnce(&'a C) -> F) -> ArmResult<()>
    where
        F: Future<Output = ArmResult<()>>,
    {
        // Apart, since all who wait would otherwise hold room for it.
        self.done.get_or_init(|| Box::pin(work(&self.change))).await.clone()
    }
}
