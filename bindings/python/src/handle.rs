//! An open store, and the handle to one of its databases, which `Store` and everything that it
//! returns hold.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use mneme_log::{Database, LogStore, Part};
use mneme_shared::SharedStore;

use crate::errors::{Failure, Reason, failure};
use crate::lender::{Lender, Lent, SHORTEST_LENT};
use crate::process::{Close, UntilClosed, note_open};

/// A store in this process, or one in a segment.
pub(crate) enum Kind {
    Private(Box<LogStore>),
    Shared(Box<SharedStore>),
}

impl Deref for Kind {
    type Target = LogStore;

    #[inline]
    fn deref(&self) -> &LogStore {
        match self {
            Self::Private(store) => store,
            Self::Shared(store) => store,
        }
    }
}

/// An open store.
pub(crate) struct Opened {
    pub(crate) store: Kind,
    pub(crate) lender: Lender,
}

impl Opened {
    /// The value in place. `None` if it does not exist, is short, or too many values are lent.
    pub(crate) fn lend_if_long(
        self: &Arc<Self>,
        number: usize,
        key: Vec<u8>,
    ) -> Result<Option<Lent>, Failure> {
        let short = |part: Option<Part<'_>>| part.is_none_or(|part| part.len < SHORTEST_LENT);
        let database = self.store.database(number)?;
        if database.read_part(&key, |_| 0..0, short)? {
            return Ok(None);
        }
        Lender::lend(self, number, key)
    }
}

/// The information with which another process finds the store.
pub(crate) struct Home {
    pub(crate) registry: PathBuf,
    pub(crate) name: String,
    pub(crate) writable: bool,
}

/// An open store until it is closed.
struct Shared {
    opened: UntilClosed<Opened>,
    home: Option<Home>,
}

impl Close for Shared {
    fn close_at_exit(&self) {
        self.opened.close_at_exit();
    }
}

/// One database of an open store. When the store is closed, it is closed for all handles.
#[derive(Clone)]
pub(crate) struct Handle {
    shared: Arc<Shared>,
    number: usize,
}

impl Handle {
    /// The first database of a store that was just opened.
    pub(crate) fn new(store: Kind, home: Option<Home>) -> Self {
        let opened = Opened {
            store,
            lender: Lender::default(),
        };
        let shared = Arc::new(Shared {
            opened: UntilClosed::new(opened, "the store was closed: attach or make it again"),
            home,
        });
        note_open(&shared);
        Self { shared, number: 0 }
    }

    #[inline]
    pub(crate) fn opened(&self) -> Result<Arc<Opened>, Failure> {
        self.shared.opened.get()
    }

    #[inline]
    pub(crate) fn with<R>(
        &self,
        f: impl FnOnce(Database<'_>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        f(self.opened()?.store.database(self.number)?)
    }

    /// Another database of the store.
    pub(crate) fn database(&self, number: usize) -> Result<Self, Failure> {
        self.opened()?.store.database(number)?;
        let shared = Arc::clone(&self.shared);
        Ok(Self { shared, number })
    }

    /// The database's number.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// `None` of a store in this process.
    pub(crate) fn home(&self) -> Option<&Home> {
        self.shared.home.as_ref()
    }

    /// Closes the store. It is refused while views of values are used.
    pub(crate) fn close(&self) -> Result<(), Failure> {
        self.shared.opened.origin.check()?;
        if let Ok(opened) = self.opened() {
            let views = opened.lender.lent();
            if views > 0 {
                let text = format!("{views} view(s) of values are still used: let them go first");
                return Err(failure(Reason::InUse, text));
            }
        }
        drop(self.shared.opened.close());
        Ok(())
    }
}
