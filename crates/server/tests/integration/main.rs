//! The server, tested over its sockets, and its components. All modules are one test program.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that panics fails"
)]

#[path = "../common/mod.rs"]
mod common;
mod exposition;

mod acl;
mod client_memory;
mod clients;
mod configuration;
mod durable;
mod fairness;
mod handover;
mod hostile;
mod key_events;
mod linearizable;
mod locals;
mod metrics;
mod observing;
mod parser;
mod pipelines;
mod pubsub;
mod serving;
mod tls;
mod tools;
mod tracking;
mod transactions;
mod waiting;
