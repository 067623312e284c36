//! What becomes of a batch that ARM rejects: pure.
//!
//! In: the changes of the batch, ARM's words, and what was rejected alone before. Out: parts to try one after the other, so that what
//! ARM does not take ends up alone and the rest goes on. Deletions stay before creations, which may need their place.

use super::plan::RouteChange;

/// Numbers of changes that are written together.
pub(super) type RouteChangeIndices = Vec<usize>;

/// Parts to begin with: what was rejected alone before is tried alone again, last.
pub(super) fn initial_parts(changes: &[RouteChange], suspects: &[RouteChange]) -> Vec<RouteChangeIndices> {
    let (suspected, others): (RouteChangeIndices, RouteChangeIndices) =
        (0..changes.len()).partition(|at| suspects.contains(&changes[*at]));
    let others = Some(others).filter(|others| !others.is_empty() || suspected.is_empty());
    others.into_iter().chain(suspected.into_iter().map(|at| vec![at])).collect()
}

/// Parts of a rejected one of at least two: without the routes that ARM's `message` names, which follow alone; in halves when it
/// names none, or all.
pub(super) fn split_rejected(part: &[usize], changes: &[RouteChange], message: &str) -> Vec<RouteChangeIndices> {
    let (blamed, others): (RouteChangeIndices, RouteChangeIndices) =
        part.iter().partition(|at| is_named(&changes[**at], message));
    if blamed.is_empty() || others.is_empty() {
        let (first, second) = part.split_at(part.len() / 2);
        return vec![first.to_vec(), second.to_vec()];
    }
    std::iter::once(others).chain(blamed.into_iter().map(|at| vec![at])).collect()
}

fn is_named(change: &RouteChange, message: &str) -> bool {
    let RouteChange::Set(wanted) = change else { return false };
    let is_part = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    message.split(|c| !is_part(c)).any(|word| word.trim_end_matches('.').eq_ignore_ascii_case(&wanted.name))
}

#[cfg(test)]
mod tests {
    use super::{super::plan::DesiredRoute, *};

    fn set(name: &str) -> RouteChange {
        RouteChange::Set(DesiredRoute { name: name.into(), prefix: "10.0.0.0/24".into(), next_hop: [10, 0, 0, 1].into() })
    }

    fn changes() -> Vec<RouteChange> {
        vec![RouteChange::Remove("x".into()), set("a____1"), set("b____1"), set("c____1")]
    }

    #[test]
    fn suspects_come_last_and_alone() {
        assert_eq!(initial_parts(&changes(), &[]), [vec![0, 1, 2, 3]]);
        assert_eq!(initial_parts(&changes(), &[set("b____1"), set("z")]), [vec![0, 1, 3], vec![2]]);
        assert_eq!(initial_parts(&changes()[1..2], &[set("a____1")]), [[0]]);
        assert_eq!(initial_parts(&[], &[]), [RouteChangeIndices::new()], "tags alone are written as well");
    }

    #[test]
    fn who_is_named_stands_alone_else_halves() {
        let split = |message| split_rejected(&[0, 1, 2, 3], &changes(), message);
        assert_eq!(split("Bad."), [[0, 1], [2, 3]]);
        assert_eq!(split("Route /subscriptions/s/routes/B____1. is bad"), [vec![0, 1, 3], vec![2]]);
        assert_eq!(split("b____11 is bad"), [[0, 1], [2, 3]], "somebody else");
        assert_eq!(split_rejected(&[1, 2], &changes(), "a____1 b____1"), [[1], [2]]);
    }
}
