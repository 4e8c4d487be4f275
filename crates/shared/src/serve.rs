//! [`Served`]: a store in the one process that serves it to clients.
//!
//! A server must be able to start again whatever happened to the last one. If it dies each time it
//! starts, the cause must be the store. So starts are counted until one has settled. After three
//! failed starts the store is checked from end to end. A store that is damaged, or whose check did
//! not finish in three further starts, is set aside under another name, where it can be examined,
//! and replaced by an empty one.
//!
//! A start that is asked to end before it has settled has not failed: see [`Withdrawal`].
//!
//! **One start at a time is counted**: it takes the count before it touches the store. A start that
//! comes while another process serves the store, or begins to, touches neither.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mneme_log::{
    ChangeListener, GrowError, LocalPrograms, Notification, RoleError, ServerRole, Sleep,
    SlotError, UpdatePolicy,
};
use mneme_space::{Access, NameError, OpenError, Registry, RegistryError, RemoveError, Segment};
use mneme_sys::{Clock, SystemClock};

use crate::StoreOptions;
use crate::error::{AttachError, ServeError};
use crate::starts::{CHECKED_AFTER, GIVEN_UP_AFTER, Starts, Withdrawal};
use crate::store::SharedStore;

/// How a server opens its store.
#[derive(Clone, Default)]
pub struct Opening {
    /// The options for creating the store if there is none.
    pub options: StoreOptions,
    /// The capacity in bytes, if the operator gave one: an existing store must have it, or be able
    /// to grow to it.
    pub capacity: Option<u64>,
    /// The policy, if the operator gave one: an existing store must have it.
    pub policy: Option<UpdatePolicy>,
    /// Whether the store must have a change feed, as a durable one does, or must have none; an
    /// existing store that differs is refused. `None` accepts both; see
    /// [`has_change_feed`](mneme_log::LogStore::has_change_feed) of the served store.
    pub change_feed: Option<bool>,
    /// What other processes may do that attach the store while it is served.
    pub local_programs: LocalPrograms,
    /// A handle that can withdraw the start that this opening begins.
    pub withdrawal: Withdrawal,
}

/// The state in which a store was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// There was none, and one was created.
    Created,
    /// It was attached with all its records.
    Attached,
    /// It was checked after failed starts, and is sound.
    Checked,
    /// It was damaged: it is set aside under this name, and the served store is empty.
    Replaced(String),
}

/// A store that this process serves, and no other process. Dereferences to the store.
pub struct Served {
    // Released before the store.
    role: ServerRole,
    /// Listens to the changes of other processes, from the first call on.
    listener: Mutex<Option<ChangeListener>>,
    store: SharedStore,
    starts: Arc<Starts>,
    withdrawal: Withdrawal,
    found: Found,
}

impl Opening {
    /// See [`StoreOptions::lending`].
    #[must_use]
    pub fn lending(mut self, lending: bool) -> Self {
        self.options = self.options.lending(lending);
        self
    }

    /// Opens the store of that name for serving: the existing one, or a new one.
    ///
    /// Memory does not survive a reboot: a segment from an earlier boot, of which only the name is
    /// left, is created again.
    ///
    /// # Errors
    /// One variant of [`ServeError`] each; the stored data are unchanged.
    pub fn open(&self, registry: &Registry, name: &str) -> Result<Served, ServeError> {
        let mut found = Found::Created;
        let mut cleaned = false;
        loop {
            match Segment::open(registry, name) {
                Err(OpenError::NotFound { .. }) => match self.new_one().make(registry, name) {
                    Ok(segment) => {
                        let starts = turn(registry, name)?;
                        let store = self.options.attach_segment(segment, Access::ReadWrite)?;
                        return self
                            .serve(store, starts, found)
                            .map_err(|refused| refused.1);
                    }
                    // Another process was faster: the store exists now.
                    Err(taken) if taken.is_taken() => {}
                    Err(refused) => return Err(refused.into()),
                },
                Err(OpenError::DataGone { .. }) if !cleaned => {
                    registry.clean()?;
                    cleaned = true;
                }
                Err(OpenError::DataGone { path }) if is_memory(registry, name) => {
                    // If the store is still being served, the error names the process.
                    turn(registry, name)?;
                    let name = name.to_owned();
                    return Err(ServeError::DataGone { name, path });
                }
                opened => {
                    drop(opened);
                    mneme_sys::fault!("shared.serve.found");
                    match self.attach(registry, name)? {
                        Attached::Served(served) => return Ok(*served),
                        Attached::SetAside(name) => found = Found::Replaced(name),
                        Attached::Gone => {}
                    }
                }
            }
        }
    }

    /// The options for creating the store if there is none.
    fn new_one(&self) -> StoreOptions {
        let options = self.options.clone();
        match self.change_feed {
            Some(feed) => options.change_feed(feed),
            None => options,
        }
    }

    fn attach(&self, registry: &Registry, name: &str) -> Result<Attached, ServeError> {
        let turn = turn(registry, name);
        // Not earlier: the process that held the count may have set the segment aside, and created
        // another of that name.
        let opened = Segment::open(registry, name);
        if matches!(opened, Err(OpenError::NotFound { .. })) {
            return Ok(Attached::Gone);
        }
        let starts = turn?;
        let failed = starts.failed().map_err(ServeError::Note)?;
        mneme_sys::fault!("shared.serve.begun");
        let begun = starts.begin(&self.withdrawal, failed);
        begun.map_err(|refused| not_noted(name, refused))?;
        mneme_sys::fault!("shared.serve.noted");
        // The starts that should have checked the store died before the check was finished.
        if failed >= GIVEN_UP_AFTER {
            return set_aside(registry, name);
        }
        let attached = opened
            .map_err(AttachError::from)
            .and_then(|segment| self.options.attach_segment(segment, Access::ReadWrite));
        let store = match attached {
            Ok(store) => store,
            Err(damage) if damage.is_damage() && failed >= CHECKED_AFTER => {
                return set_aside(registry, name);
            }
            Err(refused) => {
                if !refused.is_damage() {
                    starts.note(failed).map_err(ServeError::Note)?;
                }
                return Err(refused.into());
            }
        };
        if failed < CHECKED_AFTER {
            if let Some(problem) = lost(&store) {
                let name = name.to_owned();
                return Err(ServeError::Damaged { name, problem });
            }
            return match self.serve(store, starts, Found::Attached) {
                Ok(served) => Ok(Attached::Served(Box::new(served))),
                Err(refused) => {
                    let (starts, refused) = *refused;
                    // That was not the store's fault.
                    starts.note(failed).map_err(ServeError::Note)?;
                    Err(refused)
                }
            };
        }
        let checked = store.check();
        mneme_sys::fault!("shared.serve.checked");
        match checked {
            Ok(report) if report.is_sound() => {
                starts.note(0).map_err(ServeError::Note)?;
                let served = self.serve(store, starts, Found::Checked);
                let served = served.map_err(|refused| refused.1)?;
                Ok(Attached::Served(Box::new(served)))
            }
            // `mneme segment check` repeats what the report says about the damage.
            Ok(_) => {
                drop(store);
                set_aside(registry, name)
            }
            Err(source) => {
                starts.note(failed).map_err(ServeError::Note)?;
                let name = name.to_owned();
                Err(ServeError::Check { name, source })
            }
        }
    }

    /// Takes the server's role, if the store has the requested properties; otherwise releases the
    /// count.
    fn serve(
        &self,
        store: SharedStore,
        starts: Arc<Starts>,
        found: Found,
    ) -> Result<Served, Box<(Arc<Starts>, ServeError)>> {
        match self.role(&store) {
            Ok(role) => Ok(Served {
                role,
                listener: Mutex::default(),
                store,
                starts,
                withdrawal: self.withdrawal.clone(),
                found,
            }),
            Err(refused) => Err(Box::new((starts, refused))),
        }
    }

    fn role(&self, store: &SharedStore) -> Result<ServerRole, ServeError> {
        let name = store.segment().name().to_string();
        let role = ask_for_a_second(
            || store.take_server_role(),
            |refused| matches!(refused, Err(RoleError::Taken { .. })),
        );
        let role = match role {
            Ok(role) => role,
            Err(source) => return Err(ServeError::Role { name, source }),
        };
        role.set_local_programs(self.local_programs);
        if let Some(asked) = self.policy
            && store.update_policy() != asked
        {
            return Err(ServeError::Policy {
                name,
                present: store.update_policy(),
                asked,
            });
        }
        let has_feed = store.has_change_feed();
        if let Some(asked) = self.change_feed.filter(|asked| *asked != has_feed) {
            return Err(match asked {
                true => ServeError::NotFed { name },
                false => ServeError::Fed { name },
            });
        }
        if let Some(asked) = self.capacity {
            let present = store.capacity();
            let rounded = asked.next_multiple_of(FRAME);
            if present > rounded {
                return Err(ServeError::Larger {
                    name,
                    present,
                    asked,
                });
            }
            if present < rounded {
                match store.grow(rounded) {
                    Ok(_) => {}
                    Err(GrowError::BeyondMax { max, .. }) => {
                        return Err(ServeError::BeyondMax { name, max, asked });
                    }
                    Err(source) => return Err(ServeError::Grow { name, source }),
                }
            }
        }
        Ok(role)
    }
}

/// What is wrong with the index of a store that counts no record: the store may be empty, or the
/// way to its records may be lost.
fn lost(store: &SharedStore) -> Option<String> {
    if store.records() > 0 {
        return None;
    }
    // A process that is stopped inside a store does not prevent another from serving it.
    store.check_index().ok()?.problems.into_iter().next()
}

/// Whether the segment of that name, which cannot be opened, is kept in memory.
fn is_memory(registry: &Registry, name: &str) -> bool {
    Segment::described(registry, name).is_ok_and(|segment| segment.is_volatile())
}

/// Takes the count of starts, before the store is touched.
fn turn(registry: &Registry, name: &str) -> Result<Arc<Starts>, ServeError> {
    let take = || Starts::take(registry, name);
    let taken = ask_for_a_second(take, |answer| matches!(answer, Ok(None)));
    let taken = taken.map_err(|refused| not_noted(name, refused))?;
    taken.map(Arc::new).ok_or_else(|| ServeError::Role {
        name: name.to_owned(),
        source: RoleError::Taken {
            pid: Starts::holder(registry, name).unwrap_or(0),
        },
    })
}

/// Why a start cannot be recorded.
fn not_noted(name: &str, refused: RegistryError) -> ServeError {
    match refused {
        RegistryError::NotOwner { owner } => ServeError::NotOwner {
            name: name.to_owned(),
            owner,
        },
        other => ServeError::Note(other),
    }
}

/// Repeats a request, for at most a second, while the answer is that another server has the role: a
/// server that has just been killed may take a moment to disappear.
fn ask_for_a_second<T>(mut ask: impl FnMut() -> T, is_taken: impl Fn(&T) -> bool) -> T {
    let begun = SystemClock.now_ns();
    loop {
        let answer = ask();
        if !is_taken(&answer) || SystemClock.now_ns() - begun >= LEAVING_NS {
            return answer;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// How long to wait for a server that is being killed.
const LEAVING_NS: u64 = 1_000_000_000;

/// Renames the segment, so that it can be examined.
fn set_aside(registry: &Registry, name: &str) -> Result<Attached, ServeError> {
    match registry.set_segment_aside(name, QUARANTINE) {
        Ok(aside) => {
            mneme_sys::fault!("shared.serve.aside");
            Starts::forget(registry, &aside).map_err(ServeError::Note)?;
            Ok(Attached::SetAside(aside))
        }
        Err(RemoveError::Name(NameError::TooLong { max, .. })) => Err(ServeError::QuarantineName {
            name: name.to_owned(),
            aside: format!("{name}~{QUARANTINE}-1"),
            max,
        }),
        Err(source) => Err(ServeError::Quarantine {
            name: name.to_owned(),
            source,
        }),
    }
}

/// The suffix of a damaged segment that was replaced: `NAME~quarantine-1`.
pub const QUARANTINE: &str = "quarantine";

const FRAME: u64 = mneme_sys::FRAME as u64;

enum Attached {
    Served(Box<Served>),
    /// Renamed to this name.
    SetAside(String),
    /// Somebody has removed it or set it aside.
    Gone,
}

impl Served {
    /// The state in which the store was found.
    #[must_use]
    pub fn found(&self) -> &Found {
        &self.found
    }

    /// Says what other processes may do that attach the store from here on.
    pub fn set_local_programs(&self, may: LocalPrograms) {
        self.role.set_local_programs(may);
    }

    /// Records that this start has not failed: to be called once clients have been served for a
    /// while.
    ///
    /// # Errors
    /// The record of the start cannot be removed.
    pub fn settle(&self) -> Result<(), ServeError> {
        self.withdrawal.over();
        self.starts.note(0).map_err(ServeError::Note)
    }

    /// Calls `receive` with the changes that local programs have made since the last call, about
    /// `most`. Returns how many there were. Changes are received from the first call on: see
    /// [`LogStore::listen`](mneme_log::LogStore::listen) and [`ChangeListener::drain`]. If several
    /// threads call it, they run one after the other.
    ///
    /// # Errors
    /// As for those two.
    pub fn drain_changes(
        &self,
        most: usize,
        receive: impl FnMut(Notification<'_>),
    ) -> Result<usize, SlotError> {
        // After a panic in another thread's `receive`, listening continues after the changes that
        // it has seen.
        let mut kept = self.lock_listener();
        let listener = match &mut *kept {
            Some(listener) => listener,
            none => none.insert(self.store.listen()?),
        };
        listener.drain(most, receive)
    }

    /// Lets the thread sleep until there is more to drain. `None`: there is more now, or nothing
    /// was drained yet.
    pub fn sleep_for_changes(&self) -> Option<Sleep> {
        self.lock_listener().as_ref()?.sleep()
    }

    fn lock_listener(&self) -> MutexGuard<'_, Option<ChangeListener>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deref for Served {
    type Target = SharedStore;

    fn deref(&self) -> &SharedStore {
        &self.store
    }
}
