use std::sync::Mutex;

use super::*;
use crate::providers::azure::planner::load_balancer::desired::samples::{ensure, service};

/// Takes every part without a culprit.
#[derive(Default)]
struct Picky {
    culprits: Vec<&'static str>,
    names_them: bool,
    attempts: Mutex<Vec<usize>>,
}

#[async_trait]
impl BatchStage for Picky {
    type Output = usize;

    fn action(&self) -> &'static str {
        "try"
    }

    async fn attempt(&self, asks: &[ServiceRequest]) -> Result<ServiceResults<usize>, AttemptError> {
        self.attempts.lock().unwrap().push(asks.len());
        let culprit = asks.iter().find(|ask| self.culprits.contains(&ask.identity().key.as_str()));
        match culprit {
            Some(ask) => Err(AttemptError::Arm(rejected(if self.names_them { &ask.identity().name_prefix } else { "" }))),
            None => Ok(asks.iter().map(|ask| (ask.identity().clone(), Ok(asks.len()))).collect()),
        }
    }
}

fn rejected(named: &str) -> ArmError {
    ArmError {
        class: ArmErrorClass::Invalid,
        status: Some(400),
        code: "InvalidResource".into(),
        message: format!("the rule '{named}-TCP-80' cannot be"),
        request: "PUT /x".into(),
        correlation_id: None,
        retry_after: None,
    }
}

fn asks(count: usize) -> Vec<ServiceRequest> {
    (0..count).map(|number| ensure(&service(&format!("s{number:03}")))).collect()
}

fn failed(answers: &ServiceResults<usize>) -> Vec<&str> {
    answers.iter().filter(|(_, answer)| answer.is_err()).map(|(identity, _)| identity.key.as_str()).collect()
}

#[tokio::test]
async fn culprits_fail_alone_and_the_others_go_on() {
    let picky = Picky { culprits: vec!["default/s007", "default/s042"], ..Picky::default() };
    let answers = commit_batch(&picky, asks(64), &ServiceQuarantine::default()).await;
    assert_eq!(answers.len(), 64);
    assert_eq!(failed(&answers), picky.culprits);
    assert!(picky.attempts.lock().unwrap().len() < 30, "{:?}", picky.attempts);
}

#[tokio::test]
async fn whom_arm_names_is_tried_alone_at_once() {
    let picky = Picky { culprits: vec!["default/s007", "default/s042"], names_them: true, ..Picky::default() };
    let quarantine = ServiceQuarantine::default();
    let answers = commit_batch(&picky, asks(64), &quarantine).await;
    assert_eq!(failed(&answers), picky.culprits);
    assert_eq!(*picky.attempts.lock().unwrap(), [64, 63, 62, 1, 1]);

    picky.attempts.lock().unwrap().clear();
    commit_batch(&picky, asks(64), &quarantine).await;
    assert_eq!(*picky.attempts.lock().unwrap(), [62, 1, 1], "who failed alone is tried alone");

    let healed = Picky::default();
    commit_batch(&healed, asks(64), &quarantine).await;
    commit_batch(&healed, asks(64), &quarantine).await;
    assert_eq!(*healed.attempts.lock().unwrap(), [62, 1, 1, 64], "until it is taken");
}

#[tokio::test]
async fn what_is_nobodys_fault_is_not_tried_for_everybody() {
    let picky = Picky { culprits: vec![""], ..Picky::default() };
    struct Closed(Picky);
    #[async_trait]
    impl BatchStage for Closed {
        type Output = usize;
        fn action(&self) -> &'static str {
            "try"
        }
        async fn attempt(&self, asks: &[ServiceRequest]) -> Result<ServiceResults<usize>, AttemptError> {
            self.0.attempts.lock().unwrap().push(asks.len());
            Err(AttemptError::Arm(rejected("")))
        }
    }
    let closed = Closed(picky);
    let answers = commit_batch(&closed, asks(256), &ServiceQuarantine::default()).await;
    assert_eq!(failed(&answers).len(), 256);
    assert!(closed.0.attempts.lock().unwrap().len() <= 30, "{:?}", closed.0.attempts);
}

#[tokio::test]
async fn what_only_some_need_fails_only_them() {
    struct Needy(fn() -> AttemptError);
    #[async_trait]
    impl BatchStage for Needy {
        type Output = usize;
        fn action(&self) -> &'static str {
            "try"
        }
        async fn attempt(&self, asks: &[ServiceRequest]) -> Result<ServiceResults<usize>, AttemptError> {
            if asks.iter().any(|ask| ask.identity().key == "default/s007") {
                return Err((self.0)());
            }
            Ok(asks.iter().map(|ask| (ask.identity().clone(), Ok(0))).collect())
        }
    }
    fn forbidden(code: &str) -> AttemptError {
        AttemptError::Arm(ArmError { class: ArmErrorClass::Forbidden, code: code.to_owned(), ..rejected("") })
    }
    let cases: [(fn() -> AttemptError, usize); 3] = [
        (|| AttemptError::SomeServices(CloudError::failed("a machine cannot be written")), 1),
        (|| forbidden("LinkedAuthorizationFailed"), 1),
        (|| forbidden("AuthorizationFailed"), 32),
    ];
    for (trouble, failures) in cases {
        let answers = commit_batch(&Needy(trouble), asks(32), &ServiceQuarantine::default()).await;
        assert_eq!((answers.len(), failed(&answers).len()), (32, failures), "{:?}", trouble());
    }
}
