//! Condition of a Service that reports the progress of its load balancer, and when it needs a write of its own. Pure.
//!
//! Other patches of the Service contain the condition, too. A separate patch is sent only when a Service enters or leaves failure or
//! waiting. A settled Service without the condition gets no patch, so that taking over a cluster writes nothing.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::Service,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};

/// Type of the condition in `status.conditions`.
pub const CONDITION_TYPE: &str = "cloud-controller-manager.io/LoadBalancer";

/// Maximum length of a message in bytes, because messages may repeat texts of users.
const MAX_MESSAGE: usize = 1024;

/// Progress of a load balancer.
///
/// The status of the condition is `True` if the load balancer serves the Service, `Unknown` while work is in progress or waits, and
/// `False` if the load balancer failed or is being deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadBalancerPhase {
    /// Being created or updated.
    Ensuring,
    /// Being updated with another set of nodes.
    Updating,
    Deleting,
    Ready,
    /// Another component implements it.
    ImplementedElsewhere,
    /// The cloud requested a delay, for this reason.
    Waiting(String),
    /// Failed for this reason, to be retried.
    Failed(String),
    /// Blocked for this reason until the user changes something.
    Invalid(String),
}

impl LoadBalancerPhase {
    /// Returns reason, status and message of the condition.
    fn parts(&self) -> (&'static str, &'static str, &str) {
        match self {
            Self::Ensuring => ("Ensuring", "Unknown", "The load balancer is being created or updated"),
            Self::Updating => ("Updating", "Unknown", "The load balancer is being updated with the new set of nodes"),
            Self::Deleting => ("Deleting", "False", "The load balancer is being deleted"),
            Self::Ready => ("Ready", "True", "The load balancer serves the Service"),
            Self::ImplementedElsewhere => ("ImplementedElsewhere", "True", "Another component provides the load balancer"),
            Self::Waiting(reason) => ("Waiting", "Unknown", reason),
            Self::Failed(reason) => ("Failed", "False", reason),
            Self::Invalid(reason) => ("Invalid", "False", reason),
        }
    }

    /// Returns the reason of the condition.
    pub fn reason(&self) -> &'static str {
        self.parts().0
    }

    fn message(&self) -> String {
        let (_, _, message) = self.parts();
        let fits = (0..=MAX_MESSAGE).rev().find_map(|end| message.get(..end));
        if message.len() <= MAX_MESSAGE { message } else { fits.unwrap_or_default() }.to_owned()
    }

    /// Returns `true` if this phase needs a write of its own. `current` is the condition that the Service has.
    pub fn needs_write(&self, current: Option<&Condition>) -> bool {
        let differs = current.is_some_and(|current| current.reason != self.reason());
        match self {
            LoadBalancerPhase::Waiting(_) | LoadBalancerPhase::Failed(_) | LoadBalancerPhase::Invalid(_) => {
                differs || current.is_none()
            }
            LoadBalancerPhase::Ready | LoadBalancerPhase::ImplementedElsewhere => differs,
            LoadBalancerPhase::Ensuring | LoadBalancerPhase::Updating | LoadBalancerPhase::Deleting => false,
        }
    }

    /// Returns the condition for this phase. The transition time of `current` is kept if the status is the same.
    pub fn condition(&self, current: Option<&Condition>, generation: Option<i64>, now: Timestamp) -> Condition {
        let (reason, status, _) = self.parts();
        let unchanged = current.filter(|current| current.status == status);
        Condition {
            type_: CONDITION_TYPE.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: self.message(),
            observed_generation: generation,
            last_transition_time: unchanged.map_or(Time(now), |current| current.last_transition_time.clone()),
        }
    }
}

/// Returns our condition of `service`.
pub fn current(service: &Service) -> Option<&Condition> {
    let conditions = service.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().find(|condition| condition.type_ == CONDITION_TYPE)
}

/// Returns all conditions of `service` with ours replaced, added or (`None`) removed.
pub fn all_with(service: &Service, ours: Option<Condition>) -> Vec<Condition> {
    let conditions = service.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    conditions.into_iter().filter(|condition| condition.type_ != CONDITION_TYPE).chain(ours).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    #[test]
    fn only_entering_and_leaving_a_failure_needs_a_write() {
        let failed = LoadBalancerPhase::Failed("first".into()).condition(None, None, NOW);
        let ready = LoadBalancerPhase::Ready.condition(None, None, NOW);
        let second = LoadBalancerPhase::Failed("second".into());
        assert!(second.needs_write(None) && second.needs_write(Some(&ready)));
        assert!(!second.needs_write(Some(&failed)), "not on every retry");
        assert!(LoadBalancerPhase::Waiting(String::new()).needs_write(Some(&failed)));
        assert!(LoadBalancerPhase::Ready.needs_write(Some(&failed)));
        assert!(!LoadBalancerPhase::Ready.needs_write(None), "taking over writes nothing");
        assert!(!LoadBalancerPhase::Ready.needs_write(Some(&ready)));
        assert!(!LoadBalancerPhase::Ensuring.needs_write(None) && !LoadBalancerPhase::Deleting.needs_write(Some(&ready)));
    }

    #[test]
    fn transition_time_follows_the_status() {
        let later = NOW + jiff::SignedDuration::from_secs(60);
        let failed = LoadBalancerPhase::Failed("a".into()).condition(None, Some(1), NOW);
        let invalid = LoadBalancerPhase::Invalid("b".into()).condition(Some(&failed), Some(2), later);
        assert_eq!((invalid.last_transition_time.0, invalid.observed_generation), (NOW, Some(2)));
        assert_eq!(LoadBalancerPhase::Ready.condition(Some(&invalid), None, later).last_transition_time.0, later);
    }

    #[test]
    fn conditions_of_other_writers_are_kept() {
        let other = Condition { type_: "Other".into(), ..LoadBalancerPhase::Ready.condition(None, None, NOW) };
        let ours = LoadBalancerPhase::Ready.condition(None, None, NOW);
        let mut service = Service::default();
        service.status.get_or_insert_default().conditions = Some(vec![ours, other.clone()]);
        assert_eq!(current(&service).unwrap().type_, CONDITION_TYPE);
        assert_eq!(all_with(&service, None), vec![other]);
    }

    #[test]
    fn long_messages_are_cut() {
        let condition = LoadBalancerPhase::Failed("ä".repeat(5000)).condition(None, None, NOW);
        assert_eq!(condition.message.len(), MAX_MESSAGE);
        let condition = LoadBalancerPhase::Invalid("€".repeat(5000)).condition(None, None, NOW);
        assert_eq!(condition.message.len(), MAX_MESSAGE - 1, "no character is cut");
    }
}
