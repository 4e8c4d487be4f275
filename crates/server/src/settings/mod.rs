//! The configuration. **Every setting is defined once, in `table.rs`**; the flags of `mneme serve`,
//! its environment variables, the keys of its file, `CONFIG GET`, `SET` and `REWRITE`, and
//! `docs/configuration.md` are derived from that. Where Redis has a setting, ours has the same
//! name.
//!
//! The error for a refused value ([`Refused`]) is the same wherever the value comes from. Numbers
//! that can change while the server runs are read without a lock ([`Settings`]).

mod address;
mod error;
mod file;
mod kind;
mod output_limit;
mod print;
mod size;
mod table;
mod values;

pub use address::Address;
pub use error::{ConfigFileError, RewriteError};
pub(crate) use file::replace;
pub(crate) use kind::save_points;
pub use kind::{Kind, Refused, Value};
pub(crate) use output_limit::{OutputClass, OutputLimit};
pub use size::{SizeError, parse_size};
pub(crate) use table::MOST_THREADS;
pub use table::{Changes, Key, SETTINGS, Setting};
pub use values::{Settings, Source};
pub(crate) use values::{durability_mode, sync_policy};
