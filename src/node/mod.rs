//! Pure functions on Node objects, shared by the controllers and cloud-node-manager.
