//! What a row of the table of flags says, and how sections are declared.

use std::marker::PhantomData;

use crate::cli::value::{FlagValue, InvalidFlagValue, parse_all};

/// Whether a flag changes anything in this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlagEffect {
    /// It does.
    Effective,
    /// Accepted because upstream accepts it; the reason why it means nothing here is told at start.
    Ignored(&'static str),
}

/// Who is told about a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlagVisibility {
    /// Everybody.
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
    /// Other names.
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
    /// Help text.
    pub help: &'static str,
    /// Whether it does anything.
    pub effect: FlagEffect,
    /// Whether it is shown.
    pub visibility: FlagVisibility,
    pub(super) check: fn(&[String]) -> Result<String, InvalidFlagValue>,
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
    /// The row.
    pub spec: FlagSpec,
    value: PhantomData<fn() -> T>,
}

impl<T: FlagValue> TypedFlag<T> {
    pub(super) const fn new(name: &'static str, default: &'static str, help: &'static str) -> Self {
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

    pub(super) const fn ignored(mut self, reason: &'static str) -> Self {
        self.spec.effect = FlagEffect::Ignored(reason);
        self
    }

    pub(super) const fn hidden(mut self) -> Self {
        self.spec.visibility = FlagVisibility::Hidden;
        self
    }

    pub(super) const fn deprecated(mut self, advice: &'static str) -> Self {
        self.spec.visibility = FlagVisibility::Deprecated(advice);
        self
    }

    pub(super) const fn aliases(mut self, aliases: &'static [&'static str]) -> Self {
        self.spec.aliases = aliases;
        self
    }

    pub(super) const fn short(mut self, letter: char) -> Self {
        self.spec.short = Some(letter);
        self
    }
}

/// Flags that belong together.
#[derive(Debug, Clone, Copy)]
pub struct FlagSection {
    /// Heading in `--help` and on the reference page.
    pub title: &'static str,
    /// The flags.
    pub flags: &'static [FlagSpec],
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
