//! [`Served`]: a store as the one process has it that serves it to clients.
//!
//! A server must come up again whatever happened to the last one. What kills it each time it starts
//! can only lie in the store, so starts are counted until one has settled; after three that did
//! not, the store is checked from end to end, and one that is damaged, or that no check of three
//! lived through, is set aside under another name, where it can be looked at, and replaced by an
//! empty one.
//!
//! A start that is asked to end before it has settled has not failed: [`Withdrawal`].
//!
//! **One start at a time is counted**: it holds the count before it touches the store. A start that
//! comes while another serves, or begins to, touches neither.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mneme_log::{
    ChangeListener, GrowError, Notification, RoleError, ServerRole, SlotError, UpdatePolicy,
};
use mneme_space::{Access, NameError, NoteError, OpenError, Registry, RenameError, Segment};
use mneme_sys::{Clock, SystemClock};

use crate::StoreOptions;
use crate::error::{AttachError, ServeError};
use crate::starts::{CHECKED_AFTER, GIVEN_UP_AFTER, Starts, Withdrawal};
use crate::store::SharedStore;

/// What a server wants of its store.
#[derive(Clone, Default)]
pub struct Opening {
    /// What one is made by where there is none.
    pub options: StoreOptions,
    /// The capacity in bytes, if the operator named one: an existing store must have it, or be able
    /// to grow to it.
    pub capacity: Option<u64>,
    /// The policy, if the operator named one: an existing store must have it.
    pub policy: Option<UpdatePolicy>,
    /// Whether the store must have a change feed, as a durable one does, or must have none: an
    /// existing store is refused that differs. If it does not matter here,
    /// [`has_change_feed`](mneme_log::LogStore::has_change_feed) of what is served tells.
    pub change_feed: Option<bool>,
    /// What takes the start back that this opening begins.
    pub withdrawal: Withdrawal,
}

/// How a store was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// There was none.
    Created,
    /// With all that it held.
    Attached,
    /// After failed starts it was checked, and is sound.
    Checked,
    /// It was damaged: it is set aside under this name, and this one is empty.
    Replaced(String),
}

/// A store that this process serves, the only one to do so. Dereferences to the store.
pub struct Served {
    // Given back before the store is.
    role: Mutex<Role>,
    store: SharedStore,
    starts: Arc<Starts>,
    withdrawal: Withdrawal,
    found: Found,
}

/// The server's place, and the changes that it follows.
enum Role {
    Quiet(ServerRole),
    Listening(ChangeListener),
    /// Between the two.
    Neither,
}

impl Opening {
    /// See [`StoreOptions::lending`].
    #[must_use]
    pub fn lending(mut self, lending: bool) -> Self {
        self.options = self.options.lending(lending);
        self
    }

    /// Opens the store of that name for serving: the one that is there, or a new one.
    ///
    /// Memory does not outlive the machine's boot: a segment of an earlier one, of which only the
    /// name is left, is made anew.
    ///
    /// # Errors
    /// One variant of [`ServeError`] each; what is stored stays as it is.
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
                    // Another was faster: it is there now.
                    Err(taken) if taken.is_taken() => {}
                    Err(refused) => return Err(refused.into()),
                },
                Err(OpenError::DataGone { .. }) if !cleaned => {
                    registry.clean()?;
                    cleaned = true;
                }
                Err(OpenError::DataGone { path }) if is_memory(registry, name) => {
                    // If it is served still, the error says by which process.
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

    /// What one is made by where there is none.
    fn new_one(&self) -> StoreOptions {
        let options = self.options.clone();
        match self.change_feed {
            Some(feed) => options.change_feed(feed),
            None => options,
        }
    }

    fn attach(&self, registry: &Registry, name: &str) -> Result<Attached, ServeError> {
        let turn = turn(registry, name);
        // Not before: the process that had the turn may have set the segment aside, and made
        // another of that name.
        let opened = Segment::open(registry, name);
        if matches!(opened, Err(OpenError::NotFound { .. })) {
            return Ok(Attached::Gone);
        }
        let starts = turn?;
        let failed = starts.failed()?;
        mneme_sys::fault!("shared.serve.begun");
        let begun = starts.begin(&self.withdrawal, failed);
        begun.map_err(|refused| not_noted(name, refused))?;
        mneme_sys::fault!("shared.serve.noted");
        // The starts that were to check it did not live to say so.
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
                    starts.note(failed)?;
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
                    // That was no fault of the store.
                    starts.note(failed)?;
                    Err(refused)
                }
            };
        }
        let checked = store.check();
        mneme_sys::fault!("shared.serve.checked");
        match checked {
            Ok(report) if report.is_sound() => {
                starts.note(0)?;
                let served = self.serve(store, starts, Found::Checked);
                let served = served.map_err(|refused| refused.1)?;
                Ok(Attached::Served(Box::new(served)))
            }
            // What the report says of the damage `mneme segment check` says again.
            Ok(_) => {
                drop(store);
                set_aside(registry, name)
            }
            Err(source) => {
                starts.note(failed)?;
                let name = name.to_owned();
                Err(ServeError::Check { name, source })
            }
        }
    }

    /// Takes the server's place, if the store is as it was asked for; gives the count back if it is
    /// not.
    fn serve(
        &self,
        store: SharedStore,
        starts: Arc<Starts>,
        found: Found,
    ) -> Result<Served, Box<(Arc<Starts>, ServeError)>> {
        match self.role(&store) {
            Ok(role) => Ok(Served {
                role: Mutex::new(Role::Quiet(role)),
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

/// What is wrong with the index of a store that counts no record: it may be empty, or what leads to
/// its records is lost.
fn lost(store: &SharedStore) -> Option<String> {
    if store.records() > 0 {
        return None;
    }
    // A stopped process in a store keeps no other from serving it.
    store.check_index().ok()?.problems.into_iter().next()
}

/// Whether the segment of that name, which does not open, is kept in memory.
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

/// Why a start cannot be noted.
fn not_noted(name: &str, refused: NoteError) -> ServeError {
    match refused {
        NoteError::NotOwner { owner } => ServeError::NotOwner {
            name: name.to_owned(),
            owner,
        },
        other => other.into(),
    }
}

/// Asks until the answer is another than that another server has it, for a second at most: a server
/// that has just been killed may take a moment to be gone.
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

/// How long a server that is being killed is waited for.
const LEAVING_NS: u64 = 1_000_000_000;

/// Gives the segment another name, under which it can be looked at.
fn set_aside(registry: &Registry, name: &str) -> Result<Attached, ServeError> {
    match registry.set_segment_aside(name, QUARANTINE) {
        Ok(aside) => {
            mneme_sys::fault!("shared.serve.aside");
            Starts::forget(registry, &aside)?;
            Ok(Attached::SetAside(aside))
        }
        Err(RenameError::Name(NameError::TooLong { max, .. })) => Err(ServeError::QuarantineName {
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

/// What a damaged segment is called beside the one that takes its place: `NAME~quarantine-1`.
pub const QUARANTINE: &str = "quarantine";

const FRAME: u64 = mneme_sys::FRAME as u64;

enum Attached {
    Served(Box<Served>),
    /// Under this name.
    SetAside(String),
    /// Somebody has removed it, or set it aside.
    Gone,
}

impl Served {
    /// How the store was found.
    #[must_use]
    pub fn found(&self) -> &Found {
        &self.found
    }

    /// Says that this start has not failed: to be called once clients have been served for a while.
    ///
    /// # Errors
    /// The note of it cannot be removed.
    pub fn settle(&self) -> Result<(), ServeError> {
        self.withdrawal.over();
        Ok(self.starts.note(0)?)
    }

    /// Calls `receive` with what local programs have changed since the last time, `most` changes at
    /// most. Returns how many there were. Follows them from the first call on: see
    /// [`ServerRole::listen`] and [`ChangeListener::drain`]. Of several threads that call it one is
    /// served after the other.
    ///
    /// # Errors
    /// This is a forked child.
    pub fn drain_changes(
        &self,
        most: usize,
        receive: impl FnMut(Notification<'_>),
    ) -> Result<usize, SlotError> {
        // After a panic in another thread's `receive` listening goes on behind what that has seen.
        let mut role = self.role.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*role, Role::Quiet(_))
            && let Role::Quiet(quiet) = std::mem::replace(&mut *role, Role::Neither)
        {
            *role = Role::Listening(quiet.listen());
        }
        match &mut *role {
            Role::Listening(listener) => listener.drain(most, receive),
            Role::Quiet(_) | Role::Neither => Ok(0),
        }
    }
}

impl Deref for Served {
    type Target = SharedStore;

    fn deref(&self) -> &SharedStore {
        &self.store
    }
}
