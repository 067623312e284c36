//! Documents of the network resource provider, with what we do not model kept.
