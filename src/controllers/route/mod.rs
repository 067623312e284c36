//! The route controller.
