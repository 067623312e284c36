//! What a row of a table of flags says, and how tables are declared. In: names, kinds, defaults, texts. Out: constants.

use std::{borrow::Cow, marker::PhantomData};

use super::value::{FlagValue, InvalidFlagValue, parse_all};

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
    /// Reason why it means nothing here, reported at start. Upstream accepts it.
    pub ignored: Option<&'static str>,
    /// Whether `--help` leaves it out.
    pub hidden: bool,
    /// Advice to the users of a deprecated flag, which `--help` leaves out.
    pub deprecated: Option<&'static str>,
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
    /// The row.
    pub spec: FlagSpec,
    value: PhantomData<fn() -> T>,
}

impl<T: FlagValue> TypedFlag<T> {
    /// A row that is shown and has an effect.
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

    /// Accepted without effect, for this reason.
    pub const fn ignored(mut self, reason: &'static str) -> Self {
        self.spec.ignored = Some(reason);
        self
    }

    /// Left out of `--help`.
    pub const fn hidden(mut self) -> Self {
        self.spec.hidden = true;
        self
    }

    /// Whoever uses it is told this.
    pub const fn deprecated(mut self, advice: &'static str) -> Self {
        self.spec.deprecated = Some(advice);
        self
    }

    /// Other names.
    pub const fn aliases(mut self, aliases: &'static [&'static str]) -> Self {
        self.spec.aliases = aliases;
        self
    }

    /// Name of one letter.
    pub const fn short(mut self, letter: char) -> Self {
        self.spec.short = Some(letter);
        self
    }
}

/// Flags that belong together.
#[derive(Debug, Clone)]
pub struct FlagSection {
    /// Heading in `--help` and on the reference page.
    pub title: &'static str,
    /// The flags.
    pub flags: Cow<'static, [FlagSpec]>,
}

impl FlagSection {
    /// A section with the flags of one table.
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
        /// All flags of this section.
        pub const FLAGS: &[$crate::flags::FlagSpec] = &[$($id.spec),*];
    };
}
pub use declare_flags;
