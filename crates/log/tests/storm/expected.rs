//! The allowed states of a name after its lane was killed: before or after the one change under
//! way, a transaction's names all or none, a batch's up to one of them; nothing else.

use std::time::{SystemTime, UNIX_EPOCH};

/// The state of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct State {
    /// The number of the lane's change that made it so.
    pub seq: u64,
    /// Bytes of the value; 0: there is none.
    pub len: usize,
    /// When it expires, in ms; 0: never.
    pub until: u64,
}

/// It was present, and had expired when its expiry was read.
pub const GONE: u64 = u64::MAX;

/// The time of a look: not earlier, not later, in ms of the wall clock.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub since: u64,
    pub until: u64,
}

pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_millis() as u64
}

impl Span {
    /// From `since` to now. Clocks of two readings may differ by their resolution.
    pub fn since(since: u64) -> Span {
        Span {
            since: since - 1,
            until: now() + 1,
        }
    }
}

impl State {
    pub fn is_there(self) -> bool {
        self.len > 0
    }

    /// Whether a look in that time may have found `seen`.
    pub fn allows(self, seen: Option<State>, at: Span) -> bool {
        let over = self.until != 0 && self.until <= at.until;
        match seen {
            None => !self.is_there() || over,
            Some(seen) => {
                let same = seen.seq == self.seq && seen.len == self.len;
                let expiry = seen.until == self.until || seen.until == GONE && over;
                let not_over = self.until == 0 || self.until >= at.since;
                self.is_there() && same && expiry && not_over
            }
        }
    }
}

/// How several names change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// All at once.
    Whole,
    /// One after the other, in order.
    InOrder,
}

/// One name's part in a change.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub name: usize,
    pub old: State,
    pub new: State,
}

/// How many of `steps`, from the first on, took place, judging by what was `seen` of each; `known`
/// if that was acknowledged.
pub fn settle(
    how: How,
    steps: &[Step],
    known: Option<usize>,
    seen: &[Option<State>],
    at: Span,
) -> Result<usize, String> {
    let fits = |done: &usize| {
        let each = steps.iter().zip(seen).enumerate();
        each.into_iter().all(|(i, (step, seen))| {
            let state = if i < *done { step.new } else { step.old };
            state.allows(*seen, at)
        })
    };
    let mut may_be: Vec<usize> = match how {
        How::Whole => vec![0, steps.len()],
        How::InOrder => (0..=steps.len()).collect(),
    };
    if let Some(known) = known {
        may_be = vec![known];
    }
    may_be.iter().copied().find(fits).ok_or_else(|| {
        let each = steps.iter().zip(seen);
        let wrong: Vec<_> = each
            .filter(|(step, seen)| !step.new.allows(**seen, at) || known.is_none())
            .take(20)
            .map(|(step, seen)| {
                format!(
                    "name {}: {:?} to {:?}, found {seen:?}",
                    step.name, step.old, step.new
                )
            })
            .collect();
        format!(
            "{} names changed {how:?}, acknowledged {known:?}, {at:?}: {wrong:#?}",
            steps.len()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Span = Span {
        since: 100,
        until: 110,
    };

    fn is(seq: u64) -> State {
        State {
            seq,
            len: 40,
            until: 0,
        }
    }

    /// Steps from 1, 2, … to 11, 12, …
    fn steps(n: u64) -> Vec<Step> {
        let step = |i| Step {
            name: i as usize,
            old: is(i),
            new: is(i + 10),
        };
        (1..=n).map(step).collect()
    }

    fn found(seqs: &[u64]) -> Vec<Option<State>> {
        seqs.iter()
            .map(|&seq| (seq > 0).then_some(is(seq)))
            .collect()
    }

    #[test]
    fn one_change_is_old_or_new() {
        let settle = |seen: &[u64], known| settle(How::Whole, &steps(1), known, &found(seen), AT);
        assert_eq!(settle(&[1], None), Ok(0));
        assert_eq!(settle(&[11], None), Ok(1));
        assert_eq!(settle(&[11], Some(1)), Ok(1));
        assert_eq!(settle(&[1], Some(0)), Ok(0));
        // An acknowledged change is lost; a refused one is there; another's value; nothing.
        assert!(settle(&[1], Some(1)).is_err());
        assert!(settle(&[11], Some(0)).is_err());
        assert!(settle(&[7], None).is_err());
        assert!(settle(&[0], None).is_err());
    }

    #[test]
    fn a_torn_transaction_is_detected() {
        let settle = |seen: &[u64]| settle(How::Whole, &steps(3), None, &found(seen), AT);
        assert_eq!(settle(&[1, 2, 3]), Ok(0));
        assert_eq!(settle(&[11, 12, 13]), Ok(3));
        for torn in [[11, 2, 3], [1, 2, 13], [11, 2, 13], [11, 12, 0]] {
            assert!(settle(&torn).is_err(), "{torn:?}");
        }
    }

    #[test]
    fn a_batch_is_done_in_order() {
        let settle = |seen: &[u64], known| settle(How::InOrder, &steps(3), known, &found(seen), AT);
        assert_eq!(settle(&[1, 2, 3], None), Ok(0));
        assert_eq!(settle(&[11, 12, 3], None), Ok(2));
        assert_eq!(settle(&[11, 12, 3], Some(2)), Ok(2));
        assert!(settle(&[1, 12, 3], None).is_err());
        assert!(settle(&[11, 12, 3], Some(3)).is_err());
        assert!(settle(&[11, 12, 13], Some(2)).is_err());
    }

    #[test]
    fn a_record_may_be_absent_after_its_expiry_and_not_before() {
        let state = |until| State { until, ..is(1) };
        let seen = |until| Some(state(until));
        assert!(!state(0).allows(None, AT));
        assert!(!state(120).allows(None, AT));
        assert!(state(120).allows(seen(120), AT));
        assert!(state(105).allows(None, AT));
        assert!(state(105).allows(seen(105), AT));
        assert!(state(105).allows(seen(GONE), AT));
        assert!(!state(120).allows(seen(GONE), AT));
        assert!(!state(90).allows(seen(90), AT));
        // An expiry that was lost, or belongs to another value.
        assert!(!state(120).allows(seen(0), AT));
        assert!(!state(0).allows(seen(120), AT));
        assert!(!State::default().allows(seen(0), AT));
        assert!(State::default().allows(None, AT));
    }
}
