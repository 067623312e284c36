use super::*;
use crate::sandbox::kinds::{LEASE, NODE, SERVICE};

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
fn create_sets_what_the_server_owns() {
    let sent = json!({"metadata": {"generateName": "n-", "uid": "mine", "generation": 7, "deletionTimestamp": "1970-01-01T00:00:00Z"}});
    let (_, created) = with_node(sent);
    let meta = &created["metadata"];
    assert_eq!(created["apiVersion"], "v1");
    assert_eq!(meta["resourceVersion"], "2");
    assert_eq!(meta["creationTimestamp"], "1970-01-01T00:00:00Z");
    assert_eq!((meta.get("deletionTimestamp"), meta.get("generation")), (None, None));
    assert_ne!(meta["uid"], "mine");
    let name = meta["name"].as_str().unwrap();
    assert!(name.starts_with("n-") && name.len() == 7, "{name}");
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
}

#[test]
fn a_stale_resource_version_conflicts() {
    let (mut storage, old) = with_node(node("a"));
    let mut changed = (*old).clone();
    changed["metadata"]["labels"] = json!({"a": "1"});
    assert_eq!(update(&mut storage, Part::Main, changed.clone()).unwrap()["metadata"]["resourceVersion"], "3");
    changed["metadata"]["labels"] = json!({"a": "2"});
    let refusal = update(&mut storage, Part::Main, changed.clone()).unwrap_err();
    assert_eq!((refusal.code, refusal.reason), (409, "Conflict"));
    assert_eq!(refusal.body()["details"], json!({"name": "a", "group": "", "kind": "nodes"}));
    changed["metadata"]["resourceVersion"] = json!("");
    assert!(update(&mut storage, Part::Main, changed).is_ok(), "without a resourceVersion the last writer wins");
}

#[test]
fn a_lease_needs_a_resource_version() {
    let mut storage = Storage::default();
    let lease = json!({"metadata": {"name": "l", "namespace": "n"}, "spec": {"holderIdentity": "a"}});
    storage.create(&LEASE, "n", lease.clone(), WRITE).unwrap();
    let refused = storage.update(&LEASE, &key_of(&lease), lease, (Part::Main, Origin::Put), WRITE);
    assert_eq!(refused.map_err(|refusal| refusal.code), Err(422));
}

#[test]
fn a_write_without_a_change_is_no_write() {
    let (mut storage, old) = with_node(node("a"));
    assert_eq!(update(&mut storage, Part::Main, (*old).clone()).unwrap(), old);
    assert_eq!(storage.revision(), 2);
}

#[test]
fn another_uid_is_a_conflict_for_put_and_invalid_for_patch() {
    for (origin, code) in [(Origin::Put, 409), (Origin::Patch, 422)] {
        let (mut storage, old) = with_node(node("a"));
        let mut object = (*old).clone();
        object["metadata"]["uid"] = json!("another");
        let refused = storage.update(&NODE, &key_of(&old), object, (Part::Main, origin), WRITE);
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
}

#[test]
fn a_service_is_created_without_its_status() {
    let mut storage = Storage::default();
    let sent = json!({
        "metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}, "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}},
    });
    let created = storage.create(&SERVICE, "n", sent, WRITE).unwrap();
    assert_eq!(created["status"], json!({"loadBalancer": {}}));
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

#[test]
fn delete_has_preconditions() {
    let cases =
        [(Some("another"), None, Some(409)), (None, Some("1"), Some(409)), (None, Some("2"), None), (None, None, None)];
    for (uid, resource_version, expected) in cases {
        let (mut storage, old) = with_node(node("a"));
        let preconditions =
            Preconditions { uid: uid.map(str::to_owned), resource_version: resource_version.map(str::to_owned) };
        let refused = storage.delete(&NODE, &key_of(&old), &preconditions, WRITE).err();
        assert_eq!(refused.map(|refusal| refusal.code), expected, "{preconditions:?}");
    }
}

#[test]
fn a_namespace_takes_its_objects_along() {
    let mut storage = Storage::default();
    storage.create(&kinds::NAMESPACE, "", json!({"metadata": {"name": "n"}}), WRITE).unwrap();
    storage.create(&kinds::CONFIG_MAP, "n", json!({"metadata": {"name": "c"}}), WRITE).unwrap();
    storage.delete(&kinds::NAMESPACE, &ObjectKey::cluster("n"), &Preconditions::default(), WRITE).unwrap();
    assert!(storage.list(&kinds::CONFIG_MAP, storage.revision()).unwrap().is_empty());
}

#[test]
fn the_past_can_be_listed_until_it_is_forgotten() {
    let (mut storage, _) = with_node(node("a"));
    storage.create(&NODE, "", node("b"), WRITE).unwrap();
    storage.delete(&NODE, &ObjectKey::cluster("a"), &Preconditions::default(), WRITE).unwrap();
    let names = |storage: &Storage, revision| {
        storage.list(&NODE, revision).map(|list| list.into_keys().map(|key| key.name).collect::<Vec<_>>())
    };
    assert_eq!(names(&storage, 2).unwrap(), ["a"]);
    assert_eq!(names(&storage, 3).unwrap(), ["a", "b"]);
    assert_eq!(names(&storage, 4).unwrap(), ["b"]);
    assert_eq!(names(&storage, 5).map_err(|refusal| refusal.code), Err(504));
    storage.compact();
    assert_eq!(names(&storage, 4).map_err(|refusal| refusal.code), Err(410));
    assert_eq!(names(&storage, 5).unwrap(), ["b"]);
}

#[test]
fn the_history_is_bounded() {
    let (mut storage, old) = with_node(node("a"));
    for count in 0..HISTORY {
        let mut object = (*old).clone();
        object["metadata"]["resourceVersion"] = json!("");
        object["metadata"]["labels"] = json!({"count": count.to_string()});
        update(&mut storage, Part::Main, object).unwrap();
    }
    assert_eq!(storage.changes_after(1).map(|_| ()).map_err(|refusal| refusal.code), Err(410));
    assert_eq!(storage.changes_after(2).unwrap().count(), HISTORY);
}

#[test]
fn a_dry_run_changes_nothing() {
    let mut storage = Storage::default();
    let dry = Write { dry_run: true, ..WRITE };
    assert_eq!(storage.create(&NODE, "", node("a"), dry).unwrap()["metadata"]["name"], "a");
    assert_eq!((storage.revision(), storage.get(&NODE, &ObjectKey::cluster("a")).is_err()), (1, true));
}
