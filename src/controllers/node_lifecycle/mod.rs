//! The node_lifecycle controller.
