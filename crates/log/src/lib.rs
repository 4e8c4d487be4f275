//! The log-structured store.
