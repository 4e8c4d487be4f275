//! What a server is configured with, and the constants that are not configuration, each with its reason.

use std::net::IpAddr;
use std::path::PathBuf;

use mneme_log::UpdatePolicy;

use crate::resp::Limits;

/// A server's configuration. `CONFIG GET` and `INFO` read it here; it has no other home.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub bind: Vec<IpAddr>,
    pub port: u16,
    pub unix_socket: Option<PathBuf>,
    pub threads: usize,
    /// Bytes of memory for the data and everything about it.
    pub memory: u64,
    /// How records are updated.
    pub policy: UpdatePolicy,
    pub databases: usize,
    pub max_clients: usize,
    pub protected_mode: bool,
    pub password: Option<String>,
    pub limits: Limits,
    /// Bytes of an incomplete command at most (`client-query-buffer-limit`).
    pub query_buffer: usize,
    /// Bytes of unsent replies beyond which a client is not listened to.
    pub output_pause: usize,
    /// Bytes of unsent replies beyond which a client is cut off.
    pub output_limit: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            bind: vec![IpAddr::from([127, 0, 0, 1])],
            port: 6379,
            unix_socket: None,
            threads: 1,
            memory: 256 << 20,
            policy: UpdatePolicy::default(),
            databases: 16,
            max_clients: 10_000,
            protected_mode: true,
            password: None,
            limits: Limits::default(),
            query_buffer: 1 << 30,
            output_pause: 64 << 20,
            output_limit: 1 << 30,
        }
    }
}

/// Connections the kernel queues before we accept them: Redis' `tcp-backlog`.
pub(crate) const BACKLOG: i32 = 511;

/// Seconds of silence after which TCP asks whether the peer is alive: Redis' `tcp-keepalive`.
pub(crate) const KEEPALIVE_S: u64 = 300;

/// I/O threads a server may have; far more than cores that one machine has today.
pub(crate) const MOST_THREADS: usize = 512;
