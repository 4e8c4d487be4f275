//! A Redis-compatible server over a Mneme store.
//!
//! [`Server`] listens, and [`Running`] is the handle of a running server. Every I/O thread accepts
//! connections, reads their pipelines and executes any command on the shared store; there is no
//! command thread and no global lock. The library prints nothing and never exits; it logs through
//! [`tracing`].
//!
//! ```
//! use mneme_server::Server;
//! use std::io::{Read, Write};
//!
//! let server = Server::builder().port(0).memory(64 << 20).start()?;
//! let mut client = std::net::TcpStream::connect(server.addresses()[0])?;
//! client.write_all(b"SET greeting hello\r\nGET greeting\r\n")?;
//! let mut replies = [0; 16];
//! client.read_exact(&mut replies)?;
//! assert_eq!(&replies, b"+OK\r\n$5\r\nhello\r\n");
//!
//! server.shutdown();
//! server.join()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod acl;
mod background;
mod backing;
mod blocking;
mod client;
mod client_memory;
mod command;
mod commands;
mod configure;
mod connection;
mod counters;
mod denial;
mod durable;
mod event_loop;
mod eviction_policy;
mod exclusive;
mod execute;
mod fill_policy;
mod gate;
mod glob;
mod handover;
mod key_events;
mod key_types;
mod keyspace;
mod listen;
mod loading;
mod local_changes;
mod local_programs;
mod log_limiter;
mod long_double;
mod max_clients;
mod memory_watch;
mod metrics;
mod monitor;
mod notify;
mod pause;
mod protection;
mod pubsub;
mod purge;
mod report_events;
mod report_key_events;
pub mod resp;
mod saver;
mod server;
pub mod settings;
mod shared;
mod socket_file;
mod statistics;
mod tls;
mod together;
mod track_keys;
mod tracking;
mod transaction_queue;
mod version;
mod waking;

pub use backing::StoreOrigin;
pub use handover::{Handover, HandoverError, HandoverSocket, Request, TakenOver};
pub use listen::Listeners;
pub use mneme_shared::{Found, Opening, Registry, StoreOptions};
pub use server::{DataMemory, Ended, Running, ServeError, Server, StartError, Stopper};
