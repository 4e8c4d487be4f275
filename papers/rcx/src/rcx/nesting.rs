//! **A thread that holds items takes only later ones**: what keeps nested sets from waiting for
//! each other in a circle.

use super::RcxError;
use std::cell::Cell;

#[derive(Clone, Copy)]
struct Held {
    guards: usize,
    /// The latest item held, if there are guards.
    last: u64,
}

thread_local! {
    /// Over all `Rcx` of the thread: they are one order of ids.
    static HELD: Cell<Held> = const { Cell::new(Held { guards: 0, last: 0 }) };
}

/// A guard's place in its thread's order; dropping it gives the place up.
pub(crate) struct Place {
    /// What its thread held when it began. Whole words, which a guard keeps in registers until it
    /// is stored.
    guards: usize,
    before: u64,
    last: u64,
    /// It stays with its thread.
    _thread: std::marker::PhantomData<*const ()>,
}

impl Place {
    /// Whether its thread held another guard when it began.
    pub(crate) fn is_nested(&self) -> bool {
        self.guards > 0
    }
}

/// The place of a guard of items from `first` to `last`.
#[inline(always)]
pub(crate) fn enter(first: u64, last: u64) -> Result<Place, RcxError> {
    let before = HELD.with(Cell::get);
    if before.guards > 0 && first <= before.last {
        return Err(RcxError::OutOfOrder {
            held: before.last,
            wanted: first,
        });
    }
    let guards = before.guards + 1;
    HELD.with(|held| held.set(Held { guards, last }));
    Ok(Place {
        guards: before.guards,
        before: before.last,
        last,
        _thread: std::marker::PhantomData,
    })
}

impl Drop for Place {
    #[inline]
    fn drop(&mut self) {
        HELD.with(|held| {
            let now = held.get();
            // Where guards go in another order than the reverse one, the latest item counts as held
            // a while longer than it is: nested sets are refused that would do no harm.
            let last = match now.last == self.last {
                true => self.before,
                false => now.last,
            };
            let guards = now.guards.saturating_sub(1);
            held.set(Held { guards, last });
        });
    }
}
