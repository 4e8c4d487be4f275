//! What a forked child keeps of its parent's views.
//!
//! **A child may read what its parent could see when it was made, until it ends, and change
//! nothing.** It has the mappings of all views, and no call here tells which of them it still looks
//! at. So it counts as one who looks at the whole segment, as long as it lives or until it executes
//! another program: while there is such a child, no process removes or moves an array
//! ([`check`]).
//!
//! The child holds a byte of the data file, by an open file that it has inherited and its parent
//! has closed since. The kernel lets go of the byte with the last child that has the file. What is
//! mapped for writing, of a section of the parent, is for reading in the child: a write ends it.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};

use mneme_sys::{ChildrensByte, SharedByte, fork};

use crate::current::Views;
use crate::errors::{Failure, Reason, failure};
use crate::mapped::Regions;

/// Beyond the bytes by which participants know each other.
const BYTE: u64 = (1 << 62) + (1 << 48);

/// What the children of this process get with the mappings of a segment.
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

/// What a thread that forks keeps from `before` it to `in_parent` or `in_child`.
struct Forking {
    all: MutexGuard<'static, Noted>,
    /// What has views.
    seen: Vec<Arc<Regions>>,
}

thread_local! {
    static FORKING: RefCell<Option<Forking>> = const { RefCell::new(None) };
}

/// From now on children get what belongs to these mappings.
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
        // Nobody takes the byte alone. If the kernel has no memory for a lock, the fork fails, too.
        let _ = inherited.byte.before_fork();
    }
    // A thread that ends has no such place any more, nor views.
    let _ = FORKING.try_with(|forking| *forking.borrow_mut() = Some(Forking { all, seen }));
}

extern "C" fn in_parent() {
    let forking = FORKING.try_with(RefCell::take).ok().flatten();
    let Some(Forking { all, seen }) = forking else {
        return;
    };
    for inherited in seen.iter().filter_map(|regions| regions.inherited()) {
        // Else this process keeps the byte with its child: for too long, and nothing is lost.
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
        // No kernel refuses this of a mapping that it has made.
        let _ = write.forbid_writes_in_child();
    }
    // Nothing of the parent's is given up; the files stay open.
    std::mem::forget((std::mem::take(&mut *all), seen));
}

/// Refuses while forked children of any process may look at the segment.
pub(crate) fn check(data: &Path, what: &str) -> Result<(), Failure> {
    // The parent has the file too while it forks.
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
