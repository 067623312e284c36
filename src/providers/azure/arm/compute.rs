//! Documents of the compute resource provider, with what we do not model kept.
