//! Positions as Python counts them: negative ones from the end, and the end not included.

use std::ops::Range;

use pyo3::prelude::*;
use pyo3::types::PySlice;

use crate::errors::invalid;

/// A slice of something whose length is not known yet.
#[derive(Clone, Copy)]
pub(crate) struct Slice {
    start: Option<i64>,
    stop: Option<i64>,
    step: i64,
}

impl Slice {
    pub(crate) fn new(start: i64, stop: Option<i64>) -> Self {
        let start = Some(start);
        Self {
            start,
            stop,
            step: 1,
        }
    }

    pub(crate) fn read(slice: &Bound<'_, PySlice>) -> PyResult<Self> {
        let part = |name: &str| slice.getattr(name)?.extract::<Option<i64>>();
        let step = part("step")?.unwrap_or(1);
        if step == 0 {
            return Err(invalid("a slice's step cannot be zero").into());
        }
        Ok(Self {
            start: part("start")?,
            stop: part("stop")?,
            step,
        })
    }

    /// The positions among which those of the slice are: from the first to the last one, or from
    /// the last to the first one if the step is negative.
    pub(crate) fn within(&self, len: u64) -> Range<u64> {
        let len = i64::try_from(len).unwrap_or(i64::MAX);
        // The position before the first one, and the one behind the last one, of either direction.
        let (before, behind) = if self.step > 0 {
            (0, len)
        } else {
            (-1, len - 1)
        };
        let at = |position: i64| {
            let from_front = if position < 0 {
                position.saturating_add(len)
            } else {
                position
            };
            from_front.clamp(before, behind)
        };
        let (start, stop) = (self.start.map(at), self.stop.map(at));
        let (low, high) = if self.step > 0 {
            (start.unwrap_or(before), stop.unwrap_or(behind))
        } else {
            (stop.unwrap_or(before) + 1, start.unwrap_or(behind) + 1)
        };
        // Neither is negative.
        low as u64..high.max(low) as u64
    }

    /// Of what lies [`within`](Self::within), in order, what the slice has, in its order.
    pub(crate) fn pick<T>(&self, mut found: Vec<T>) -> Vec<T> {
        if self.step == 1 {
            return found;
        }
        if self.step < 0 {
            found.reverse();
        }
        let step = usize::try_from(self.step.unsigned_abs()).unwrap_or(usize::MAX);
        found.into_iter().step_by(step).collect()
    }
}
