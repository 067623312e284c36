//! Clouds and credentials: which endpoints, and tokens for them.
