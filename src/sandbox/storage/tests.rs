use super::*;
use crate::sandbox::kinds::{NODE, SERVICE};

const WRITE: Write = Write { now: Timestamp::UNIX_EPOCH, dry_run: false };

fn node(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

fn with_node(object: Value) -> (Storage, Arc<Value>) {
    let mut storage = Storage::default();
    let created = storage.create(&NODE, "", object, WRITE).unwrap();
    (storage, created)
}

fn update(storage: &mut Storage, part: Part, object: Value) -> Result<Arc<Value>, Refusal> {
    let key = key_of(&object);
    storage.update(&NODE, &key, object, (part, Origin::Put), WRITE)
}

#[test]
fn create_refuses() {
    let cases = [
        (node("a"), 409),
        (json!({"metadata": {}}), 422),
        (json!({"metadata": {"name": "b", "resourceVersion": "1"}}), 400),
        (json!({"kind": "Service", "metadata": {"name": "b"}}), 400),
        (json!({"metadata": {"name": "b"}, "spec": {"taints": "none"}}), 400),
        (json!({"metadata": {"name": "UPPER"}}), 422),
        (json!([]), 400),
    ];
    for (object, code) in cases {
        let (mut storage, _) = with_node(node("a"));
        let refused = storage.create(&NODE, "", object.clone(), WRITE).map_err(|refusal| refusal.code);
        assert_eq!(refused, Err(code), "{object}");
        assert_eq!(storage.revision(), 2, "a refused write leaves no trace");
    }
    let mut storage = Storage::default();
    storage.create(&NODE, "", node("a"), Write { dry_run: true, ..WRITE }).unwrap();
    assert_eq!(storage.revision(), 1, "nor does a dry run");
}

#[test]
fn a_stale_resource_version_or_another_uid_conflicts() {
    let (mut storage, old) = with_node(node("a"));
    assert_eq!(update(&mut storage, Part::Main, (*old).clone()).unwrap(), old, "without a change there is no write");
    let mut changed = (*old).clone();
    changed["metadata"]["labels"] = json!({"a": "1"});
    assert_eq!(update(&mut storage, Part::Main, changed.clone()).unwrap()["metadata"]["resourceVersion"], "3");
    changed["metadata"]["labels"] = json!({"a": "2"});
    let refusal = update(&mut storage, Part::Main, changed.clone()).unwrap_err();
    assert_eq!((refusal.code, refusal.reason), (409, "Conflict"));
    assert_eq!(refusal.body()["details"], json!({"name": "a", "group": "", "kind": "nodes"}));
    changed["metadata"]["resourceVersion"] = json!("");
    assert!(update(&mut storage, Part::Main, changed.clone()).is_ok(), "without a resourceVersion the last writer wins");
    changed["metadata"]["uid"] = json!("another");
    for (origin, code) in [(Origin::Put, 409), (Origin::Patch, 422)] {
        let refused = storage.update(&NODE, &key_of(&old), changed.clone(), (Part::Main, origin), WRITE);
        assert_eq!(refused.map_err(|refusal| refusal.code), Err(code));
    }
}

#[test]
fn object_and_status_are_written_apart() {
    let kept_at_create = json!({"metadata": {"name": "a"}, "status": {"phase": "Running"}});
    let (mut storage, old) = with_node(kept_at_create);
    assert_eq!(old["status"]["phase"], "Running");
    let mut both = (*old).clone();
    both["spec"]["unschedulable"] = json!(true);
    both["status"]["phase"] = json!("Terminated");
    both["metadata"]["labels"] = json!({"a": "1"});
    let status = update(&mut storage, Part::Status, both.clone()).unwrap();
    assert_eq!((status["spec"].get("unschedulable"), &status["status"]["phase"]), (None, &json!("Terminated")));
    assert_eq!(status["metadata"]["labels"]["a"], "1", "metadata goes with either");
    both["metadata"]["resourceVersion"] = json!("");
    both["status"]["phase"] = json!("Pending");
    let main = update(&mut storage, Part::Main, both).unwrap();
    assert_eq!((&main["spec"]["unschedulable"], &main["status"]["phase"]), (&json!(true), &json!("Terminated")));
    let balancer = json!({"ingress": [{"ip": "1.2.3.4"}]});
    let sent = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}, "status": {"loadBalancer": balancer}});
    let service = storage.create(&SERVICE, "n", sent, WRITE).unwrap();
    assert_eq!(service["status"], json!({"loadBalancer": {}}), "unlike a Node, a Service is created without it");
}

#[test]
fn finalizers_hold_an_object_back() {
    let (mut storage, old) = with_node(json!({"metadata": {"name": "a", "finalizers": ["x/y"]}}));
    let key = key_of(&old);
    let none = Preconditions::default();
    let Deleted::Waiting(waiting) = storage.delete(&NODE, &key, &none, WRITE).unwrap() else { panic!("it is gone") };
    assert_eq!(waiting["metadata"]["deletionTimestamp"], "1970-01-01T00:00:00Z");
    assert_eq!(storage.revision(), 3);
    storage.delete(&NODE, &key, &none, WRITE).unwrap();
    assert_eq!(storage.revision(), 3, "deleting again changes nothing");

    let mut more = (*waiting).clone();
    more["metadata"]["finalizers"] = json!(["x/y", "x/z"]);
    assert_eq!(update(&mut storage, Part::Main, more).map_err(|refusal| refusal.code), Err(422));
    let mut released = (*waiting).clone();
    released["metadata"]["finalizers"] = json!([]);
    update(&mut storage, Part::Status, released).unwrap();
    assert_eq!(storage.get(&NODE, &key).map_err(|refusal| refusal.code), Err(404));
    let last = storage.changes_after(3).unwrap().next().unwrap();
    assert!(last.deleted && last.new["metadata"]["resourceVersion"] == "4");
}
