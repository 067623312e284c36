//! Error type that all commands share.

/// Error that ends the program after it was printed.
pub(super) type AppError = Box<dyn std::error::Error + Send + Sync>;
