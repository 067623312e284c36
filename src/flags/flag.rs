//! Rows of tables of flags, and the declaration of tables. In: names, types, defaults, texts. Out: constants.

use std::{borrow::Cow, marker::PhantomData};

use super::value::{FlagValue, InvalidFlagValue, parse_all};

/// Row of a table of flags.
#[derive(Debug, Clone, Copy)]
pub struct FlagSpec {
    /// Name, without its dashes.
    pub name: &'static str,
    /// Other names, also without dashes.
    pub aliases: &'static [&'static str],
    /// Name of one letter, used with a single dash.
    pub short: Option<char>,
    /// Placeholder of the value in help texts.
    pub placeholder: &'static str,
    /// Value if the flag is given without one; `None` if it needs a value.
    pub implied_value: Option<&'static str>,
    /// Whether several occurrences are merged; otherwise the last one applies.
    pub repeated: bool,
    /// Default, as one would type it.
    pub default: &'static str,
    /// Description in `--help` and on the reference page; ends with a period.
    pub help: &'static str,
    /// Reason why the flag has no effect, logged at start. Such flags are accepted because upstream has them.
    pub ignored: Option<&'static str>,
    /// Whether `--help` omits it.
    pub hidden: bool,
    /// Advice to the users of a deprecated flag, which `--help` omits.
    pub deprecated: Option<&'static str>,
    check: fn(&[String]) -> Result<String, InvalidFlagValue>,
}

impl FlagSpec {
    /// Parses the texts of all occurrences and formats the resulting value.
    pub fn canonical(&self, texts: &[String]) -> Result<String, InvalidFlagValue> {
        (self.check)(texts)
    }
}

fn check<T: FlagValue>(texts: &[String]) -> Result<String, InvalidFlagValue> {
    parse_all::<T>(texts).map(|value| value.print())
}

/// Row of a table of flags with the type of its value.
#[derive(Debug)]
pub struct TypedFlag<T> {
    pub spec: FlagSpec,
    value: PhantomData<fn() -> T>,
}

impl<T: FlagValue> TypedFlag<T> {
    /// Creates a flag that is visible and has an effect.
    pub const fn new(name: &'static str, default: &'static str, help: &'static str) -> Self {
        let spec = FlagSpec {
            name,
            aliases: &[],
            short: None,
            placeholder: T::PLACEHOLDER,
            implied_value: T::IMPLIED_VALUE,
            repeated: T::REPEATED,
            default,
            help,
            ignored: None,
            hidden: false,
            deprecated: None,
            check: check::<T>,
        };
        Self { spec, value: PhantomData }
    }

    /// Marks the flag as accepted without effect, for this reason.
    pub const fn ignored(mut self, reason: &'static str) -> Self {
        self.spec.ignored = Some(reason);
        self
    }

    /// Omits the flag from `--help`.
    pub const fn hidden(mut self) -> Self {
        self.spec.hidden = true;
        self
    }

    /// Marks the flag as deprecated. The advice is logged if it is used.
    pub const fn deprecated(mut self, advice: &'static str) -> Self {
        self.spec.deprecated = Some(advice);
        self
    }

    /// Sets other names, without dashes.
    pub const fn aliases(mut self, aliases: &'static [&'static str]) -> Self {
        self.spec.aliases = aliases;
        self
    }

    /// Sets a name of one letter, used with a single dash.
    pub const fn short(mut self, letter: char) -> Self {
        self.spec.short = Some(letter);
        self
    }
}

/// Flags under one heading.
#[derive(Debug, Clone)]
pub struct FlagSection {
    /// Heading in `--help` and on the reference page.
    pub title: &'static str,
    pub flags: Cow<'static, [FlagSpec]>,
}

impl FlagSection {
    /// Creates a section with the flags of one table.
    pub const fn of(title: &'static str, flags: &'static [FlagSpec]) -> Self {
        Self { title, flags: Cow::Borrowed(flags) }
    }
}

/// Declares a table of flags: a constant for each, and all as `FLAGS`.
#[macro_export]
macro_rules! declare_flags {
    ($($id:ident: $kind:ty = $name:literal $default:literal $help:literal $([$attribute:ident($($argument:expr)?)])*;)*) => {
        $(
            #[doc = concat!("`--", $name, "`: ", $help)]
            pub const $id: $crate::flags::TypedFlag<$kind> =
                $crate::flags::TypedFlag::new($name, $default, $help)$(.$attribute($($argument)?))*;
        )*
        /// Flags of this section.
        pub const FLAGS: &[$crate::flags::FlagSpec] = &[$($id.spec),*];
    };
}
pub use declare_flags;
