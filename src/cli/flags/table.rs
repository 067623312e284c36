//! Table of the flags of one binary. Pure.
//!
//! In: the sections that its providers have registered. Out: all sections in the order of `--help` and of the reference page, and names
//! that are declared twice.

use std::collections::BTreeSet;

use super::{FlagSection, FlagSpec, SECTIONS, provider_config};

/// Name of the flag that clap declares.
const HELP: &str = "help";

/// Flags of the program and of its providers.
#[derive(Debug, Clone)]
pub struct FlagTable {
    sections: Vec<FlagSection>,
    registered: Vec<FlagSpec>,
}

impl FlagTable {
    /// Creates the table of a binary whose providers have registered these sections.
    pub fn new(registered: &[FlagSection]) -> Self {
        let mut provided = registered.to_vec();
        match provided.first_mut() {
            Some(first) => first.flags.to_mut().extend_from_slice(provider_config::FLAGS),
            None => provided.push(FlagSection::of(provider_config::TITLE, provider_config::FLAGS)),
        }
        let registered = registered.iter().flat_map(|section| section.flags.iter().copied()).collect();
        Self { sections: SECTIONS.iter().cloned().chain(provided).collect(), registered }
    }

    /// Returns the headings with their flags.
    pub fn sections(&self) -> &[FlagSection] {
        &self.sections
    }

    /// Returns the flags of all sections in order.
    pub fn all(&self) -> impl Iterator<Item = &FlagSpec> {
        self.sections.iter().flat_map(|section| section.flags.iter())
    }

    /// Returns the flags that providers have registered.
    pub fn registered(&self) -> impl Iterator<Item = &FlagSpec> {
        self.registered.iter()
    }

    /// Returns an error line for each name that several flags have.
    pub fn clashes(&self) -> Vec<String> {
        let mut seen = BTreeSet::from([HELP.to_owned()]);
        let letters = |spec: &FlagSpec| spec.short.map(|letter| format!("-{letter}"));
        let names = self.all().flat_map(|spec| {
            let words = spec.aliases.iter().chain([&spec.name]).map(|name| (*name).to_owned());
            words.chain(letters(spec)).collect::<Vec<_>>()
        });
        let duplicates = names.filter(|name| !seen.insert(name.clone())).collect::<Vec<_>>();
        duplicates
            .iter()
            .map(|name| format!("two flags are called {name:?}: a provider registers a name that exists"))
            .collect()
    }
}
