//! What a workload should reach, set beside what it reached.

use crate::ledger::Summary;

/// Which side of the target is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The measured value should be the target or more.
    AtLeast,
    /// The measured value should be the target or less.
    AtMost,
}

/// A goal and the rounds it is judged by.
#[derive(Debug, Clone)]
pub struct Goal {
    /// In words.
    pub text: String,
    /// The target.
    pub target: f64,
    /// Which side of it is good.
    pub side: Side,
    /// The rounds; none if what it needs was not measured in this run.
    pub rounds: Vec<f64>,
}

impl Goal {
    /// `measured` should be `target` or more.
    pub fn at_least(text: impl Into<String>, target: f64, rounds: Vec<f64>) -> Self {
        Self {
            text: text.into(),
            target,
            side: Side::AtLeast,
            rounds,
        }
    }

    /// `measured` should be `target` or less.
    pub fn at_most(text: impl Into<String>, target: f64, rounds: Vec<f64>) -> Self {
        let goal = Self::at_least(text, target, rounds);
        Self {
            side: Side::AtMost,
            ..goal
        }
    }

    /// The median of the rounds.
    pub fn measured(&self) -> Option<f64> {
        Summary::of(&self.rounds).map(|summary| summary.median)
    }

    /// Whether the median is on the good side; none if it was not measured.
    pub fn met(&self) -> Option<bool> {
        let measured = self.measured()?;
        Some(match self.side {
            Side::AtLeast => measured >= self.target,
            Side::AtMost => measured <= self.target,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_judged_by_its_median_and_its_side() {
        let more = |rounds: &[f64]| Goal::at_least("more", 2.0, rounds.to_vec());
        assert_eq!(more(&[1.0, 2.0, 9.0]).met(), Some(true));
        assert_eq!(more(&[1.0, 1.9, 9.0]).met(), Some(false));
        assert_eq!(Goal::at_most("less", 3.0, vec![3.1]).met(), Some(false));
        assert_eq!(Goal::at_most("less", 3.0, vec![3.0]).met(), Some(true));
    }

    #[test]
    fn a_goal_that_was_not_measured_is_neither_met_nor_missed() {
        assert_eq!(Goal::at_least("absent", 1.0, Vec::new()).met(), None);
    }
}
