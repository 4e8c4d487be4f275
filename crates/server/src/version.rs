//! Which versions the server names.

/// The version of Redis whose commands, replies and errors the server's own follow.
pub(crate) const REDIS: &str = "7.0.15";

/// Mneme's own.
pub(crate) const MNEME: &str = env!("CARGO_PKG_VERSION");
