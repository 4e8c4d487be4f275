//! The configuration: **every setting is defined once, in `table.rs`**, and all else follows from
//! it: the flags of `mneme serve`, the variables of its environment, the keys of its file, `CONFIG
//! GET`, `SET` and `REWRITE`, and `docs/configuration.md`. Names are Redis' where Redis has the
//! setting.
//!
//! A value is refused in the same words wherever it comes from ([`Refused`]). Numbers that change
//! while the server runs are read without a lock ([`Settings`]).

mod address;
mod error;
mod file;
mod kind;
mod print;
mod size;
mod table;
mod values;

pub use address::Address;
pub use error::{ConfigFileError, RewriteError};
pub(crate) use file::replace;
pub(crate) use kind::save_points;
pub use kind::{Kind, Refused, Value};
pub use size::{SizeError, parse_size};
pub(crate) use table::MOST_THREADS;
pub use table::{Changes, Key, SETTINGS, Setting};
pub use values::{Settings, Source};
pub(crate) use values::{durability_mode, sync_policy};
