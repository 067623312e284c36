//! Reader of the annotations of a Service that collects refusals and warnings. Pure.

use crate::providers::azure::planner::load_balancer::{
    annotations::{AnnotationFormat, AnnotationKey, PortAnnotationKey, RestrictionFormat, ServiceAnnotations},
    spec::{ServiceRefusal, ServiceWarning, reason},
};

/// Largest number of refusals that are reported for one Service.
const MAX_REFUSALS: usize = 20;

/// A Service's annotations, and the findings about them.
#[derive(Debug)]
pub(super) struct SpecReader<'a> {
    pub(super) annotations: &'a ServiceAnnotations,
    pub(super) refusals: Vec<ServiceRefusal>,
    pub(super) warnings: Vec<ServiceWarning>,
}

impl<'a> SpecReader<'a> {
    pub(super) fn new(annotations: &'a ServiceAnnotations) -> Self {
        Self { annotations, refusals: Vec::new(), warnings: Vec::new() }
    }

    /// Returns the value of an annotation; `None`: the annotation is absent, or its value is invalid and now refused.
    pub(super) fn get<K: AnnotationFormat>(&mut self, key: &AnnotationKey<K>) -> Option<K::Value<'a>> {
        self.get_if(true, key)
    }

    /// Returns `true` if an annotation is valid and means `true`.
    pub(super) fn is<K: for<'v> AnnotationFormat<Value<'v> = bool>>(&self, key: &AnnotationKey<K>) -> bool {
        matches!(key.read(self.annotations), Ok(Some(true)))
    }

    /// Returns `true` if the annotation of `port` is valid and means `true`.
    pub(super) fn is_at<K: for<'v> AnnotationFormat<Value<'v> = bool>>(
        &self,
        key: &PortAnnotationKey<K>,
        port: i32,
    ) -> bool {
        matches!(key.read(port, self.annotations), Ok(Some(true)))
    }

    /// Returns the value of an annotation that may have no effect on this Service.
    ///
    /// If `decides` is false, an invalid value is reported as a warning instead of a refusal.
    pub(super) fn get_if<K: AnnotationFormat>(&mut self, decides: bool, key: &AnnotationKey<K>) -> Option<K::Value<'a>> {
        match key.read(self.annotations) {
            Ok(value) => return value,
            Err(refusal) if decides => self.refuse(refusal),
            Err(refusal) => self.without_effect(key.key, &refusal.message),
        }
        None
    }

    /// Returns `true` if an annotation restricts access. An annotation that cannot be read restricts, with a warning.
    pub(super) fn restricts(&mut self, key: &AnnotationKey<RestrictionFormat>) -> bool {
        match key.read(self.annotations) {
            Ok(value) => value.unwrap_or(false),
            Err(refusal) => {
                self.warn(reason::UNREADABLE_RESTRICTION, key.key, refusal.message);
                true
            }
        }
    }

    /// Records a refusal, once for several ports that share it. Refusals above `MAX_REFUSALS` are dropped.
    pub(super) fn refuse(&mut self, refusal: ServiceRefusal) {
        if self.refusals.len() < MAX_REFUSALS && !self.refusals.contains(&refusal) {
            self.refusals.push(refusal);
        }
    }

    pub(super) fn warn(&mut self, reason: &'static str, field: impl Into<String>, message: impl Into<String>) {
        self.warnings.push(ServiceWarning { reason, field: field.into(), message: message.into() });
    }

    pub(super) fn without_effect(&mut self, field: &str, why: &str) {
        self.warn(reason::IGNORED_CONFIGURATION, field, format!("without effect: {why}"));
    }
}

/// Returns the refusal of a field.
pub fn refusal(field: impl Into<String>, message: impl Into<String>) -> ServiceRefusal {
    ServiceRefusal { field: field.into(), message: message.into() }
}
