//! What was typed for each flag. In: texts that were checked. Out: typed values; the default of a flag without a text. Pure.

use std::collections::BTreeMap;

use super::{FlagSpec, FlagValue, TypedFlag, parse_all};

/// Texts of flags by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlagTexts(BTreeMap<&'static str, Vec<String>>);

impl FlagTexts {
    /// The value of a flag.
    pub fn read<T: FlagValue>(&self, flag: &TypedFlag<T>) -> T {
        parse_all(&self.texts(&flag.spec)).unwrap_or_default()
    }

    /// The value in the form that would be typed.
    pub fn canonical(&self, spec: &FlagSpec) -> String {
        spec.canonical(&self.texts(spec)).unwrap_or_default()
    }

    /// Takes checked texts for a flag.
    pub fn insert(&mut self, spec: &FlagSpec, texts: Vec<String>) {
        self.0.insert(spec.name, texts);
    }

    /// The texts of the flags in `specs` alone.
    pub fn only<'a>(&self, specs: impl Iterator<Item = &'a FlagSpec>) -> Self {
        Self(specs.filter_map(|spec| Some((spec.name, self.0.get(spec.name)?.clone()))).collect())
    }

    fn texts(&self, spec: &FlagSpec) -> Vec<String> {
        self.0.get(spec.name).cloned().unwrap_or_else(|| vec![spec.default.to_owned()])
    }
}
