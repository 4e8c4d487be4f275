//! [`ProcessMap`]: one table of what lies where, for all threads of the process.
//!
//! **A segment is mapped at most once, however many attachments use it; it is at its address
//! whenever a thread is inside of it, and whenever it is mapped for good; else another may have the
//! address.** The process reserves the whole window of a registry at the first mapping, and maps
//! every segment that has an address inside it (SpaceJMP keeps segments in ranges disjoint from the
//! process' own, §4.1). Two that overlap are moved by their page tables (`mneme_sys`, parking),
//! which all threads see: hence [`MapError::Busy`] while one of them is inside.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use mneme_sys::fork::{self, PerProcess};
use mneme_sys::{Access, Clock, SystemClock, Window};

use super::mapping::{Location, Placed, map_data};
use super::{Map, Set, SetVisit, visitors};
use crate::registry::GIB;
use crate::segment::control::{open_way, reap};
use crate::{MapError, Segment, Uuid};

/// How long before one looks again whether a thread has left.
const PAUSE: Duration = Duration::from_micros(50);

/// What this process has mapped. A forked child begins with an empty one.
pub(crate) struct ProcessMap {
    generation: u32,
    /// The parent of this process had a table, and with it perhaps a window, which this process has
    /// inherited with holes where memory was withheld.
    inherited: bool,
    mapped: Mutex<Mapped>,
    /// A mapping that was ending has ended.
    freed: Condvar,
}

#[derive(Default)]
struct Mapped {
    windows: Vec<Window>,
    segments: HashMap<Uuid, MemberEntry>,
    /// The segments that lie at their addresses, by the first one: no two overlap.
    home: BTreeMap<usize, Uuid>,
    /// The addresses of all sets that could be visited.
    sets: HashSet<usize>,
}

struct MemberEntry {
    /// Dead while the mapping ends.
    placed: Weak<Placed>,
    addresses: Range<usize>,
}

static PROCESS: PerProcess<ProcessMap> = PerProcess::new();

impl ProcessMap {
    /// That of this process.
    pub(crate) fn get() -> &'static Self {
        PROCESS.get(|inherited| Self {
            generation: fork::generation(),
            inherited,
            mapped: Mutex::default(),
            freed: Condvar::new(),
        })
    }

    /// Whether this is a child of the process that made it.
    pub(crate) fn is_forked(&self) -> bool {
        self.generation != fork::generation()
    }

    /// Every change of the table is whole before anything can panic.
    fn lock(&self) -> MutexGuard<'_, Mapped> {
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for_an_end<'a>(&self, mapped: MutexGuard<'a, Mapped>) -> MutexGuard<'a, Mapped> {
        let woken = self.freed.wait(mapped);
        woken.unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on the set may be visited.
    pub(crate) fn enlist(&self, set: &Set) {
        self.lock().sets.insert((&raw const *set).addr());
    }

    /// The set can be visited no more; after this, nobody looks at it either.
    pub(crate) fn strike(&self, set: &Set) {
        self.lock().sets.remove(&(&raw const *set).addr());
    }

    /// The mapping of that segment, if this process has one.
    pub(crate) fn placed(&self, segment: Uuid) -> Option<Arc<Placed>> {
        self.lock().segments.get(&segment)?.placed.upgrade()
    }

    /// Lets a segment lie at its address until as many [`release`](Self::release) it.
    ///
    /// # Errors
    /// [`MapError::Occupied`], [`MapError::Busy`].
    pub(crate) fn keep(&self, placed: &Arc<Placed>) -> Result<(), MapError> {
        // Given up after the table: the last user of a mapping locks it.
        let mut others = Vec::new();
        let mut mapped = self.lock();
        while let Some(other) = mapped.at_home(&placed.addresses())
            && mapped.is_ending(&other)
        {
            mapped = self.wait_for_an_end(mapped);
        }
        mapped.bring_home(std::slice::from_ref(placed), &mut others)?;
        placed.kept(1);
        drop(mapped);
        Ok(())
    }

    pub(crate) fn release(&self, placed: &Placed) {
        let _mapped = self.lock();
        placed.kept(-1);
    }

    /// The last user of a mapping is gone: `end` unmaps it.
    pub(crate) fn end(&self, uuid: Uuid, base: usize, end: impl FnOnce()) {
        let mut mapped = self.lock();
        end();
        mapped.segments.remove(&uuid);
        if mapped.home.get(&base) == Some(&uuid) {
            mapped.home.remove(&base);
        }
        drop(mapped);
        self.freed.notify_all();
    }

    #[cold]
    fn bring_home(&self, visit: &mut SetVisit<'_>, timeout: Duration) -> Result<(), MapError> {
        let began = SystemClock.now_ns();
        loop {
            // A thread that does not have the addresses yet keeps no other from them.
            visit.wait();
            let mut others = Vec::new();
            let mut mapped = self.lock();
            // SAFETY: the caller of `show` has looked.
            let set = unsafe { visit.set() };
            match mapped.bring_home(&set.placed, &mut others) {
                Ok(()) => {
                    visit.stay();
                    return Ok(());
                }
                Err(MapError::Busy { .. })
                    if SystemClock.now_ns().saturating_sub(began) < nanoseconds(timeout) => {}
                Err(refused) => return Err(refused),
            }
            drop(mapped);
            drop(others);
            std::thread::sleep(PAUSE);
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Map for ProcessMap {
    fn admit(&self, segment: &Segment, access: Access) -> Result<Arc<Placed>, MapError> {
        segment.without_contents()?;
        if self.is_forked() || self.inherited && segment.base().is_some() {
            return Err(MapError::Forked);
        }
        let wanted = segment.base().map(|base| base..base + segment.max_size());
        let mut mapped = self.lock();
        // After a wait everything is looked at again: other threads went on meanwhile.
        let home = loop {
            if let Some(entry) = mapped.segments.get(&segment.uuid()) {
                if let Some(placed) = entry.placed.upgrade() {
                    // Before anything could drop it: its last user would lock the table.
                    drop(mapped);
                    placed.permit(access)?;
                    return Ok(placed);
                }
            } else {
                let there = wanted.as_ref().and_then(|wanted| mapped.at_home(wanted));
                match there {
                    None => break true,
                    Some(other) if !mapped.is_ending(&other) => break false,
                    Some(_) => {}
                }
            }
            mapped = self.wait_for_an_end(mapped);
        };
        let (participants, way) = open_way(&segment.control(), segment.uuid())?;
        reap(&participants);
        let location = match wanted {
            None => Location::Anywhere,
            Some(addresses) => Location::Window {
                window: mapped.window(segment, &addresses)?,
                home,
            },
        };
        let (region, presence) = map_data(segment, access, location, way)?;
        region.dont_fork()?;
        let placed = Arc::new(Placed::new(
            segment.clone(),
            region,
            (participants, presence),
            home,
        ));
        let entry = MemberEntry {
            placed: Arc::downgrade(&placed),
            addresses: placed.addresses(),
        };
        if home {
            mapped.home.insert(entry.addresses.start, segment.uuid());
        }
        mapped.segments.insert(segment.uuid(), entry);
        Ok(placed)
    }

    #[inline]
    fn show(&self, visit: &mut SetVisit<'_>, timeout: Duration) -> Result<(), MapError> {
        // SAFETY: the caller has looked.
        if unsafe { visit.set() }.is_home() {
            return Ok(());
        }
        self.bring_home(visit, timeout)
    }
}

impl Mapped {
    /// A window with these addresses of the segment, reserved now if there is none yet: all of the
    /// registry's, or, where something of this process lies in that or the kernel does not give so
    /// much, the segment's own slots.
    fn window(&mut self, segment: &Segment, addresses: &Range<usize>) -> Result<Window, MapError> {
        let (base, end) = (addresses.start, addresses.end.next_multiple_of(GIB));
        let lies_in = |start: usize, len: usize| start <= base && end <= start + len;
        let has = |window: &&Window| lies_in(window.base(), window.len());
        if let Some(window) = self.windows.iter().find(has) {
            return Ok(window.clone());
        }
        let (start, len) = segment.registry().window();
        let whole = lies_in(start, len)
            .then(|| Window::reserve_units(start, len, GIB).ok())
            .flatten();
        let window = match whole {
            Some(whole) => whole,
            None => Window::reserve_units(base, end - base, GIB)?,
        };
        self.windows.push(window.clone());
        Ok(window)
    }

    /// Whether the last user of that mapping is gone, and it is about to be.
    fn is_ending(&self, segment: &Uuid) -> bool {
        let entry = self.segments.get(segment);
        entry.is_none_or(|entry| entry.placed.strong_count() == 0)
    }

    /// The segment that lies in these addresses: of several, the last.
    fn at_home(&self, addresses: &Range<usize>) -> Option<Uuid> {
        let (_, uuid) = self.home.range(..addresses.end).next_back()?;
        let end = self.segments.get(uuid)?.addresses.end;
        (end > addresses.start).then_some(*uuid)
    }

    /// Brings all of these to their addresses, and parks what is there. `others` keeps that mapped
    /// until the table is unlocked.
    fn bring_home(
        &mut self,
        wanted: &[Arc<Placed>],
        others: &mut Vec<Arc<Placed>>,
    ) -> Result<(), MapError> {
        let away = wanted.iter().filter(|placed| !placed.is_home());
        for placed in away {
            while let Some(by) = self.at_home(&placed.addresses()) {
                let base = placed.addresses().start;
                let other = self
                    .segments
                    .get(&by)
                    .and_then(|entry| entry.placed.upgrade());
                let Some(other) = other else {
                    // It is ending; a moment later the place is free.
                    return Err(MapError::Busy { base, by });
                };
                let parked = self.park(&other, base);
                others.push(other);
                parked?;
            }
            placed.region().unpark()?;
            placed.set_home(true);
            self.home
                .insert(placed.addresses().start, placed.segment().uuid());
        }
        Ok(())
    }

    /// Puts a segment aside, for one whose first address is `base`.
    fn park(&mut self, placed: &Placed, base: usize) -> Result<(), MapError> {
        let by = placed.segment().uuid();
        if placed.is_kept() {
            return Err(MapError::Occupied { base, by });
        }
        placed.set_home(false);
        // SYNC: pairs with the fence of a visit's beginning, in `visitors`.
        fence(Ordering::SeqCst);
        let parked = {
            let lives = |set: *const Set| self.sets.contains(&set.addr());
            // SAFETY: a set is struck off the list before it is freed, under the lock that is held
            // here.
            if unsafe { visitors::is_inside(placed, lives) } {
                Err(MapError::Busy { base, by })
            } else {
                // SAFETY: no thread is inside of it. One that comes finds that it is not home and
                // waits for the lock that is held here. No one has it mapped for good.
                unsafe { placed.region().park() }.map_err(MapError::from)
            }
        };
        match parked {
            Ok(()) => {
                self.home.remove(&placed.addresses().start);
                Ok(())
            }
            Err(refused) => {
                placed.set_home(true);
                Err(refused)
            }
        }
    }
}
