//! What is found under a name.

use std::time::{Duration, Instant};

use mneme_log::{Database, Expiry, LogStore, ReadError, WriteError};

use super::collected;
use super::expected::{GONE, State};
use super::names::{COLLECTED, SHARED, canonical, database, key, value_kind};
use super::value::{Shared, Stamp};

/// On a busy machine a thread may be stopped, or off its CPU, for a second or two; not for a
/// minute.
pub const BUSY: Duration = Duration::from_secs(60);

/// Whether the next attempt may succeed: a live thread blocks this one.
pub trait MayPass {
    fn may_pass(&self) -> bool;
}

impl MayPass for ReadError {
    fn may_pass(&self) -> bool {
        matches!(self, ReadError::Stalled(_) | ReadError::Reap(_))
    }
}

impl MayPass for WriteError {
    fn may_pass(&self) -> bool {
        matches!(self, WriteError::Stalled(_) | WriteError::Reap(_))
    }
}

/// Repeats `work` until it succeeds, although others block it for a while.
pub fn patiently<T, E: MayPass + std::fmt::Display>(
    mut had: impl FnMut() -> Result<T, E>,
) -> Result<T, String> {
    let began = Instant::now();
    loop {
        match had() {
            Ok(had) => return Ok(had),
            Err(error) if error.may_pass() && began.elapsed() < BUSY => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Repeats an opening until it succeeds. One attempt waits at most two seconds for others that open
/// or leave.
pub fn opened<T, E: std::fmt::Display>(mut open: impl FnMut() -> Result<T, E>) -> T {
    let began = Instant::now();
    loop {
        match open() {
            Ok(opened) => return opened,
            Err(error) => {
                let passes = error.to_string().contains("is its holder stopped?");
                assert!(passes && began.elapsed() < BUSY, "{error}");
            }
        }
    }
}

/// The content of a value under a name, if it is allowed there at all.
pub fn read(lane: usize, name: usize, bytes: &[u8]) -> Result<State, String> {
    let until = 0;
    if SHARED.contains(&name) {
        let seq = Shared::of(bytes, name)?.0[lane];
        // An element that its lane has never touched.
        let len = if seq == 0 { 0 } else { bytes.len() };
        return Ok(State { seq, len, until });
    }
    let stamp = Stamp::of(bytes)?;
    if (stamp.lane, stamp.name) != (lane, canonical(name)) {
        return Err(format!(
            "lane {lane}, name {name} holds another's {stamp:?}"
        ));
    }
    let (seq, len) = (stamp.seq, stamp.len);
    Ok(State { seq, len, until })
}

/// The database of a name.
pub fn place<'s>(store: &'s LogStore, lane: usize, name: usize) -> Database<'s> {
    store.database(database(lane, name)).unwrap()
}

/// The state of a name, with its expiry. For a name that no thread changes meanwhile.
pub fn look(store: &LogStore, lane: usize, name: usize) -> Result<Option<State>, String> {
    if COLLECTED.contains(&name) {
        return collected::look(store, lane, name);
    }
    let (place, key) = (place(store, lane, name), key(lane, name));
    let got = || place.get_kind(&key, value_kind(name));
    let value = patiently(|| got().map(|value| value.map(|v| v.to_vec())))?;
    let Some(value) = value else { return Ok(None) };
    let mut state = read(lane, name, &value)?;
    if !state.is_there() {
        return Ok(None);
    }
    state.until = match patiently(|| place.expiry(&key))? {
        Some(Expiry::Never) => 0,
        Some(Expiry::At(at)) => at,
        None => GONE,
    };
    Ok(Some(state))
}
