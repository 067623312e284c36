//! What becomes of a batch that ARM rejects. Pure.
//!
//! In: who was in it, whom ARM's words blame, and who was rejected alone before. Out: parts to try one after the other, so that those
//! who are at fault end up alone and the others go on.

use std::collections::BTreeSet;

use crate::providers::azure::planner::load_balancer::spec::ServiceIdentity;

/// Parts of a batch to try at first: those who were rejected alone before are tried alone again, last, so that they spoil nobody's
/// write.
pub fn initial_parts<T>(
    batch: Vec<T>,
    who: impl Fn(&T) -> &ServiceIdentity,
    suspects: &BTreeSet<ServiceIdentity>,
) -> Vec<Vec<T>> {
    let (suspected, others): (Vec<T>, Vec<T>) = batch.into_iter().partition(|item| suspects.contains(who(item)));
    let mut parts: Vec<Vec<T>> = suspected.into_iter().map(|item| vec![item]).collect();
    if !others.is_empty() {
        parts.insert(0, others);
    }
    parts
}

/// Parts of a rejected batch of at least two: without the blamed ones, who follow alone; in halves when nobody in particular is blamed.
pub fn split_rejected<T>(batch: Vec<T>, who: impl Fn(&T) -> &ServiceIdentity, blamed: &[ServiceIdentity]) -> Vec<Vec<T>> {
    let length = batch.len();
    let blamed: BTreeSet<ServiceIdentity> = blamed.iter().cloned().collect();
    let (culprits, mut others): (Vec<T>, Vec<T>) = batch.into_iter().partition(|item| blamed.contains(who(item)));
    if culprits.is_empty() || culprits.len() == length {
        let mut batch = if others.is_empty() { culprits } else { others };
        let half = batch.split_off(length / 2);
        return vec![batch, half];
    }
    let mut parts = vec![std::mem::take(&mut others)];
    parts.extend(culprits.into_iter().map(|item| vec![item]));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(number: u8) -> ServiceIdentity {
        ServiceIdentity { key: format!("default/s{number}"), name_prefix: format!("a{number}") }
    }

    fn numbers(parts: &[Vec<ServiceIdentity>]) -> Vec<Vec<&str>> {
        parts.iter().map(|part| part.iter().map(|identity| &identity.name_prefix[1..]).collect()).collect()
    }

    #[test]
    fn culprits_end_up_alone() {
        let batch = || (1..=4).map(identity).collect::<Vec<_>>();
        let split = |blamed: &[u8]| {
            let blamed: Vec<_> = blamed.iter().copied().map(identity).collect();
            split_rejected(batch(), |identity| identity, &blamed)
        };
        assert_eq!(numbers(&split(&[])), [["1", "2"], ["3", "4"]]);
        assert_eq!(numbers(&split(&[3])), [vec!["1", "2", "4"], vec!["3"]]);
        assert_eq!(numbers(&split(&[9])), [["1", "2"], ["3", "4"]], "a stranger");
        assert_eq!(numbers(&split(&[1, 2, 3, 4])), [["1", "2"], ["3", "4"]], "everybody");
    }

    #[test]
    fn suspects_come_last() {
        let suspects = BTreeSet::from([identity(1), identity(3)]);
        let parts = initial_parts((1..=4).map(identity).collect(), |identity| identity, &suspects);
        assert_eq!(numbers(&parts), [vec!["2", "4"], vec!["1"], vec!["3"]]);
        let parts = initial_parts(vec![identity(1)], |identity| identity, &suspects);
        assert_eq!(numbers(&parts), [["1"]]);
        assert!(initial_parts(Vec::<ServiceIdentity>::new(), |identity| identity, &suspects).is_empty());
    }
}
