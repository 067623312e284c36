//! Declaration and parsing of flags. The flags themselves are declared in `cli` and by the providers.
//!
//! In: a table ([`declare_flags!`]), and the texts on the command line. Out: typed values ([`FlagTexts::read`]).

pub mod duration;
mod excerpt;
mod flag;
mod texts;
mod value;

pub use self::excerpt::{excerpt, quoted};
pub use self::flag::{FlagSection, FlagSpec, TypedFlag, declare_flags};
pub use self::texts::FlagTexts;
pub(crate) use self::value::integer;
pub use self::value::{FlagValue, InvalidFlagValue, MapStringBool, parse_all};
