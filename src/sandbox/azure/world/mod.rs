//! What happens in a simulated cloud: machines come, go, are switched off and made anew.

mod change;
mod estate;

pub use change::{Change, Edit};
pub use estate::{Estate, Happened, NoSuch};

#[cfg(test)]
mod tests;
