//! The node controller.
