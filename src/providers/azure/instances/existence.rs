//! Decides whether the machine behind a Node exists, and whether it runs. Pure.
//!
//! In: the result of a direct, current read of the machine ([`MachineExistence`]) and the Node. Out: [`Existence`], where
//! only positive evidence is `Gone`. Upstream: `pkg/provider/azure_instances_v1.go`, `azure_instances_v2.go`.
//!
//! Upstream also treats a machine as gone that is being deleted or is missing in a list; here the former is unknown until
//! ARM responds 404, and lists prove nothing. Upstream also mistakes a recreated machine for the old machine of the same
//! name.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use uuid::Uuid;

use crate::{
    cloud_provider::Existence,
    providers::azure::{
        inventory::MachineExistence,
        model::{Machine, spelling},
        node,
    },
};

/// `properties.provisioningState` of a machine at rest.
const SUCCEEDED: &str = "Succeeded";
/// `properties.provisioningState` of a machine that is being deleted.
const DELETING: &str = "Deleting";
/// Power states, behind `PowerState/`, in which no disk is in use. `stopping` is not one of them.
const SHUT_DOWN: &[&str] = &["stopped", "deallocated", "deallocating"];
/// Power states in which the machine works. `starting` is not one of them.
const RUNNING: &[&str] = &["running"];

/// Minimum number of Nodes that must show that firmware reports `vmId` before a difference counts as evidence.
const MIN_SAMPLES: usize = 3;
/// Maximum number of Nodes of a size that are remembered; the latest ones.
const MAX_SAMPLES: usize = 32;

/// Evidence whether firmware reports `vmId`: for each size of machines (in lower case), the Nodes that had it as their
/// `systemUUID` and those that had not.
///
/// On Azure Stack and for some kinds of machine, the two are unrelated, and a difference proves nothing. A kubelet writes
/// its `systemUUID` itself, so no single Node is trusted about others: at least three Nodes and most of those seen must
/// agree.
#[derive(Debug, Clone, Default)]
pub struct SystemUuidEvidence {
    samples_by_size: HashMap<String, VecDeque<SystemUuidSample>>,
}

#[derive(Debug, Clone)]
struct SystemUuidSample {
    node: String,
    matches: bool,
}

impl SystemUuidEvidence {
    /// Records a Node and its machine as evidence. The latest evidence of each Node counts.
    pub fn learn(&mut self, node: &Node, machine: &Machine) {
        let Some(agrees) = system_uuid_matches(node, machine) else { return };
        let witnesses = self.samples_by_size.entry(machine.vm_size.to_ascii_lowercase()).or_default();
        let name = node::name(node);
        witnesses.retain(|witness| witness.node != name);
        witnesses.push_back(SystemUuidSample { node: name.to_owned(), matches: agrees });
        if witnesses.len() > MAX_SAMPLES {
            witnesses.pop_front();
        }
    }

    /// Returns how many Nodes with machines of this size agree, and how many were seen.
    fn sample_counts(&self, machine: &Machine) -> (usize, usize) {
        let seen = self.samples_by_size.get(machine.vm_size.to_ascii_lowercase().as_str());
        let agreeing = seen.into_iter().flatten().filter(|witness| witness.matches).count();
        (agreeing, seen.map_or(0, VecDeque::len))
    }

    fn is_reliable_for(&self, machine: &Machine) -> bool {
        let (agreeing, all) = self.sample_counts(machine);
        agreeing >= MIN_SAMPLES && agreeing * 2 > all
    }
}

/// Decides whether the machine of `node` exists.
///
/// `grace` is `nodeInstanceNotFoundGracePeriodInSeconds`: a Node younger than that may have joined before ARM knows its
/// machine. A replaced machine counts only in a `sighting` of a direct read.
pub fn decide(
    node: &Node,
    sighting: &MachineExistence,
    scheme: &SystemUuidEvidence,
    grace: Duration,
    now: Timestamp,
) -> Existence {
    match existence_by_evidence(node, sighting, scheme) {
        Existence::Gone if is_younger(node, grace, now) => Existence::Exists,
        judged => judged,
    }
}

fn existence_by_evidence(node: &Node, sighting: &MachineExistence, scheme: &SystemUuidEvidence) -> Existence {
    match sighting {
        MachineExistence::Gone => Existence::Gone,
        MachineExistence::Unknown(reason) => Existence::Unknown(reason.clone()),
        MachineExistence::Found(machine) if is_other_machine(node, machine, scheme) => Existence::Gone,
        MachineExistence::Found(machine) if spelling::same_word(&machine.provisioning_state, DELETING) => {
            Existence::Unknown(format!("{} is being deleted, and still there", machine.id))
        }
        MachineExistence::Found(_) => Existence::Exists,
    }
}

fn is_younger(node: &Node, grace: Duration, now: Timestamp) -> bool {
    node::created(node).is_some_and(|created| now.duration_since(created).as_secs_f64() < grace.as_secs_f64())
}

/// Returns `true` if the machine of `node` runs. Only a machine at rest counts, as in [`is_shut_down`].
pub fn runs(node: &Node, machine: &Machine, scheme: &SystemUuidEvidence) -> bool {
    is_at_rest_in(node, machine, scheme, RUNNING)
}

/// Returns `true` if the machine of `node` is shut down. Only a machine at rest counts: while an operation runs, its state
/// may change.
pub fn is_shut_down(node: &Node, machine: &Machine, scheme: &SystemUuidEvidence) -> bool {
    is_at_rest_in(node, machine, scheme, SHUT_DOWN)
}

fn is_at_rest_in(node: &Node, machine: &Machine, scheme: &SystemUuidEvidence, states: &[&str]) -> bool {
    let power = machine.power_state.as_deref().unwrap_or_default();
    spelling::same_word(&machine.provisioning_state, SUCCEEDED)
        && states.iter().any(|state| spelling::same_word(power, state))
        && !is_other_machine(node, machine, scheme)
}

/// Returns `true` if `machine` was recreated under the name of the one that `node` runs on.
///
/// The firmware of such machines reports `vmId`, and kubelet's value differs from it. If one of the two is missing or
/// malformed, nothing is concluded.
pub fn is_other_machine(node: &Node, machine: &Machine, scheme: &SystemUuidEvidence) -> bool {
    system_uuid_matches(node, machine) == Some(false) && scheme.is_reliable_for(machine)
}

/// Returns `true` if the cached machine may be older than `node`, so that it must be read again; concludes nothing.
pub fn may_be_other_machine(node: &Node, machine: &Machine, scheme: &SystemUuidEvidence) -> bool {
    system_uuid_matches(node, machine) == Some(false) && scheme.sample_counts(machine).0 > 0
}

/// Returns whether firmware reports `vmId`; `None` if one of the two is unknown.
fn system_uuid_matches(node: &Node, machine: &Machine) -> Option<bool> {
    let (metadata, is) = (uuid(node::system_uuid(node))?, uuid(&machine.vm_id)?);
    // Firmware before SMBIOS 2.6 has the first three fields in the other byte order, and kubelet passes on what it reads.
    Some(metadata == is || Uuid::from_bytes_le(*metadata.as_bytes()) == is)
}

/// Parses a UUID with dashes: without them the text may be the machine ID of the operating system, which kubelet falls back
/// to.
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

    fn found(change: impl FnOnce(&mut Machine)) -> MachineExistence {
        MachineExistence::Found(Arc::new(machine(change)))
    }

    const OTHER_ID: &str = "fedcba98-7654-3210-fedc-ba9876543210";

    /// Adds `count` Nodes, `name`-0 and so on, that report this UUID.
    fn add_evidence(scheme: &mut SystemUuidEvidence, name: &str, count: usize, system_uuid: &str) {
        let machine = machine(|m| m.vm_size = m.vm_size.to_uppercase());
        (0..count).for_each(|at| scheme.learn(&node(&format!("{name}-{at}")).system_uuid(system_uuid).build(), &machine));
    }

    /// Returns evidence of other Nodes that firmware reports `vmId`.
    fn scheme() -> SystemUuidEvidence {
        let mut scheme = SystemUuidEvidence::default();
        add_evidence(&mut scheme, "other", MIN_SAMPLES, VM_ID);
        scheme
    }

    #[test]
    fn a_size_is_believed_when_several_nodes_and_most_of_them_agree() {
        for (agreeing, differing, believed) in [
            (0, 0, false),
            (1, 0, false),
            (2, 0, false),
            (3, 0, true),
            (3, 2, true),
            (3, 3, false),
            (4, 3, true),
            (1, 20, false),
            // The latest 32 count.
            (31, 15, true),
            (40, 16, false),
        ] {
            let mut scheme = SystemUuidEvidence::default();
            add_evidence(&mut scheme, "same", agreeing, VM_ID);
            add_evidence(&mut scheme, "different", differing, OTHER_ID);
            assert_eq!(scheme.is_reliable_for(&machine(|_| {})), believed, "{agreeing} agree, {differing} differ");
            let victim = node("victim").system_uuid(OTHER_ID).build();
            let existence = decide(&victim, &found(|_| {}), &scheme, NONE, now());
            assert_eq!(existence == Existence::Gone, believed, "{agreeing} agree, {differing} differ");
            assert_eq!(may_be_other_machine(&victim, &machine(|_| {}), &scheme), agreeing > 0);
        }
    }

    #[test]
    fn repeated_evidence_of_a_node_counts_once() {
        let mut scheme = SystemUuidEvidence::default();
        (0..100).for_each(|_| add_evidence(&mut scheme, "liar", 1, VM_ID));
        assert!(!scheme.is_reliable_for(&machine(|_| {})));
        add_evidence(&mut scheme, "honest", 2, VM_ID);
        assert!(scheme.is_reliable_for(&machine(|_| {})));
        add_evidence(&mut scheme, "honest", 2, OTHER_ID);
        assert!(!scheme.is_reliable_for(&machine(|_| {})), "the last word counts");
        (0..1_000).for_each(|at| add_evidence(&mut scheme, &format!("n{at}"), 1, VM_ID));
        assert!(scheme.samples_by_size.values().all(|witnesses| witnesses.len() <= MAX_SAMPLES), "bounded");
    }

    fn existence(node: NodeBuilder, sighting: &MachineExistence) -> Existence {
        decide(&node.build(), sighting, &scheme(), NONE, now())
    }

    #[test]
    fn only_a_direct_404_is_gone() {
        assert_eq!(existence(node("n"), &MachineExistence::Gone), Existence::Gone);
        assert_eq!(existence(node("n"), &MachineExistence::Unknown("403".into())), Existence::Unknown("403".into()));
        for state in ["Succeeded", "Failed", "Updating", "Creating", ""] {
            assert_eq!(existence(node("n"), &found(|m| m.provisioning_state = state.into())), Existence::Exists, "{state}");
        }
        for state in ["Deleting", "deleting"] {
            let existence = existence(node("n"), &found(|m| m.provisioning_state = state.into()));
            assert!(matches!(existence, Existence::Unknown(reason) if reason.contains("vm-1 is being deleted")), "{state}");
        }
    }

    #[test]
    fn a_recreated_machine_matches_in_neither_byte_order() {
        for (system_uuid, vm_id, another) in [
            (VM_ID, VM_ID, false),
            ("01234567-89AB-CDEF-0123-456789ABCDEF", VM_ID, false),
            // The first three fields swapped: dddddddd-dddd-dddd, the rest unchanged.
            ("67452301-ab89-efcd-0123-456789abcdef", VM_ID, false),
            ("67452301-AB89-EFCD-0123-456789ABCDEF\n", VM_ID, false),
            ("67452301-89ab-cdef-0123-456789abcdef", VM_ID, true),
            ("67452301-ab89-efcd-2301-456789abcdef", VM_ID, true),
            ("efcdab89-6745-2301-efcd-ab8967452301", VM_ID, true),
            ("fedcba98-7654-3210-fedc-ba9876543210", VM_ID, true),
            // No evidence: not reported, not a UUID of firmware, not returned by ARM.
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
            assert_eq!(existence(node("n").system_uuid(system_uuid), &sighting), expected, "{system_uuid:?} {vm_id:?}");
        }
    }

    #[test]
    fn differences_prove_nothing_if_firmware_does_not_report_ids() {
        let node = || node("n").system_uuid("fedcba98-7654-3210-fedc-ba9876543210").build();
        let other_size = found(|m| m.vm_size = "Standard_DC4as_v5".into());
        let mut scheme = SystemUuidEvidence::default();
        let mut existence = |sighting: &MachineExistence, learnt: Option<(&str, &str)>| {
            for (at, (system_uuid, vm_id)) in learnt.into_iter().cycle().take(MIN_SAMPLES).enumerate() {
                let witness = super::tests::node(&format!("m-{at}")).system_uuid(system_uuid).build();
                scheme.learn(&witness, &machine(|m| m.vm_id = vm_id.into()));
            }
            decide(&node(), sighting, &scheme, NONE, now())
        };
        assert_eq!(existence(&found(|_| {}), None), Existence::Exists, "nothing is known");
        let no_evidence = [("", VM_ID), (VM_ID, ""), ("11111111-2222-3333-4444-555555555555", VM_ID)];
        for learnt in no_evidence {
            assert_eq!(existence(&found(|_| {}), Some(learnt)), Existence::Exists, "{learnt:?}");
        }
        assert_eq!(existence(&found(|_| {}), Some((VM_ID, VM_ID))), Existence::Gone);
        assert_eq!(existence(&other_size, None), Existence::Exists, "machines of that size may report something else");
    }

    #[test]
    fn a_young_node_is_kept_for_the_grace_period() {
        let grace = Duration::from_secs(300);
        let at = |created| decide(&node("n").created(created).build(), &MachineExistence::Gone, &scheme(), grace, now());
        assert_eq!(at("2026-01-01T00:05:01Z"), Existence::Exists);
        assert_eq!(at("2026-01-01T00:05:00Z"), Existence::Gone);
        assert_eq!(
            decide(&node("n").build(), &MachineExistence::Gone, &scheme(), grace, now()),
            Existence::Gone,
            "no creation time"
        );
        let inconclusive = MachineExistence::Unknown("500".into());
        let young = node("n").created("2026-01-01T00:09:00Z").build();
        assert_eq!(decide(&young, &inconclusive, &scheme(), grace, now()), Existence::Unknown("500".into()));
        assert_eq!(decide(&young, &MachineExistence::Gone, &scheme(), NONE, now()), Existence::Gone, "off");
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
            assert_eq!(is_shut_down(&node("n").build(), &machine, &scheme()), expected, "{provisioning} {power:?}");
        }
        let stopped = machine(|m| m.power_state = Some("stopped".into()));
        assert!(is_shut_down(&node("n").system_uuid(VM_ID).build(), &stopped, &scheme()));
        let other = node("n").system_uuid("fedcba98-7654-3210-fedc-ba9876543210").build();
        assert!(!is_shut_down(&other, &stopped, &scheme()), "the power state is another machine's");
        assert!(
            is_shut_down(&other, &stopped, &SystemUuidEvidence::default()),
            "no Node has shown that firmware reports vmId"
        );
    }
}
