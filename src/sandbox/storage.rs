//! The state of the server: objects, the global resourceVersion and the history that watches read.
//!
//! In: create, update, delete with the moment they happen. Out: the object as stored, or a [`Refusal`]; and [`Change`]s. No I/O, no
//! clock, no randomness: the same requests give the same state, UIDs included.
//! Upstream: apiserver `pkg/registry/generic/registry/store.go` and `pkg/registry/rest`.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    allocations::Allocations,
    kinds::{self, Kind},
    refusal::{Cause, Refusal},
    strategy::{self, Origin, Part},
};
use crate::runtime::store::ObjectKey;

/// Number of changes that are kept for watches; older resourceVersions are refused with 410.
const HISTORY: usize = 20_000;

/// Write as watches see it.
#[derive(Debug, Clone)]
pub struct Change {
    /// The resourceVersion that it made.
    pub revision: u64,
    /// Kind of the object.
    pub kind: &'static Kind,
    /// The object before, unless it was created.
    pub old: Option<Arc<Value>>,
    /// The object after; for a deletion, its last state.
    pub new: Arc<Value>,
    /// Whether it was deleted.
    pub deleted: bool,
}

/// Time and mode of a write.
#[derive(Debug, Clone, Copy)]
pub struct Write {
    /// Time for the timestamps of the object.
    pub now: Timestamp,
    /// Whether the write is only validated and not stored.
    pub dry_run: bool,
}

/// `DeleteOptions.preconditions`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// The object must have this UID.
    pub uid: Option<String>,
    /// The object must have this resourceVersion.
    pub resource_version: Option<String>,
}

/// Effect of a delete.
#[derive(Debug, Clone)]
pub enum Deleted {
    /// The object is deleted; this was its last state.
    Gone(Arc<Value>),
    /// Finalizers prevent the deletion; this is the object that waits for them.
    Waiting(Arc<Value>),
}

type Objects = BTreeMap<ObjectKey, Arc<Value>>;

/// State of the server that outlives a request.
#[derive(Debug, Clone)]
pub struct Storage {
    revision: u64,
    /// Number of restores of an older state. UIDs are never repeated.
    restores: u64,
    /// The oldest revision from which a watch can continue.
    compacted: u64,
    objects: BTreeMap<&'static str, Objects>,
    history: VecDeque<Change>,
    allocations: Allocations,
}

impl Default for Storage {
    fn default() -> Self {
        Self {
            revision: 1,
            restores: 0,
            compacted: 1,
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            allocations: Allocations::default(),
        }
    }
}

impl Storage {
    /// Returns the resourceVersion of the last write.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns how often an older state was restored.
    pub fn restores(&self) -> u64 {
        self.restores
    }

    /// Returns this state as etcd has it after a restore from a backup, the first one after `restores` others.
    ///
    /// Later writes are lost, and their resourceVersions are used again. Watches from later versions wait for them.
    pub fn restored(&self, restores: u64) -> Self {
        Self { restores: restores + 1, compacted: self.revision, history: VecDeque::new(), ..self.clone() }
    }

    /// Returns the object at `key`.
    pub fn get(&self, kind: &Kind, key: &ObjectKey) -> Result<Arc<Value>, Refusal> {
        let found = self.objects.get(kind.plural).and_then(|objects| objects.get(key));
        found.cloned().ok_or_else(|| Refusal::not_found(kind, &key.name))
    }

    /// Returns all objects of `kind` as of `revision`, in key order.
    pub fn list(&self, kind: &Kind, revision: u64) -> Result<Objects, Refusal> {
        if revision > self.revision {
            return Err(Refusal::too_large_version(revision, self.revision));
        }
        let mut objects = self.objects.get(kind.plural).cloned().unwrap_or_default();
        if revision == self.revision {
            return Ok(objects);
        }
        for change in self.changes_after(revision)?.rev().filter(|change| change.kind.plural == kind.plural) {
            let key = key_of(&change.new);
            match &change.old {
                Some(old) => objects.insert(key, Arc::clone(old)),
                None => objects.remove(&key),
            };
        }
        Ok(objects)
    }

    /// Returns the writes after `revision`, oldest first; refused with 410 if the history does not reach that far.
    pub fn changes_after(&self, revision: u64) -> Result<impl DoubleEndedIterator<Item = &Change>, Refusal> {
        if revision < self.compacted {
            return Err(Refusal::expired(revision, self.compacted));
        }
        let start = self.history.partition_point(|change| change.revision <= revision);
        Ok(self.history.range(start..))
    }

    /// Forgets the history and moves on, so that every resourceVersion returned so far is too old.
    pub fn compact(&mut self) {
        self.revision += 1;
        self.compacted = self.revision;
        self.history.clear();
    }

    /// Creates `object` in `namespace`.
    pub fn create(
        &mut self,
        kind: &'static Kind,
        namespace: &str,
        object: Value,
        write: Write,
    ) -> Result<Arc<Value>, Refusal> {
        let mut object = object;
        let serial = self.restores * 1_000_000_000 + self.revision + 1;
        strategy::prepare_create(kind, namespace, &mut object, write.now, serial)?;
        let key = key_of(&object);
        if self.get(kind, &key).is_ok() {
            return Err(Refusal::already_exists(kind, &key.name));
        }
        self.admit(kind, None, &mut object)?;
        Ok(self.commit(kind, &key, object, write))
    }

    /// Replaces the object at `key` by `object`, as far as writes of `part` may.
    pub fn update(
        &mut self,
        kind: &'static Kind,
        key: &ObjectKey,
        object: Value,
        (part, origin): (Part, Origin),
        write: Write,
    ) -> Result<Arc<Value>, Refusal> {
        let old = self.get(kind, key)?;
        let mut object = object;
        strategy::prepare_update(kind, part, origin, &old, &mut object)?;
        self.admit(kind, Some(&old), &mut object)?;
        if strategy::is_released(&object) {
            self.remove(kind, key, write);
            return Ok(Arc::new(object));
        }
        if object == *old {
            return Ok(old);
        }
        Ok(self.commit(kind, key, object, write))
    }

    /// Deletes the object at `key`, or marks it for deletion while it has finalizers.
    pub fn delete(
        &mut self,
        kind: &'static Kind,
        key: &ObjectKey,
        preconditions: &Preconditions,
        write: Write,
    ) -> Result<Deleted, Refusal> {
        let old = self.get(kind, key)?;
        strategy::check_preconditions(kind, &old, preconditions)?;
        if !strategy::has_finalizers(&old) {
            if kind.plural == kinds::NAMESPACE.plural && !write.dry_run {
                self.empty_namespace(&key.name, write)?;
            }
            return Ok(Deleted::Gone(self.remove(kind, key, write)));
        }
        if old["metadata"].get("deletionTimestamp").is_some() {
            return Ok(Deleted::Waiting(old));
        }
        let mut object = (*old).clone();
        strategy::mark_deleted(kind, &mut object, write.now);
        Ok(Deleted::Waiting(self.commit(kind, key, object, write)))
    }

    /// Stores any value without validation, as a newer or broken writer might have done.
    pub fn insert_unchecked(&mut self, kind: &'static Kind, object: Value, write: Write) -> Arc<Value> {
        let key = key_of(&object);
        self.commit(kind, &key, object, write)
    }

    fn empty_namespace(&mut self, namespace: &str, write: Write) -> Result<(), Refusal> {
        for kind in kinds::KINDS.into_iter().filter(|kind| kind.namespaced) {
            let keys: Vec<_> =
                self.list(kind, self.revision)?.into_keys().filter(|key| key.namespace == namespace).collect();
            for key in keys {
                self.delete(kind, &key, &Preconditions::default(), write)?;
            }
        }
        Ok(())
    }

    /// Defaults, allocates and validates.
    fn admit(&self, kind: &Kind, old: Option<&Value>, object: &mut Value) -> Result<(), Refusal> {
        let name = key_of(object).name;
        let refused =
            |causes: Vec<Cause>| if causes.is_empty() { Ok(()) } else { Err(Refusal::invalid(kind, &name, &causes)) };
        (kind.check)(object).map_err(|error| {
            Refusal::bad_request(format!("{} in version {:?} cannot be handled: {error}", kind.kind, kind.version))
        })?;
        refused(strategy::complete(kind, old, object, &self.allocations))?;
        refused(strategy::validate(kind, old, object))
    }

    fn commit(&mut self, kind: &'static Kind, key: &ObjectKey, mut object: Value, write: Write) -> Arc<Value> {
        if write.dry_run {
            return Arc::new(object);
        }
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let new = Arc::new(object);
        let old = self.objects.entry(kind.plural).or_default().insert(key.clone(), Arc::clone(&new));
        self.record(kind, old, Arc::clone(&new), false);
        new
    }

    fn remove(&mut self, kind: &'static Kind, key: &ObjectKey, write: Write) -> Arc<Value> {
        let objects = self.objects.entry(kind.plural).or_default();
        let old = if write.dry_run { objects.get(key).cloned() } else { objects.remove(key) };
        let Some(old) = old else { return Arc::new(Value::Null) };
        if write.dry_run {
            return old;
        }
        self.revision += 1;
        let mut last = (*old).clone();
        last["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let last = Arc::new(last);
        self.record(kind, Some(old), Arc::clone(&last), true);
        last
    }

    fn record(&mut self, kind: &'static Kind, old: Option<Arc<Value>>, new: Arc<Value>, deleted: bool) {
        if kind.plural == kinds::SERVICE.plural {
            old.iter().for_each(|old| self.allocations.release(old));
            if !deleted {
                self.allocations.hold(&new);
            }
        }
        self.history.push_back(Change { revision: self.revision, kind, old, new, deleted });
        while self.history.len() > HISTORY {
            if let Some(forgotten) = self.history.pop_front() {
                self.compacted = forgotten.revision;
            }
        }
    }
}

/// Returns the key of a stored object.
pub fn key_of(object: &Value) -> ObjectKey {
    let text = |name: &str| object["metadata"].get(name).and_then(Value::as_str).unwrap_or_default();
    ObjectKey::namespaced(text("namespace"), text("name"))
}

#[cfg(test)]
mod tests;
