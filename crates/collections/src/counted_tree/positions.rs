//! The positions of a leaf's elements: **in runs of equal steps, a few bytes for each run.**
//!
//! | what | as |
//! |---|---|
//! | how many runs | a number |
//! | where the first run begins | a signed number |
//! | where each other run begins: how far behind the last position before it | a number |
//! | positions | a number |
//! | from one to the next, if there is more than one | a number |
//!
//! A number has seven bits in each byte, the lowest first; all bytes but the last one have bit 7.
//! Of a signed one the lowest bit is the sign (zigzag).

use std::ops::Range;

use crate::error::Damage;

use super::node::damage;

/// The usual maximum size in bytes of one run.
pub(super) const RUN: usize = 6;
/// The maximum size in bytes of one run and the number of runs.
pub(super) const LONGEST_RUN: usize = 1 + 10 + 10 + 10;

/// The positions of elements, in ascending order.
#[derive(Default)]
pub(crate) struct Positions {
    runs: Vec<Run>,
}

/// Positions at equal distances.
#[derive(Clone, Copy)]
struct Run {
    /// The number of positions before this run.
    begin: usize,
    first: i64,
    step: u64,
    /// At least 1.
    len: usize,
}

impl Run {
    /// The position number `index`, even beyond the run.
    fn checked(&self, index: usize) -> Option<i64> {
        let distance = self.step.checked_mul(index as u64)?;
        self.first.checked_add_unsigned(distance)
    }

    /// The position number `index`, which must be in the run.
    fn at(&self, index: usize) -> i64 {
        let distance = self.step.wrapping_mul(index as u64);
        self.first.wrapping_add_unsigned(distance)
    }

    fn last(&self) -> i64 {
        self.at(self.len - 1)
    }

    /// A part of the run.
    fn part(&self, of: Range<usize>) -> Run {
        Run {
            begin: 0,
            first: self.at(of.start),
            step: self.step,
            len: of.len(),
        }
    }
}

impl Positions {
    /// `len` positions, from `first` on, each `step` after the one before it.
    pub fn run(first: i64, step: u64, len: usize) -> Result<Positions, Damage> {
        let mut positions = Positions::default();
        if len > 0 {
            positions.push(Run {
                begin: 0,
                first,
                step,
                len,
            })?;
        }
        Ok(positions)
    }

    /// The positions at the start of `bytes`, and the rest of `bytes`.
    pub fn read(mut bytes: &[u8]) -> Result<(Positions, &[u8]), Damage> {
        let runs = number(&mut bytes)?;
        let mut positions = Positions::default();
        for _ in 0..runs {
            let (first, len) = (number(&mut bytes)?, number(&mut bytes)?);
            let step = if len > 1 { number(&mut bytes)? } else { 0 };
            let first = match positions.runs.last() {
                None => Some((first >> 1).cast_signed() ^ -(first & 1).cast_signed()),
                Some(last) => last.last().checked_add_unsigned(first),
            };
            let (Some(first), Ok(len)) = (first, usize::try_from(len)) else {
                return Err(unsound());
            };
            let begin = positions.len();
            let run = Run {
                begin,
                first,
                step,
                len,
            };
            if len == 0 || begin.checked_add(len).is_none() {
                return Err(unsound());
            }
            positions.push(run)?;
        }
        Ok((positions, bytes))
    }

    /// Appends them in the form that `read` reads.
    pub fn append_to(&self, to: &mut Vec<u8>) {
        append(self.runs.len() as u64, to);
        let mut before: Option<i64> = None;
        for run in &self.runs {
            append(
                match before {
                    None => ((run.first << 1) ^ (run.first >> 63)).cast_unsigned(),
                    Some(before) => run.first.abs_diff(before),
                },
                to,
            );
            append(run.len as u64, to);
            if run.len > 1 {
                append(run.step, to);
            }
            before = Some(run.last());
        }
    }

    pub fn len(&self) -> usize {
        self.runs.last().map_or(0, |run| run.begin + run.len)
    }

    /// The position of element number `index`, which must exist.
    pub fn at(&self, index: usize) -> i64 {
        let behind = self.runs.partition_point(|run| run.begin <= index);
        let run = &self.runs[behind - 1];
        run.at(index - run.begin)
    }

    /// The indices of the elements at which runs begin.
    pub fn begins(&self) -> impl Iterator<Item = usize> + '_ {
        self.runs.iter().map(|run| run.begin)
    }

    /// Appends the positions of this range of `others`.
    pub fn extend(&mut self, others: &Positions, of: Range<usize>) -> Result<(), Damage> {
        let first = others
            .runs
            .partition_point(|run| run.begin + run.len <= of.start);
        for run in &others.runs[first..] {
            let (begin, end) = (of.start.max(run.begin), of.end.min(run.begin + run.len));
            if begin >= end {
                break;
            }
            self.push(run.part(begin - run.begin..end - run.begin))?;
        }
        Ok(())
    }

    /// Appends a run, merging it with the last one if it continues that.
    fn push(&mut self, run: Run) -> Result<(), Damage> {
        let begin = self.len();
        let is_in_order = run.checked(run.len - 1).is_some() && (run.len == 1 || run.step > 0);
        if !is_in_order {
            return Err(unsound());
        }
        if let Some(last) = self.runs.last_mut() {
            if run.first <= last.last() {
                return Err(unsound());
            }
            let step = run.first.abs_diff(last.last());
            let goes_on = |of: &Run| of.len == 1 || of.step == step;
            if goes_on(last) && goes_on(&run) {
                last.step = step;
                last.len += run.len;
                return Ok(());
            }
        }
        self.runs.push(Run { begin, ..run });
        Ok(())
    }
}

/// Removes the number at the start of `bytes`, and returns it.
fn number(bytes: &mut &[u8]) -> Result<u64, Damage> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let Some((byte, rest)) = bytes.split_first() else {
            break;
        };
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        number |= bits << shift;
        if bits << shift >> shift != bits {
            break;
        }
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(unsound())
}

fn append(mut number: u64, to: &mut Vec<u8>) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

#[cold]
fn unsound() -> Damage {
    damage("a leaf whose positions are none, or not in order")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn of(each: &[i64]) -> Positions {
        let mut positions = Positions::default();
        for position in each {
            let one = Positions::run(*position, 0, 1).unwrap();
            positions.extend(&one, 0..1).unwrap();
        }
        positions
    }

    fn all(positions: &Positions) -> Vec<i64> {
        (0..positions.len()).map(|at| positions.at(at)).collect()
    }

    #[test]
    fn a_run_takes_few_bytes_however_long_it_is() {
        for first in [0, -8_000_000, i64::MIN] {
            let mut image = Vec::new();
            let run = Positions::run(first, 8, 1000).unwrap();
            run.append_to(&mut image);
            assert!(
                image.len() <= LONGEST_RUN && (first < -8_000_000 || image.len() <= 1 + RUN + 2)
            );
        }
        assert!(Positions::run(i64::MAX - 1, 1, 2).is_ok());
        assert!(Positions::run(i64::MAX - 1, 1, 3).is_err());
        assert!(Positions::run(7, 0, 2).is_err());
    }

    proptest! {
        #[test]
        fn positions_are_read_as_they_were_written(
            steps in proptest::collection::vec(
                prop_oneof![6 => Just(8u64), 1 => Just(4), 2 => 1..1000u64, 1 => any::<u64>()],
                0..200,
            ),
            first in prop_oneof![any::<i64>(), Just(i64::MIN), -100..100i64],
            cut in any::<(prop::sample::Index, prop::sample::Index)>(),
        ) {
            let mut each = vec![first];
            for step in steps {
                each.extend(each[each.len() - 1].checked_add_unsigned(step.max(1)));
            }
            let positions = of(&each);
            prop_assert_eq!(all(&positions), &each[..]);
            let mut image = Vec::new();
            positions.append_to(&mut image);
            image.extend(b"behind");
            let (read, behind) = Positions::read(&image).unwrap();
            prop_assert_eq!(all(&read), &each[..]);
            prop_assert_eq!(behind, b"behind");
            // A shorter image is an error, or holds other positions.
            for len in 0..image.len() {
                let _ = Positions::read(&image[..len]);
            }
            // A part, and the rest without it.
            let (one, other) = (cut.0.index(each.len() + 1), cut.1.index(each.len() + 1));
            let (begin, end) = (one.min(other), one.max(other));
            let (mut part, mut rest) = (Positions::default(), Positions::default());
            part.extend(&read, begin..end).unwrap();
            prop_assert_eq!(all(&part), &each[begin..end]);
            rest.extend(&read, 0..begin).unwrap();
            rest.extend(&read, end..each.len()).unwrap();
            each.drain(begin..end);
            prop_assert_eq!(all(&rest), each);
            // The first run has nothing before it.
            if end > begin {
                prop_assert!(rest.len() == begin || rest.extend(&part, 0..1).is_err());
            }
        }
    }
}
