//! Whether the machine behind a Node is there, and whether it runs: pure.
//!
//! In: what a direct, fresh look at the machine showed ([`Sighting`]) and the Node. Out: [`Existence`], where only positive
//! evidence is `Gone`. Upstream: `pkg/provider/azure_instances_v1.go`, `azure_instances_v2.go`.
//!
//! Upstream also calls gone what is being deleted and what is missing in a list; here the first is unknown until ARM says 404, and
//! lists prove nothing. And upstream takes a machine that was made anew under the name of an old one for the old one.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use uuid::Uuid;

use crate::{
    cloud_provider::Existence,
    providers::azure::{
        inventory::{Machine, Sighting},
        node,
    },
};

/// `properties.provisioningState` of a machine at rest.
const SUCCEEDED: &str = "Succeeded";
/// `properties.provisioningState` of a machine that is on its way out.
const DELETING: &str = "Deleting";
/// Power states, behind `PowerState/`, in which no disk is in use. `stopping` is not one of them.
const SHUT_DOWN: &[&str] = &["stopped", "deallocated", "deallocating"];

/// Whether the machine of `node` exists. `grace` is `nodeInstanceNotFoundGracePeriodInSeconds`: a Node younger than that may
/// have joined before ARM knows its machine.
pub fn decide(node: &Node, sighting: &Sighting, grace: Duration, now: Timestamp) -> Existence {
    match judge(node, sighting) {
        Existence::Gone if is_younger(node, grace, now) => Existence::Exists,
        judged => judged,
    }
}

fn judge(node: &Node, sighting: &Sighting) -> Existence {
    match sighting {
        Sighting::Gone => Existence::Gone,
        Sighting::Unknown(why) => Existence::Unknown(why.clone()),
        Sighting::Found(machine) if is_of_another(node, machine) => Existence::Gone,
        Sighting::Found(machine) if machine.provisioning_state.eq_ignore_ascii_case(DELETING) => {
            Existence::Unknown(format!("{} is being deleted, and still there", machine.id))
        }
        Sighting::Found(_) => Existence::Exists,
    }
}

fn is_younger(node: &Node, grace: Duration, now: Timestamp) -> bool {
    node::created(node).is_some_and(|created| now.duration_since(created).as_secs_f64() < grace.as_secs_f64())
}

/// Whether the machine of `node` is shut down. Only a machine at rest counts: while an operation runs, its state may change.
pub fn is_shut_down(node: &Node, machine: &Machine) -> bool {
    let power = machine.power_state.as_deref().unwrap_or_default();
    machine.provisioning_state.eq_ignore_ascii_case(SUCCEEDED)
        && SHUT_DOWN.iter().any(|state| power.eq_ignore_ascii_case(state))
        && !is_of_another(node, machine)
}

/// Whether `machine` was made anew under the name of the one that `node` runs on: what the firmware tells kubelet differs from
/// `vmId`. Where one of the two is missing or no such number, nothing is concluded.
pub fn is_of_another(node: &Node, machine: &Machine) -> bool {
    let (Some(told), Some(is)) = (uuid(node::system_uuid(node)), uuid(&machine.vm_id)) else { return false };
    // Firmware before SMBIOS 2.6 has the first three fields in the other byte order, and kubelet passes on what it reads.
    told != is && Uuid::from_bytes_le(*told.as_bytes()) != is
}

/// With dashes only: without them the text may be the machine id of the operating system, which kubelet falls back to.
fn uuid(text: &str) -> Option<Uuid> {
    let text = text.trim();
    Uuid::try_parse(text).ok().filter(|uuid| text.len() == 36 && !uuid.is_nil() && !uuid.is_max())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::providers::azure::{
        instances::fixtures::standalone,
        node::fixtures::{NodeBuilder, node},
    };

    const VM_ID: &str = "01234567-89ab-cdef-0123-456789abcdef";
    const NONE: Duration = Duration::ZERO;

    fn now() -> Timestamp {
        "2026-01-01T00:10:00Z".parse().unwrap()
    }

    fn machine(change: impl FnOnce(&mut Machine)) -> Machine {
        let mut machine = standalone("vm-1");
        machine.vm_id = VM_ID.to_owned();
        change(&mut machine);
        machine
    }

    fn found(change: impl FnOnce(&mut Machine)) -> Sighting {
        Sighting::Found(Arc::new(machine(change)))
    }

    fn existence(node: NodeBuilder, sighting: &Sighting) -> Existence {
        decide(&node.build(), sighting, NONE, now())
    }

    #[test]
    fn only_a_direct_404_is_gone() {
        assert_eq!(existence(node("n"), &Sighting::Gone), Existence::Gone);
        assert_eq!(existence(node("n"), &Sighting::Unknown("403".into())), Existence::Unknown("403".into()));
        for state in ["Succeeded", "Failed", "Updating", "Creating", ""] {
            assert_eq!(existence(node("n"), &found(|m| m.provisioning_state = state.into())), Existence::Exists, "{state}");
        }
        for state in ["Deleting", "deleting"] {
            let existence = existence(node("n"), &found(|m| m.provisioning_state = state.into()));
            assert!(matches!(existence, Existence::Unknown(why) if why.contains("vm-1 is being deleted")), "{state}");
        }
    }

    #[test]
    fn a_machine_made_anew_is_another_in_neither_byte_order() {
        for (told, vm_id, another) in [
            (VM_ID, VM_ID, false),
            ("01234567-89AB-CDEF-0123-456789ABCDEF", VM_ID, false),
            // The first three fields swapped: dddddddd-dddd-dddd, the rest as it is.
            ("67452301-ab89-efcd-0123-456789abcdef", VM_ID, false),
            ("67452301-AB89-EFCD-0123-456789ABCDEF\n", VM_ID, false),
            ("67452301-89ab-cdef-0123-456789abcdef", VM_ID, true),
            ("67452301-ab89-efcd-2301-456789abcdef", VM_ID, true),
            ("efcdab89-6745-2301-efcd-ab8967452301", VM_ID, true),
            ("fedcba98-7654-3210-fedc-ba9876543210", VM_ID, true),
            // No evidence: not told, not a number of firmware, not given by ARM.
            ("", VM_ID, false),
            ("Not Settable", VM_ID, false),
            ("fedcba9876543210fedcba9876543210", VM_ID, false),
            ("00000000-0000-0000-0000-000000000000", VM_ID, false),
            ("ffffffff-ffff-ffff-ffff-ffffffffffff", VM_ID, false),
            ("fedcba98-7654-3210-fedc-ba9876543210", "", false),
            ("fedcba98-7654-3210-fedc-ba9876543210", "vm-1", false),
        ] {
            let expected = if another { Existence::Gone } else { Existence::Exists };
            let sighting = found(|m| m.vm_id = vm_id.into());
            assert_eq!(existence(node("n").system_uuid(told), &sighting), expected, "{told:?} {vm_id:?}");
        }
    }

    #[test]
    fn a_young_node_is_kept_for_the_grace_period() {
        let grace = Duration::from_secs(300);
        let at = |created| decide(&node("n").created(created).build(), &Sighting::Gone, grace, now());
        assert_eq!(at("2026-01-01T00:05:01Z"), Existence::Exists);
        assert_eq!(at("2026-01-01T00:05:00Z"), Existence::Gone);
        assert_eq!(decide(&node("n").build(), &Sighting::Gone, grace, now()), Existence::Gone, "no creation time");
        let unknown = Sighting::Unknown("500".into());
        let young = node("n").created("2026-01-01T00:09:00Z").build();
        assert_eq!(decide(&young, &unknown, grace, now()), Existence::Unknown("500".into()));
        assert_eq!(decide(&young, &Sighting::Gone, NONE, now()), Existence::Gone, "off");
    }

    #[test]
    fn shut_down_is_a_machine_at_rest_that_uses_no_disk() {
        for (provisioning, power, expected) in [
            ("Succeeded", Some("stopped"), true),
            ("succeeded", Some("Deallocated"), true),
            ("SUCCEEDED", Some("DEALLOCATING"), true),
            ("Succeeded", Some("stopping"), false),
            ("Succeeded", Some("running"), false),
            ("Succeeded", Some("starting"), false),
            ("Succeeded", Some("unknown"), false),
            ("Succeeded", None, false),
            ("Updating", Some("deallocated"), false),
            ("Failed", Some("stopped"), false),
            ("", Some("stopped"), false),
        ] {
            let machine = machine(|m| {
                m.provisioning_state = provisioning.into();
                m.power_state = power.map(str::to_owned);
            });
            assert_eq!(is_shut_down(&node("n").build(), &machine), expected, "{provisioning} {power:?}");
        }
        let stopped = machine(|m| m.power_state = Some("stopped".into()));
        assert!(is_shut_down(&node("n").system_uuid(VM_ID).build(), &stopped));
        let other = node("n").system_uuid("fedcba98-7654-3210-fedc-ba9876543210").build();
        assert!(!is_shut_down(&other, &stopped), "the power state is another machine's");
    }
}
