//! A log on disk of everything acknowledged, in order: an endless stream of bytes in append-only
//! files.
//!
//! A store passes its changes to a [`Journal`] as raw bytes with their [`Position`]s. One thread
//! appends a group of them, and one sync serves all that wait. After a power loss a [`Reader`]
//! returns what was durable, and perhaps some of what followed, but never other bytes. A *base
//! file* ([`BaseWriter`], [`BaseReader`]) holds everything that the store held at a position, so
//! that older files of the journal can be removed.
//!
//! ```
//! use std::sync::Arc;
//! use mneme_journal::{Identity, Journal, Options, Position, Reader};
//! use mneme_sys::medium::{Directory, FileDirectory};
//!
//! # let path = std::env::temp_dir().join(format!("mneme-journal-{}", std::process::id()));
//! let directory: Arc<dyn Directory> = Arc::new(FileDirectory::open(&path)?);
//! let store = Identity { uuid: [7; 16] };
//! let mut options = Options::new(store);
//! options.file_bytes = 1 << 20;
//!
//! let mut journal = Journal::open(directory.clone(), options.clone(), Position::new(0))?;
//! journal.append(journal.position(), b"a change")?;
//! journal.append(journal.position(), b", another")?;
//! assert_eq!(journal.sync()?, Position::new(17));
//! // What has been synced may be acknowledged.
//! drop(journal);
//!
//! let mut reader = Reader::open(&*directory, Position::new(0))?;
//! let mut found = Vec::new();
//! while let Some(chunk) = reader.next()? {
//!     found.extend_from_slice(chunk.bytes);
//! }
//! assert_eq!(found, b"a change, another");
//! // The next run goes on where reading came to the end.
//! let end = reader.position();
//! let journal = Journal::open(directory, options, end)?;
//! assert_eq!(journal.position(), Position::new(17));
//! # drop(journal);
//! # std::fs::remove_dir_all(&path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Failures
//! A full disk is reported early: [`Journal::is_nearly_full`] becomes true while everything in
//! progress still fits into preallocated files. After a failed sync the journal asks for everything
//! that was not durable yet ([`JournalError::Restarted`]) and writes it into a new file. Damaged
//! files are refused with the file and the offset; [`check`] reports what [`repair`] would lose.
//!
//! # Threads and processes
//! One thread writes a journal. Other threads may use readers and base files. A
//! [`FileDirectory`](mneme_sys::medium::FileDirectory) is locked, so a second process is refused.
//!
//! `docs/design/journal.md` has the formats, byte by byte, and the reason for each sync.

#![deny(unsafe_code)]

mod base;
#[cfg(feature = "fault")]
#[doc(hidden)]
pub mod breakage;
mod chain;
mod check;
mod error;
mod file;
mod frame;
mod frame_reader;
mod header;
mod journal;
mod names;
mod options;
mod position;
mod reader;
mod spares;

pub use base::{BaseFile, BaseName, BasePart, BaseReader, BaseWriter, bases, remove_bases_before};
pub use check::{Report, check, repair};
pub use error::{FileDamage, Flaw, JournalError};
pub use header::{Identity, Run, Runs};
pub use journal::Journal;
pub use options::{JournalStats, Options};
pub use position::Position;
pub use reader::{Chunk, Reader, reaches};
