//! Logs which local programs attach the segment: **a line for each that is still there at the next
//! look, and one with the number of those that have left again**.
//!
//! Process ids come from the store's control region, which every program that may read the store
//! can write: they are what the programs say of themselves.

use std::os::unix::fs::MetadataExt as _;

use mneme_log::{Life, LogStore, Process};

/// What was logged.
#[derive(Debug, Default)]
pub(crate) struct AttachmentLog {
    /// The number of attachments at the last look; `None` before the first one.
    arrivals: Option<u64>,
    /// The processes that were there then, by their ids and the times at which they attached.
    known: Vec<(u32, u64)>,
}

/// What is to be logged after a look.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Attachments {
    /// The processes that have attached since, and are there.
    pub new: Vec<u32>,
    /// How many others have attached since, and left again.
    pub left: u64,
}

impl AttachmentLog {
    /// Looks which local programs have attached the store since the last look, and logs them. Costs
    /// a load for each possible process unless some have.
    pub fn look(&mut self, store: &LogStore) {
        // Read first: a program that attaches meanwhile is found by the next look as well.
        let arrivals = store.arrivals();
        if self.arrivals == Some(arrivals) {
            return;
        }
        self.note(arrivals, &store.processes()).log();
    }

    /// Records what a look has found.
    fn note(&mut self, arrivals: u64, processes: &[Process]) -> Attachments {
        let is_other = |process: &&Process| !process.is_asker && process.life == Life::Alive;
        let others = processes.iter().filter(is_other);
        let others: Vec<_> = others.map(|one| (one.pid, one.attached_ms)).collect();
        let new = others.iter().filter(|one| !self.known.contains(one));
        let new: Vec<u32> = new.map(|(pid, _)| *pid).collect();
        let before = self.arrivals.replace(arrivals);
        let came = before.map_or(0, |before| arrivals.wrapping_sub(before));
        // A program that attached after `arrivals` was read is among `new` already.
        let left = came.saturating_sub(new.len() as u64);
        self.known = others;
        Attachments { new, left }
    }
}

impl Attachments {
    fn log(&self) {
        for pid in &self.new {
            match std::fs::metadata(format!("/proc/{pid}")) {
                Ok(process) => tracing::info!(
                    pid,
                    uid = process.uid(),
                    "a local program has attached the segment"
                ),
                Err(_) => tracing::info!(pid, "a local program has attached the segment"),
            }
        }
        if self.left > 0 {
            let programs = self.left;
            tracing::info!(
                programs,
                "local programs attached the segment and have left"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, attached_ms: u64) -> Process {
        Process {
            pid,
            attached_ms,
            life: Life::Alive,
            state: None,
            is_asker: pid == 1,
            threads: 1,
            oldest_pin: None,
            work: Vec::new(),
            maintains: false,
            serves: pid == 1,
        }
    }

    /// A process that reuses another's id is new, and a dead one is not there.
    #[test]
    fn each_attachment_is_noted_once() {
        let mut log = AttachmentLog::default();
        let server = process(1, 5);
        let mut note = |arrivals, others: &[Process]| {
            let all: Vec<Process> = [std::slice::from_ref(&server), others].concat();
            let found = log.note(arrivals, &all);
            (found.new, found.left)
        };
        assert_eq!(note(7, &[process(2, 3)]), (vec![2], 0));
        assert_eq!(note(8, &[process(2, 3), process(3, 9)]), (vec![3], 0));
        assert_eq!(note(11, &[process(3, 9)]), (vec![], 3));
        assert_eq!(note(12, &[process(3, 10)]), (vec![3], 0));
        let dead = Process {
            life: Life::Dead,
            ..process(4, 11)
        };
        assert_eq!(note(13, &[dead, process(3, 10)]), (vec![], 1));
    }
}
