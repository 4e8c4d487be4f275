//! Calls into a space: a registered function run in a process that lives there.
//!
//! A caller has neither the space's segments mapped nor its locks; only bytes go there and come
//! back. That isolates the two from each other, by the hardware and for each thread; and a program
//! can use spaces whose addresses conflict, each by its resident. It is the message passing that
//! SpaceJMP is compared with (§5.2), and costs two changes of process where both share a CPU.
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
//! **A caller never waits longer than its timeout, whatever becomes of the resident; and no request
//! keeps its slot longer than its caller lives.** Locks say which process has which part of a slot;
//! their holders' deaths the kernel tells (`request_state` has the states). A call runs at most
//! once: if the resident dies in it, it may have run or not. A panic of the function poisons what
//! it was changing, and the resident goes on.

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

/// Bytes that a request or a reply may have.
pub const MAX_MESSAGE: usize = mailbox::MESSAGE;

/// What a function looks like: the space's segments, the request, and where the reply goes.
type Function = Box<dyn for<'s> Fn(&mut Section<'s>, &[u8], &mut Vec<u8>) + Send + Sync>;

struct MemberEntry {
    /// It may change what the space's members allow; else it reads beside others.
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
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one that runs in a section which may change the segments; it takes the place of another
    /// of that name.
    #[must_use]
    pub fn with<F>(self, name: &str, function: F) -> Self
    where
        F: for<'s> Fn(&mut Section<'s>, &[u8], &mut Vec<u8>) + Send + Sync + 'static,
    {
        self.add(name, true, Box::new(function))
    }

    /// Adds one that runs in a section which only reads, beside other readers.
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

/// What a function is called in a mailbox: the same in every process.
fn number(name: &str) -> u64 {
    let mut hasher = siphasher::sip::SipHasher13::new();
    hasher.write(name.as_bytes());
    hasher.finish()
}

impl Space {
    /// Lives in the space: attaches it, and makes its mailbox if there is none. Nothing is served
    /// before [`Residence::serve`].
    ///
    /// # Errors
    /// [`CallError::Attach`]; the mailbox cannot be made or opened.
    pub fn reside(&self, functions: Functions) -> Result<Residence, CallError> {
        Residence::new(self, functions)
    }

    /// Opens the way to the space's residents, for many calls.
    ///
    /// # Errors
    /// [`CallError::NoResident`] if nobody ever lived there; the mailbox cannot be opened.
    pub fn calls(&self) -> Result<Calls, CallError> {
        Calls::open(self)
    }

    /// Runs a function in a process that lives in the space, and returns its reply. Opens the
    /// mailbox each time, some 30 us: for many calls there is [`calls`](Self::calls).
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
