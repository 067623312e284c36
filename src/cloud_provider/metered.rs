//! Decorators over the provider traits: times, counts, deadlines and the leadership check.
