//! Residents: processes that live in a space and answer calls, for as long as a measurement needs
//! them.

use super::gups::windows::{Words, apply_encoded};
use super::switch::Bytes;
use crate::error::BenchError;
use crate::options::Reside;
use crate::scratch::space;
use mneme_space::{CallError, Functions, Registry, Section, Space};
use std::path::Path;
use std::process::{Child, Command, Stdio};
#[cfg(test)]
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
#[cfg(test)]
use std::sync::atomic::Ordering;
#[cfg(test)]
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a caller waits for an answer, and for a resident to be there.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// Applies updates to the words of the space's segment.
pub const UPDATE: &str = "update";
/// Answers with the first bytes of the space's segment, as many as the request says.
pub const FIRST: &str = "first";

fn functions() -> Functions {
    let update = |here: &mut Section<'_>, request: &[u8], _reply: &mut Vec<u8>| {
        let name = only(here);
        let words = here.root_mut::<Words>(&name);
        // What is refused has no answer here: the measured words would be wrong, and are checked.
        if let Ok(words) = words {
            apply_encoded(words, request);
        }
    };
    let first = |here: &mut Section<'_>, request: &[u8], reply: &mut Vec<u8>| {
        let name = only(here);
        let wanted = request
            .first_chunk()
            .map(|wanted| u64::from_le_bytes(*wanted));
        if let (Some(wanted), Ok(bytes)) = (wanted, here.root::<Bytes>(&name)) {
            reply.extend_from_slice(&bytes[..wanted as usize]);
        }
    };
    Functions::new().with(UPDATE, update).reading(FIRST, first)
}

/// The one segment of the space.
fn only(here: &Section<'_>) -> String {
    here.segments()
        .next()
        .map(|(name, _)| name.to_owned())
        .unwrap_or_default()
}

fn live(registry: &Path, name: &str, stop: &AtomicBool) -> Result<(), BenchError> {
    let registry = Registry::open(registry).map_err(space)?;
    let lives_in = Space::open(&registry, name).map_err(space)?;
    lives_in
        .reside(functions())
        .map_err(space)?
        .serve(stop)
        .map_err(space)
}

/// Lives in a space until it is ended.
///
/// # Errors
/// The space cannot be attached.
pub fn live_here(options: &Reside) -> Result<(), BenchError> {
    live(&options.registry, &options.space, &AtomicBool::new(false))
}

/// A process that answers calls into a space; gone when this is dropped.
pub enum Resident {
    /// A process of its own.
    Process(Child),
    /// A thread of this one, for tests: what it runs is the same.
    #[cfg(test)]
    Thread(Arc<AtomicBool>, Option<JoinHandle<()>>),
}

impl Resident {
    /// Starts a process that lives in the space, and waits until it answers.
    ///
    /// # Errors
    /// It cannot be started, or does not answer.
    pub fn start(lives_in: &Space) -> Result<Self, BenchError> {
        let failed = |why: std::io::Error| BenchError::Space(format!("a resident: {why}"));
        let program = std::env::current_exe().map_err(failed)?;
        let child = Command::new(program)
            .arg("reside")
            .arg(lives_in.registry().root())
            .arg(lives_in.name().as_str())
            .stdin(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let resident = Self::Process(child);
        until_answered(lives_in)?;
        Ok(resident)
    }

    /// Starts a thread that does the same.
    ///
    /// # Errors
    /// It does not answer.
    #[cfg(test)]
    pub fn start_here(lives_in: &Space) -> Result<Self, BenchError> {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (stop, lives_in) = (Arc::clone(&stop), lives_in.clone());
            move || {
                live(lives_in.registry().root(), lives_in.name().as_str(), &stop).unwrap();
            }
        });
        until_answered(lives_in)?;
        Ok(Self::Thread(stop, Some(thread)))
    }
}

/// Nobody is there before the resident has attached.
fn until_answered(lives_in: &Space) -> Result<(), BenchError> {
    let began = Instant::now();
    loop {
        match lives_in.call(FIRST, b"", TIMEOUT) {
            Ok(_) => return Ok(()),
            Err(CallError::NoResident) if began.elapsed() < TIMEOUT => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(refused) => return Err(space(refused)),
        }
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        match self {
            Self::Process(child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
            #[cfg(test)]
            Self::Thread(stop, thread) => {
                stop.store(true, Ordering::Relaxed);
                if let Some(thread) = thread.take() {
                    let _ = thread.join();
                }
            }
        }
    }
}
