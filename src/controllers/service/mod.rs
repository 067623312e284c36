//! The service controller.
