//! What a pin costs: every read pays one, every batch of reads pays one.

use crate::error::{BenchError, failed};
use crate::ledger::Metric;
use crate::rounds::{Job, Span, rate_of};
use mneme_sync::{ControlOptions, Participants};

/// Its system in reports.
pub const SYSTEM: &str = "mneme-sync";
/// Its case in reports.
pub const CASE: &str = "pin and unpin";

/// Pins between two looks at the clock.
const CHUNK: u32 = 4096;

/// A job that pins and unpins on one thread: nanoseconds for both.
///
/// # Errors
/// [`BenchError::Store`].
pub fn job(span: Span) -> Result<Job<'static>, BenchError> {
    let participants = Participants::private(ControlOptions::new([0; 16]));
    let participants = participants.map_err(failed)?;
    Ok(Job::new(SYSTEM, CASE, Metric::Latency, move |_| {
        let pin = || u64::from(std::hint::black_box(participants.pin()).is_ok());
        let pins = rate_of(1, span, CHUNK, |_| pin);
        match pins {
            pins if pins > 0.0 => Ok(1e9 / pins),
            _ => Err(BenchError::Store("no pin could be had".to_owned())),
        }
    }))
}
