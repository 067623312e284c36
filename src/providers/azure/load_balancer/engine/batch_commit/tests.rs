use parking_lot::Mutex;

use super::*;
use crate::providers::azure::{
    planner::load_balancer::desired::samples::{ensure, service},
    samples::arm_error,
};

/// Answers as `judge` does, and notes how many were tried together.
struct Judged<F> {
    judge: F,
    attempts: Mutex<Vec<usize>>,
}

fn judged<F: Fn(&[ServiceRequest]) -> Result<(), AttemptError> + Send + Sync>(judge: F) -> Judged<F> {
    Judged { judge, attempts: Mutex::default() }
}

#[async_trait]
impl<F: Fn(&[ServiceRequest]) -> Result<(), AttemptError> + Send + Sync> BatchStage for Judged<F> {
    type Output = usize;

    fn action(&self) -> &'static str {
        "try"
    }

    async fn attempt(&self, asks: &[ServiceRequest]) -> Result<ServiceResults<usize>, AttemptError> {
        self.attempts.lock().push(asks.len());
        (self.judge)(asks)?;
        Ok(asks.iter().map(|ask| (ask.identity().clone(), Ok(asks.len()))).collect())
    }
}

const CULPRITS: [&str; 2] = ["default/s007", "default/s042"];

fn culprit(asks: &[ServiceRequest]) -> Option<&ServiceRequest> {
    asks.iter().find(|ask| CULPRITS.contains(&ask.identity().key.as_str()))
}

fn rejected(named: &str) -> ArmError {
    arm_error(ArmErrorClass::Invalid, "InvalidResource", &format!("the rule '{named}-TCP-80' cannot be"))
}

fn asks(count: usize) -> Vec<ServiceRequest> {
    (0..count).map(|number| ensure(&service(&format!("s{number:03}")))).collect()
}

fn failed(answers: &ServiceResults<usize>) -> Vec<&str> {
    answers.iter().filter(|(_, answer)| answer.is_err()).map(|(identity, _)| identity.key.as_str()).collect()
}

#[tokio::test]
async fn culprits_fail_alone_and_the_others_go_on() {
    let picky = judged(|asks| culprit(asks).map_or(Ok(()), |_| Err(AttemptError::Arm(rejected("")))));
    let answers = commit_batch(&picky, asks(64), &ServiceQuarantine::default()).await;
    assert_eq!(answers.len(), 64);
    assert_eq!(failed(&answers), CULPRITS);
    assert!(picky.attempts.lock().len() < 30, "{:?}", picky.attempts);
}

#[tokio::test]
async fn whom_arm_names_is_tried_alone_at_once() {
    let picky =
        judged(|asks| culprit(asks).map_or(Ok(()), |ask| Err(AttemptError::Arm(rejected(&ask.identity().name_prefix)))));
    let quarantine = ServiceQuarantine::default();
    let answers = commit_batch(&picky, asks(64), &quarantine).await;
    assert_eq!(failed(&answers), CULPRITS);
    assert_eq!(*picky.attempts.lock(), [64, 63, 62, 1, 1]);

    picky.attempts.lock().clear();
    commit_batch(&picky, asks(64), &quarantine).await;
    assert_eq!(*picky.attempts.lock(), [62, 1, 1], "who failed alone is tried alone");

    let healed = judged(|_| Ok(()));
    commit_batch(&healed, asks(64), &quarantine).await;
    commit_batch(&healed, asks(64), &quarantine).await;
    assert_eq!(*healed.attempts.lock(), [62, 1, 1, 64], "until it is taken");
}

#[tokio::test]
async fn what_is_nobodys_fault_is_not_tried_for_everybody() {
    let closed = judged(|_| Err(AttemptError::Arm(rejected(""))));
    let answers = commit_batch(&closed, asks(256), &ServiceQuarantine::default()).await;
    assert_eq!(failed(&answers).len(), 256);
    assert!(closed.attempts.lock().len() <= 30, "{:?}", closed.attempts);
}

#[tokio::test]
async fn what_only_some_need_fails_only_them() {
    fn forbidden(code: &str) -> AttemptError {
        AttemptError::Arm(ArmError { class: ArmErrorClass::Forbidden, code: code.to_owned(), ..rejected("") })
    }
    let cases: [(fn() -> AttemptError, usize); 3] = [
        (|| AttemptError::SomeServices(CloudError::failed("a machine cannot be written")), 1),
        (|| forbidden("LinkedAuthorizationFailed"), 1),
        (|| forbidden("AuthorizationFailed"), 32),
    ];
    for (trouble, failures) in cases {
        let needy = judged(|asks| culprit(asks).map_or(Ok(()), |_| Err(trouble())));
        let answers = commit_batch(&needy, asks(32), &ServiceQuarantine::default()).await;
        assert_eq!((answers.len(), failed(&answers).len()), (32, failures), "{:?}", trouble());
    }
}

#[tokio::test]
async fn a_batch_that_cannot_be_planned_delays_no_later_one() {
    let unplanned = judged(|_| Err(AttemptError::Cloud(CloudError::failed("the plan of this batch panicked"))));
    let quarantine = ServiceQuarantine::default();
    let results = commit_batch(&unplanned, asks(32), &quarantine).await;
    assert_eq!((results.len(), failed(&results).len()), (32, 32));
    assert_eq!(*unplanned.attempts.lock(), [32], "the batch is not split");

    let planned = judged(|_| Ok(()));
    let results = commit_batch(&planned, asks(32), &quarantine).await;
    assert_eq!((results.len(), failed(&results).len()), (32, 0));
    assert_eq!(*planned.attempts.lock(), [32], "no Service is in quarantine");
}
