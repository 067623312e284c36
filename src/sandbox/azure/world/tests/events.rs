use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::*;
use crate::sandbox::azure::topology::{Machine, Pool, PoolKind, Power, Topology};

/// Documents by lower-cased id, to which changes are applied as the simulator does.
#[derive(Debug, Clone, PartialEq)]
struct Documents(BTreeMap<String, Value>);

impl Documents {
    fn of(topology: &Topology) -> Self {
        let all = topology.documents(&topology.machines());
        Self(all.into_iter().map(|document| (document["id"].as_str().unwrap().to_lowercase(), document)).collect())
    }

    fn apply(&mut self, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Put(document) => {
                    self.0.insert(document["id"].as_str().unwrap().to_lowercase(), document);
                }
                Change::Remove(id) => {
                    let below = format!("{}/", id.key());
                    self.0.retain(|key, _| *key != id.key() && !key.starts_with(&below));
                }
                Change::Edit(id, edit) => edit.apply(self.0.get_mut(&id.key()).expect("what is edited exists")),
            }
        }
    }

    fn of_machine(&self, topology: &Topology, machine: &Machine) -> Option<&Value> {
        self.0.get(&machine.id(topology).key())
    }
}

fn world(kind: PoolKind) -> (Estate, Documents) {
    let topology = Topology::new().pool(Pool::new(kind, "pool", 3).public_ips().fault_domains(3));
    (Estate::new(topology.clone()), Documents::of(&topology))
}

const KINDS: [PoolKind; 4] = [PoolKind::Uniform, PoolKind::Flexible, PoolKind::AvailabilitySet, PoolKind::Standalone];

/// The documents there should be: those of the machines there are.
fn expected(estate: &Estate) -> Documents {
    let machines: Vec<Machine> = estate.machines().map(|(_, machine)| machine.clone()).collect();
    let all = estate.topology().documents(&machines);
    let mut all: BTreeMap<_, _> =
        all.into_iter().map(|document| (document["id"].as_str().unwrap().to_lowercase(), document)).collect();
    // The simulator derives this list from the machines.
    all.values_mut().filter(|document| document["type"] == "Microsoft.Compute/availabilitySets").for_each(forget_members);
    Documents(all)
}

fn forget_members(document: &mut Value) {
    document["properties"].as_object_mut().unwrap().remove("virtualMachines");
}

fn comparable(mut documents: Documents) -> Documents {
    let sets = documents.0.values_mut().filter(|document| document["type"] == "Microsoft.Compute/availabilitySets");
    sets.for_each(forget_members);
    documents
}

#[test]
fn new_machines_have_new_numbers_and_addresses() {
    for kind in KINDS {
        let (mut estate, mut documents) = world(kind);
        let (gone, changes) = estate.scale_in("pool", 1).unwrap();
        documents.apply(changes);
        let (new, changes) = estate.scale_out("POOL", 2).unwrap();
        documents.apply(changes);
        let number = |name: &str| name.chars().last().unwrap();
        assert_eq!((number(&gone[0]), number(&new[0]), number(&new[1])), ('2', '3', '4'), "{kind:?}");
        assert_eq!(comparable(documents), expected(&estate), "{kind:?}");
    }
}

#[test]
fn a_deallocated_machine_has_no_fault_domain() {
    for kind in KINDS {
        let (mut estate, mut documents) = world(kind);
        let (name, machine) = estate.machines().nth(1).map(|(name, machine)| (name.to_owned(), machine.clone())).unwrap();
        let mut switched = |power: Power| {
            documents.apply(estate.power(&name, power).unwrap().1);
            documents.of_machine(estate.topology(), &machine).unwrap()["properties"]["instanceView"].clone()
        };
        let off = switched(Power::Deallocated);
        assert_eq!(
            (&off["platformFaultDomain"], &off["statuses"][1]["code"]),
            (&Value::Null, &json!("PowerState/deallocated"))
        );
        let stopped = switched(Power::Stopped);
        assert_eq!(
            (&stopped["platformFaultDomain"], &stopped["statuses"][1]["code"]),
            (&json!(1), &json!("PowerState/stopped"))
        );
        assert_eq!(switched(Power::Running), machine.instance_view());
    }
}

/// What happens, with a number that chooses to whom.
#[derive(Debug, Clone)]
enum Event {
    Out(u32),
    In(u32),
    Delete(usize),
    Recreate(usize),
    Power(usize, Power),
}

fn any_event() -> impl Strategy<Value = Event> {
    let powers = prop::sample::select(vec![Power::Running, Power::Stopped, Power::Deallocated]);
    prop_oneof![
        (0..4_u32).prop_map(Event::Out),
        (0..3_u32).prop_map(Event::In),
        any::<usize>().prop_map(Event::Delete),
        any::<usize>().prop_map(Event::Recreate),
        (any::<usize>(), powers).prop_map(|(at, power)| Event::Power(at, power)),
    ]
}

proptest! {
    #[test]
    fn documents_are_those_of_the_machines_whatever_happens(
        kind in prop::sample::select(KINDS.to_vec()),
        events in prop::collection::vec(any_event(), 0..20),
    ) {
        let (mut estate, mut documents) = world(kind);
        for event in events {
            let chosen = |at: usize| {
                let names: Vec<String> = estate.machines().map(|(name, _)| name.to_owned()).collect();
                names.get(at % names.len().max(1)).cloned()
            };
            let happened = match event {
                Event::Out(count) => estate.scale_out("pool", count).map(|(_, changes)| ((), changes)),
                Event::In(count) => estate.scale_in("pool", count).map(|(_, changes)| ((), changes)),
                Event::Delete(at) => chosen(at).map_or(Ok(((), Vec::new())), |name| estate.delete(&name)),
                Event::Recreate(at) => chosen(at).map_or(Ok(((), Vec::new())), |name| estate.recreate(&name)),
                Event::Power(at, power) => chosen(at).map_or(Ok(((), Vec::new())), |name| estate.power(&name, power)),
            };
            documents.apply(happened.unwrap().1);
            prop_assert_eq!(&comparable(documents.clone()), &expected(&estate));
        }
    }
}
