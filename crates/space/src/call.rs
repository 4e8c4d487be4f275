//! Calls into a space: a function that another process has registered runs there, on the space's
//! segments.
//!
//! The caller neither maps the space's segments nor takes their locks; it sends bytes and gets
//! bytes back. So the hardware isolates the two from each other, for each thread, and a program can
//! use spaces whose addresses conflict, each through its resident. This is the message passing that
//! SpaceJMP is compared with (§5.2). It costs two context switches if both share a CPU.
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//! use std::time::Duration;
//! use mneme_space::{Functions, Registry, Schema, SegVec, Space};
//!
//! struct Numbers;
//! impl Schema for Numbers { type Root<'s> = SegVec<'s, u64>; }
//!
//! # fn resident(space: &Space) -> Result<(), Box<dyn std::error::Error>> {
//! // In the process that lives there:
//! let functions = Functions::new().with("sum", |here, _request, reply| {
//!     if let Ok(numbers) = here.root::<Numbers>("numbers") {
//!         reply.extend(numbers.iter().sum::<u64>().to_le_bytes());
//!     }
//! });
//! let stop = AtomicBool::new(false);
//! space.reside(functions)?.serve(&stop)?;          // from several threads, if it likes
//! # Ok(()) }
//! // In any other that may read the space:
//! let space = Space::open(&Registry::open_default()?, "alignment")?;
//! let sum = space.call("sum", b"", Duration::from_secs(1))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **A caller never waits longer than its timeout, whatever happens to the resident, and no request
//! keeps its slot after its caller has died.** Locks record which process owns which part of a
//! slot, and the kernel reports the death of a lock's holder (`request_state` has the states). A
//! call runs at most once: if the resident dies during it, the function may or may not have run. If
//! the function panics, the segments that it was changing are poisoned, and the resident continues.

mod caller;
mod error;
mod mailbox;
mod request_state;
mod resident;

use std::collections::HashMap;
use std::fmt;
use std::hash::Hasher;
use std::time::Duration;

pub use caller::{Caller, Calls};
pub use error::CallError;
pub use resident::Residence;

use crate::{Section, Space};

/// The maximum length of a request or a reply in bytes.
pub const MAX_MESSAGE: usize = mailbox::MESSAGE;

/// A registered function. It gets a section of the space's segments, the request, and the buffer
/// for the reply.
type Function = Box<dyn for<'s> Fn(&mut Section<'s>, &[u8], &mut Vec<u8>) + Send + Sync>;

struct MemberEntry {
    /// Whether the function may change what the space's members allow; otherwise it reads, together
    /// with other readers.
    writes: bool,
    function: Function,
}

/// The functions that a resident runs for callers, by name.
#[derive(Default)]
pub struct Functions(HashMap<u64, MemberEntry>);

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Functions").field(&self.0.len()).finish()
    }
}

impl Functions {
    /// Creates an empty set of functions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a function that runs in a section which may change the segments. It replaces a function
    /// of the same name.
    #[must_use]
    pub fn with<F>(self, name: &str, function: F) -> Self
    where
        F: for<'s> Fn(&mut Section<'s>, &[u8], &mut Vec<u8>) + Send + Sync + 'static,
    {
        self.add(name, true, Box::new(function))
    }

    /// Adds a function that runs in a section which only reads, together with other readers.
    #[must_use]
    pub fn reading<F>(self, name: &str, function: F) -> Self
    where
        F: for<'s> Fn(&mut Section<'s>, &[u8], &mut Vec<u8>) + Send + Sync + 'static,
    {
        self.add(name, false, Box::new(function))
    }

    fn add(mut self, name: &str, writes: bool, function: Function) -> Self {
        self.0
            .insert(number(name), MemberEntry { writes, function });
        self
    }
}

/// A function's number in a mailbox, which is derived from its name and so equal in every process.
fn number(name: &str) -> u64 {
    let mut hasher = siphasher::sip::SipHasher13::new();
    hasher.write(name.as_bytes());
    hasher.finish()
}

impl Space {
    /// Makes this process a resident of the space: attaches the space, and creates its mailbox if
    /// there is none. Calls are served once [`Residence::serve`] runs.
    ///
    /// # Errors
    /// [`CallError::Attach`]; or the mailbox cannot be created or opened.
    pub fn reside(&self, functions: Functions) -> Result<Residence, CallError> {
        Residence::new(self, functions)
    }

    /// Opens the space's mailbox for many calls.
    ///
    /// # Errors
    /// [`CallError::NoResident`] if the space never had a resident; or the mailbox cannot be
    /// opened.
    pub fn calls(&self) -> Result<Calls, CallError> {
        Calls::open(self)
    }

    /// Runs a function in a process that resides in the space, and returns its reply. Opens the
    /// mailbox each time, which takes some 30 us: use [`calls`](Self::calls) for many calls.
    ///
    /// # Errors
    /// As [`Caller::call`].
    pub fn call(
        &self,
        function: &str,
        request: &[u8],
        timeout: Duration,
    ) -> Result<Vec<u8>, CallError> {
        self.calls()?.caller()?.call(function, request, timeout)
    }
}
