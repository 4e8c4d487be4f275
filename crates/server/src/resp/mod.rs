//! The Redis serialisation protocol: requests in, replies out.
//!
//! [`Parser`] turns the bytes of a connection into [`Batch`]es of commands without copying an
//! argument; `Reply` writes answers in the protocol version that the client has asked for.
//! Neither depends on sockets or the store, so both are tested and fuzzed on their own.

mod batch;
mod double;
mod inline;
mod number;
mod parser;
mod reply;

pub(crate) use batch::KeptArguments;
pub use batch::{Arguments, Batch};
pub(crate) use double::{append_f64, parse_bound, parse_f64};
pub(crate) use inline::split_line;
pub(crate) use number::{parse_i64, parse_u64};
pub use parser::{Parsed, Parser, ProtocolError, RequestLimits, Stop};
pub(crate) use reply::{Protocol, Reply};
