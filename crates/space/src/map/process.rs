//! [`ProcessMap`]: one table of mapped segments for all threads of the process.
//!
//! **A segment is mapped at most once, however many attachments use it. It lies at its address
//! whenever a thread is inside it or it must stay mapped; at other times another segment may have
//! the address.** At the first mapping, the process reserves the whole window of a registry, and it
//! maps every segment with an address inside it (SpaceJMP keeps segments in ranges disjoint from
//! the process's own, §4.1). Two overlapping segments take turns: they are moved by
//! changing page tables (`mneme_sys`, parking; or `kernel`), which affects all threads: hence
//! [`MapError::Busy`] while a thread is inside one of them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use mneme_sys::fork::{self, PerProcess};
use mneme_sys::{Access, Clock, SystemClock, Window};

use super::kernel::KernelWindow;
use super::mapping::{Location, Placed, map_data};
use super::{Map, SegmentSet, SetVisit, kernel, visitors};
use crate::registry::GIB;
use crate::segment::control::{open_way, reap};
use crate::{MapError, Segment, Uuid};

/// How long to wait before checking again whether a thread has left.
const PAUSE: Duration = Duration::from_micros(50);

/// The segments that this process has mapped. A forked child begins with an empty table.
pub(crate) struct ProcessMap {
    generation: u32,
    /// Whether the parent of this process had a table, and with it perhaps a window. This process
    /// has then inherited the window, with holes where mappings were not inherited.
    inherited: bool,
    mapped: Mutex<Mapped>,
    /// Signals that a mapping has been removed.
    freed: Condvar,
}

#[derive(Default)]
struct Mapped {
    windows: Vec<Window>,
    kernel: KernelWindow,
    segments: HashMap<Uuid, MemberEntry>,
    /// The segments that lie at their addresses, by first address: no two overlap.
    home: BTreeMap<usize, Uuid>,
    /// The addresses of all sets that could be visited.
    sets: HashSet<usize>,
}

struct MemberEntry {
    /// Dead while the mapping is being removed.
    placed: Weak<Placed>,
    addresses: Range<usize>,
}

static PROCESS: PerProcess<ProcessMap> = PerProcess::new();

impl ProcessMap {
    /// This process's table.
    pub(crate) fn get() -> &'static Self {
        PROCESS.get(|inherited| Self {
            generation: fork::generation(),
            inherited,
            mapped: Mutex::default(),
            freed: Condvar::new(),
        })
    }

    /// Whether this process is a child of the one that created the table.
    pub(crate) fn is_forked(&self) -> bool {
        self.generation != fork::generation()
    }

    /// Every change of the table is complete before anything can panic, so a poisoned mutex is used
    /// as it is.
    fn lock(&self) -> MutexGuard<'_, Mapped> {
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for_an_end<'a>(&self, mapped: MutexGuard<'a, Mapped>) -> MutexGuard<'a, Mapped> {
        let woken = self.freed.wait(mapped);
        woken.unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a set; from now on it may be visited.
    pub(crate) fn enlist(&self, set: &SegmentSet) {
        self.lock().sets.insert((&raw const *set).addr());
    }

    /// Unregisters a set that can no longer be visited; after this, the map does not access it.
    pub(crate) fn strike(&self, set: &SegmentSet) {
        self.lock().sets.remove(&(&raw const *set).addr());
    }

    /// The mapping of that segment, if this process has one.
    pub(crate) fn placed(&self, segment: Uuid) -> Option<Arc<Placed>> {
        self.lock().segments.get(&segment)?.placed.upgrade()
    }

    /// Keeps a segment at its address until [`release`](Self::release) has been called as often as
    /// this.
    ///
    /// # Errors
    /// [`MapError::Occupied`], [`MapError::Busy`].
    pub(crate) fn keep(&self, placed: &Arc<Placed>) -> Result<(), MapError> {
        // Dropped after the table is unlocked: dropping the last user of a mapping locks the table.
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
            // While this thread waits for addresses, it does not prevent others from moving its
            // segments.
            visit.wait();
            let mut others = Vec::new();
            let mut mapped = self.lock();
            // SAFETY: the caller of `show` has checked that the set lives.
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
        // After a wait everything is checked again, because other threads have continued meanwhile.
        let home = loop {
            if let Some(entry) = mapped.segments.get(&segment.uuid()) {
                if let Some(placed) = entry.placed.upgrade() {
                    // Unlocked before anything is dropped: dropping the last user would lock the
                    // table.
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
            Some(addresses) => match mapped.kernel.for_segment(segment.meta(), &addresses) {
                Some(window) => Location::Kernel { window },
                None => Location::Window {
                    window: mapped.window(segment, &addresses)?,
                    home,
                },
            },
        };
        let (region, view, presence) = map_data(segment, access, location, way)?;
        region.dont_fork()?;
        if let (true, Some(view)) = (home, &view) {
            // SAFETY: nothing else is there.
            unsafe { view.show() }.map_err(kernel::failed("show a segment"))?;
        }
        let placed = Arc::new(Placed::new(
            segment.clone(),
            (region, view),
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
        // SAFETY: the caller has checked that the set lives.
        if unsafe { visit.set() }.is_home() {
            return Ok(());
        }
        self.bring_home(visit, timeout)
    }
}

impl Mapped {
    /// A window that contains the segment's addresses. If there is none yet, reserves one: the
    /// registry's whole window, or only the segment's slots if part of the window is in use or the
    /// kernel refuses to reserve so much.
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

    /// Whether the last user of that mapping is gone, so that it is about to be removed.
    fn is_ending(&self, segment: &Uuid) -> bool {
        let entry = self.segments.get(segment);
        entry.is_none_or(|entry| entry.placed.strong_count() == 0)
    }

    /// The segment that lies at these addresses; the last one if there are several.
    fn at_home(&self, addresses: &Range<usize>) -> Option<Uuid> {
        let (_, uuid) = self.home.range(..addresses.end).next_back()?;
        let end = self.segments.get(uuid)?.addresses.end;
        (end > addresses.start).then_some(*uuid)
    }

    /// Moves all of these to their addresses, and parks the segments that are there. `others` keeps
    /// those mapped until the table is unlocked.
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
                    // The mapping is being removed; the addresses will be free in a moment.
                    return Err(MapError::Busy { base, by });
                };
                let parked = self.park(&other, base);
                others.push(other);
                parked?;
            }
            placed.unpark()?;
            placed.set_home(true);
            self.home
                .insert(placed.addresses().start, placed.segment().uuid());
        }
        Ok(())
    }

    /// Parks a segment, for one whose first address is `base`.
    fn park(&mut self, placed: &Placed, base: usize) -> Result<(), MapError> {
        let by = placed.segment().uuid();
        if placed.is_kept() {
            return Err(MapError::Occupied { base, by });
        }
        placed.set_home(false);
        // SYNC: pairs with the fence at the beginning of a visit, in `visitors`.
        fence(Ordering::SeqCst);
        let parked = {
            let lives = |set: *const SegmentSet| self.sets.contains(&set.addr());
            // SAFETY: a set is unregistered before it is freed, under the lock that is held here.
            if unsafe { visitors::is_inside(placed, lives) } {
                Err(MapError::Busy { base, by })
            } else {
                // SAFETY: no thread is inside it. A thread that enters now finds that it is not at
                // its address, and waits for the lock that is held here. No user needs it to stay
                // mapped.
                unsafe { placed.park() }.map_err(MapError::from)
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
