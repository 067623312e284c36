//! What has been found strange or wrong so far, while a Service is read. Pure.

use crate::providers::azure::load_balancer::{
    annotations::{Annotations, Key, Kind, PortKey, Restriction},
    spec::{Refusal, Warning, reason},
};

/// Most problems of one Service that are told.
const MOST: usize = 20;

/// A Service's annotations, and the findings about them.
#[derive(Debug)]
pub(super) struct Reading<'a> {
    pub(super) annotations: &'a Annotations,
    pub(super) refusals: Vec<Refusal>,
    pub(super) warnings: Vec<Warning>,
}

impl<'a> Reading<'a> {
    pub(super) fn new(annotations: &'a Annotations) -> Self {
        Self { annotations, refusals: Vec::new(), warnings: Vec::new() }
    }

    /// The value of an annotation; `None` as well when it has been refused.
    pub(super) fn get<K: Kind>(&mut self, key: &Key<K>) -> Option<K::Value<'a>> {
        self.accept(key.read(self.annotations)).flatten()
    }

    /// Whether an annotation says `true`.
    pub(super) fn is<K: for<'v> Kind<Value<'v> = bool>>(&self, key: &Key<K>) -> bool {
        matches!(key.read(self.annotations), Ok(Some(true)))
    }

    /// Whether the annotation of a port says `true`.
    pub(super) fn is_at<K: for<'v> Kind<Value<'v> = bool>>(&self, key: &PortKey<K>, port: i32) -> bool {
        matches!(key.read(port, self.annotations), Ok(Some(true)))
    }

    /// The value of an annotation that may have no effect on this Service: what cannot be read is no reason to refuse it then.
    pub(super) fn get_if<K: Kind>(&mut self, decides: bool, key: &Key<K>) -> Option<K::Value<'a>> {
        match key.read(self.annotations) {
            Err(refusal) if !decides => {
                self.without_effect(key.key, &refusal.message);
                None
            }
            value => self.accept(value).flatten(),
        }
    }

    /// Whether an annotation restricts. One that cannot be read does.
    pub(super) fn restricts(&mut self, key: &Key<Restriction>) -> bool {
        match key.read(self.annotations) {
            Ok(value) => value.unwrap_or(false),
            Err(refusal) => {
                self.warn(reason::UNREADABLE_RESTRICTION, key.key, refusal.message);
                true
            }
        }
    }

    /// Takes a value or its refusal.
    pub(super) fn accept<T>(&mut self, value: Result<T, Refusal>) -> Option<T> {
        value.map_err(|refusal| self.refuse(refusal)).ok()
    }

    /// What several ports share is told once. Beyond the first few it is only known that there are more.
    pub(super) fn refuse(&mut self, refusal: Refusal) {
        if self.refusals.len() < MOST && !self.refusals.contains(&refusal) {
            self.refusals.push(refusal);
        }
    }

    pub(super) fn warn(&mut self, reason: &'static str, field: impl Into<String>, message: impl Into<String>) {
        self.warnings.push(Warning { reason, field: field.into(), message: message.into() });
    }

    pub(super) fn without_effect(&mut self, field: &str, why: &str) {
        self.warn(reason::WITHOUT_EFFECT, field, format!("without effect: {why}"));
    }
}

pub(super) fn refusal(field: impl Into<String>, message: impl Into<String>) -> Refusal {
    Refusal { field: field.into(), message: message.into() }
}
