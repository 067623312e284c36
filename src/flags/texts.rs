//! Texts of flags from the command line. In: checked texts. Out: typed values; a flag without a text has its default. Pure.

use std::collections::BTreeMap;

use super::{FlagSpec, FlagValue, TypedFlag, parse_all};

/// Texts of flags by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlagTexts(BTreeMap<&'static str, Vec<String>>);

impl FlagTexts {
    /// Returns the value of a flag.
    pub fn read<T: FlagValue>(&self, flag: &TypedFlag<T>) -> T {
        parse_all(&self.texts(&flag.spec)).unwrap_or_default()
    }

    /// Returns the value of a flag as one would type it.
    pub fn canonical(&self, spec: &FlagSpec) -> String {
        spec.canonical(&self.texts(spec)).unwrap_or_default()
    }

    /// Sets the checked texts of a flag.
    pub fn insert(&mut self, spec: &FlagSpec, texts: Vec<String>) {
        self.0.insert(spec.name, texts);
    }

    /// Returns only the texts of the flags in `specs`.
    pub fn only<'a>(&self, specs: impl Iterator<Item = &'a FlagSpec>) -> Self {
        Self(specs.filter_map(|spec| Some((spec.name, self.0.get(spec.name)?.clone()))).collect())
    }

    fn texts(&self, spec: &FlagSpec) -> Vec<String> {
        self.0.get(spec.name).cloned().unwrap_or_else(|| vec![spec.default.to_owned()])
    }
}
