//! Limits how often the condition of a Node is repaired. Pure.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

use crate::runtime::store::ObjectKey;

/// Least time between two repairs of one Node: another writer may insist. Upstream compares all conditions this often.
const MIN_REPAIR_INTERVAL: Duration = Duration::from_secs(10);

/// Times of the last repairs.
#[derive(Debug, Default)]
pub(super) struct ConditionRepairs(HashMap<ObjectKey, Instant>);

impl ConditionRepairs {
    /// Records a repair at `now`, unless the last one is too recent: then how long to wait.
    pub(super) fn begin(&mut self, key: &ObjectKey, now: Instant) -> Result<(), Duration> {
        self.0.retain(|_, at| now.saturating_duration_since(*at) < MIN_REPAIR_INTERVAL);
        if let Some(at) = self.0.get(key) {
            return Err((*at + MIN_REPAIR_INTERVAL).saturating_duration_since(now));
        }
        self.0.insert(key.clone(), now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_node_is_repaired_once_per_interval() {
        let (mut repairs, now) = (ConditionRepairs::default(), Instant::now());
        let (a, b) = (ObjectKey::cluster("a"), ObjectKey::cluster("b"));
        assert_eq!(repairs.begin(&a, now), Ok(()));
        assert_eq!(repairs.begin(&b, now), Ok(()), "each Node by itself");
        assert_eq!(repairs.begin(&a, now + Duration::from_secs(4)), Err(Duration::from_secs(6)));
        assert_eq!(repairs.begin(&a, now + MIN_REPAIR_INTERVAL), Ok(()));
        assert_eq!(repairs.0.len(), 1, "old repairs are forgotten");
    }
}
