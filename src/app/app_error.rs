//! Error of a command.

/// Any error that ends the program. It is printed.
pub(super) type AppError = Box<dyn std::error::Error + Send + Sync>;
