//! One step that several Services wait for and that is done once.

use tokio::sync::OnceCell;

use crate::providers::azure::arm::ArmResult;

/// See the module.
pub(super) struct Once<C> {
    change: C,
    done: OnceCell<ArmResult<()>>,
}

impl<C> Once<C> {
    /// Not done yet.
    pub(super) fn new(change: C) -> Self {
        Self { change, done: OnceCell::new() }
    }

    /// What is to be done.
    pub(super) fn change(&self) -> &C {
        &self.change
    }

    /// Does it, or waits until somebody else has done it.
    pub(super) async fn run(&self, work: impl Future<Output = ArmResult<()>>) -> ArmResult<()> {
        self.done.get_or_init(|| work).await.clone()
    }
}
