//! Users and their permissions, as in Redis 7.0's ACL.
//!
//! A user is immutable once its [rules](rules) have been read: its commands are a set of bits, its
//! keys are patterns. [`Users`] holds all of them. **A change takes effect before its reply**: it
//! is made in an exclusive section. A client that enters its next section, shared or exclusive,
//! sees that the number of changes has grown and looks its user up again. A command that needs no
//! section (`CONFIG GET`, `SAVE`) counts as begun when it is admitted.

mod describe;
mod file;
mod loader;
mod log;
mod rules;
mod user;
mod users;
mod vocabulary;

pub(crate) use file::{AclFileError, Table};
pub(crate) use loader::{LoadRequest, Loader, UsersLoaded};
pub(crate) use log::{Context, DenialReason, Event};
pub(crate) use rules::password_hash;
pub(crate) use user::{Denied, Judged, KeyAccess, Selector, User};
pub(crate) use users::Users;
pub(crate) use vocabulary::{NamedCommand, Vocabulary};
