//! Every flag once: name, kind of value, default, section, help and effect. The parser, `--help`, completions, `/flagz`
//! and the reference page derive from [`SECTIONS`].
//!
//! Names, kinds and defaults are upstream's (`k8s.io/cloud-provider/options`, `k8s.io/apiserver/pkg/server/options`,
//! `k8s.io/component-base`), so that the arguments of a Go deployment mean the same here.

pub mod azure;
pub mod cloud;
pub mod controllers;
pub mod generic;
pub mod leader_election;
pub mod logging;
pub mod node_manager;
pub mod serving;
pub mod webhooks;

use std::marker::PhantomData;

use super::value::{FlagValue, InvalidFlagValue, parse_all};

/// Whether a flag changes anything in this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlagEffect {
    Effective,
    /// Accepted because upstream accepts it; the reason why it means nothing here is told at start.
    Ignored(&'static str),
}

/// Who is told about a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlagVisibility {
    Shown,
    /// Left out of `--help`.
    Hidden,
    /// Left out of `--help`; whoever uses it is told this.
    Deprecated(&'static str),
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct FlagSpec {
    /// Name without dashes.
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    /// Name of one letter.
    pub short: Option<char>,
    /// Stands for the value in help texts.
    pub placeholder: &'static str,
    /// What the flag means when given without a value.
    pub implied_value: Option<&'static str>,
    /// Whether giving it twice adds up.
    pub repeated: bool,
    /// Default, as it would be typed.
    pub default: &'static str,
    pub help: &'static str,
    /// Whether it does anything.
    pub effect: FlagEffect,
    /// Whether it is shown.
    pub visibility: FlagVisibility,
    check: fn(&[String]) -> Result<String, InvalidFlagValue>,
}

impl FlagSpec {
    /// Reads values as typed and prints what they mean.
    pub fn canonical(&self, texts: &[String]) -> Result<String, InvalidFlagValue> {
        (self.check)(texts)
    }
}

fn check<T: FlagValue>(texts: &[String]) -> Result<String, InvalidFlagValue> {
    parse_all::<T>(texts).map(|value| value.print())
}

/// A row whose type of value the compiler knows.
#[derive(Debug)]
pub struct TypedFlag<T> {
    pub spec: FlagSpec,
    value: PhantomData<fn() -> T>,
}

impl<T: FlagValue> TypedFlag<T> {
    const fn new(name: &'static str, default: &'static str, help: &'static str) -> Self {
        let spec = FlagSpec {
            name,
            aliases: &[],
            short: None,
            placeholder: T::PLACEHOLDER,
            implied_value: T::IMPLIED_VALUE,
            repeated: T::REPEATED,
            default,
            help,
            effect: FlagEffect::Effective,
            visibility: FlagVisibility::Shown,
            check: check::<T>,
        };
        Self { spec, value: PhantomData }
    }

    const fn ignored(mut self, reason: &'static str) -> Self {
        self.spec.effect = FlagEffect::Ignored(reason);
        self
    }

    const fn hidden(mut self) -> Self {
        self.spec.visibility = FlagVisibility::Hidden;
        self
    }

    const fn deprecated(mut self, advice: &'static str) -> Self {
        self.spec.visibility = FlagVisibility::Deprecated(advice);
        self
    }

    const fn aliases(mut self, aliases: &'static [&'static str]) -> Self {
        self.spec.aliases = aliases;
        self
    }

    const fn short(mut self, letter: char) -> Self {
        self.spec.short = Some(letter);
        self
    }
}

/// Declares the flags of a section: a constant for each, and all as `FLAGS`.
macro_rules! flags {
    ($($id:ident: $kind:ty = $name:literal $default:literal $help:literal $([$attribute:ident($($argument:expr)?)])*;)*) => {
        $(
            #[doc = concat!("`--", $name, "`: ", $help)]
            pub const $id: $crate::cli::flags::TypedFlag<$kind> =
                $crate::cli::flags::TypedFlag::new($name, $default, $help)$(.$attribute($($argument)?))*;
        )*
        /// All flags of this section.
        pub const FLAGS: &[$crate::cli::flags::FlagSpec] = &[$($id.spec),*];
    };
}
pub(crate) use flags;

/// Flags that belong together.
#[derive(Debug, Clone, Copy)]
pub struct FlagSection {
    /// Heading in `--help` and on the reference page.
    pub title: &'static str,
    pub flags: &'static [FlagSpec],
}

pub const SECTIONS: &[FlagSection] = &[
    FlagSection { title: "Cloud and cluster", flags: cloud::FLAGS },
    FlagSection { title: "Controllers", flags: controllers::FLAGS },
    FlagSection { title: "Generic", flags: generic::FLAGS },
    FlagSection { title: "Leader election", flags: leader_election::FLAGS },
    FlagSection { title: "Secure serving", flags: serving::SERVING },
    FlagSection { title: "Authentication", flags: serving::AUTHENTICATION },
    FlagSection { title: "Authorization", flags: serving::AUTHORIZATION },
    FlagSection { title: "Logging", flags: logging::FLAGS },
    FlagSection { title: "Webhooks", flags: webhooks::FLAGS },
    FlagSection { title: "Azure", flags: azure::FLAGS },
];

/// All rows in order.
pub fn all() -> impl Iterator<Item = &'static FlagSpec> {
    SECTIONS.iter().flat_map(|section| section.flags)
}

#[cfg(test)]
mod tests;
