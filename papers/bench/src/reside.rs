//! Residents: processes that live in a space and answer calls, for as long as a measurement needs
//! them.

use super::gups::windows::{Words, apply_encoded};
use super::switch::Bytes;
use crate::options::Reside;
use mneme_bench::error::BenchError;
use mneme_bench::processes::{Helper, until};
use mneme_bench::scratch::space;
use mneme_space::{Functions, Registry, Section, Space};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

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

/// Lives in a space until it is ended.
///
/// # Errors
/// The space cannot be attached.
pub fn live_here(options: &Reside) -> Result<(), BenchError> {
    let registry = Registry::open(&options.registry).map_err(space)?;
    let lives_in = Space::open(&registry, &options.space).map_err(space)?;
    let resident = lives_in.reside(functions()).map_err(space)?;
    resident.serve(&AtomicBool::new(false)).map_err(space)
}

/// Starts a process that lives in the space, and waits until it answers.
///
/// # Errors
/// It cannot be started, or does not answer.
pub fn start(lives_in: &Space) -> Result<Helper, BenchError> {
    let root = lives_in.registry().root();
    let resident = Helper::start(&[&"reside", &root, &lives_in.name().as_str()])?;
    // Until it is there.
    until(TIMEOUT, || {
        lives_in.call(FIRST, b"", TIMEOUT).map_err(space)
    })?;
    Ok(resident)
}
