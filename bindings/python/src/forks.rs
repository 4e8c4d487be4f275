//! Views in forked children.
//!
//! **A forked child can go on reading what its parent could see at the fork, until the child ends,
//! and can change nothing.** It inherits the mappings of all views, and this library cannot know
//! which of them it still uses. So as long as the child lives, until it executes another program,
//! it counts as a user of the whole segment: meanwhile no process removes or moves an array
//! ([`check`]).
//!
//! The child marks itself by a lock on a byte of the data file, through an open file that it
//! inherits and that its parent has closed since. The kernel releases the lock when the last child
//! with the file ends. Mappings for writing, made in a section of the parent, are read-only in the
//! child; a write ends it.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};

use mneme_sys::{ChildrensByte, SharedByte, fork};

use crate::current::Views;
use crate::errors::{Failure, Reason, failure};
use crate::mapped::Regions;

/// Above the bytes by which participants of a segment identify each other.
const BYTE: u64 = (1 << 62) + (1 << 48);

/// What children of this process inherit along with the mappings of a segment.
pub(crate) struct Inherited {
    views: Arc<Views>,
    byte: ChildrensByte,
}

impl Inherited {
    pub(crate) fn new(data: PathBuf, views: Arc<Views>) -> Result<Self, Failure> {
        let byte = ChildrensByte::of(data, BYTE);
        let byte = byte.map_err(|error| failure(Reason::System, error))?;
        Ok(Self { views, byte })
    }
}

type Noted = Vec<Weak<Regions>>;

/// Locked while the process forks.
static ALL: Mutex<Noted> = Mutex::new(Vec::new());

fn all() -> MutexGuard<'static, Noted> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// State of a thread that forks, kept from `before` to `in_parent` or `in_child`.
struct Forking {
    all: MutexGuard<'static, Noted>,
    /// The segments that have views.
    seen: Vec<Arc<Regions>>,
}

thread_local! {
    static FORKING: RefCell<Option<Forking>> = const { RefCell::new(None) };
}

/// Registers these mappings, so that children forked from now on handle them.
pub(crate) fn note(regions: &Arc<Regions>) {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| fork::around(before, in_parent, in_child));
    let mut all = all();
    all.retain(|known| known.strong_count() > 0);
    all.push(Arc::downgrade(regions));
}

extern "C" fn before() {
    let all = all();
    let known = all.iter().filter_map(Weak::upgrade);
    let has_views = |regions: &Arc<Regions>| {
        let inherited = regions.inherited();
        inherited.is_some_and(|inherited| !inherited.views.names().is_empty())
    };
    let seen: Vec<_> = known.filter(has_views).collect();
    for inherited in seen.iter().filter_map(|regions| regions.inherited()) {
        // Cannot conflict, since nobody locks the byte exclusively. If the kernel has no memory for
        // the lock, the fork fails too.
        let _ = inherited.byte.before_fork();
    }
    // In a thread that is ending, the thread-local state is gone, and so are its views.
    let _ = FORKING.try_with(|forking| *forking.borrow_mut() = Some(Forking { all, seen }));
}

extern "C" fn in_parent() {
    let forking = FORKING.try_with(RefCell::take).ok().flatten();
    let Some(Forking { all, seen }) = forking else {
        return;
    };
    for inherited in seen.iter().filter_map(|regions| regions.inherited()) {
        // If this fails, this process keeps the lock as long as the child does. That is too long,
        // but loses nothing.
        let _ = inherited.byte.in_parent();
    }
    drop(all);
}

extern "C" fn in_child() {
    let forking = FORKING.try_with(RefCell::take).ok().flatten();
    let Some(Forking { mut all, seen }) = forking else {
        return;
    };
    for write in seen.iter().filter_map(|regions| regions.write.get()) {
        // The kernel never refuses this for a mapping that it has made.
        let _ = write.forbid_writes_in_child();
    }
    // The parent's resources are not released, and the files stay open.
    std::mem::forget((std::mem::take(&mut *all), seen));
}

/// Returns an error while forked children of any process may use the segment.
pub(crate) fn check(data: &Path, what: &str) -> Result<(), Failure> {
    // Locked because the parent also has the file while it forks.
    let _none_forks = all();
    match SharedByte::is_any_held(data, BYTE..=BYTE) {
        Ok(false) => Ok(()),
        Ok(true) => {
            let text = format!(
                "{what} waits until the forked children have ended that had views of the segment \
                 when they were made"
            );
            Err(failure(Reason::InUse, text))
        }
        Err(error) => Err(failure(Reason::System, error)),
    }
}
