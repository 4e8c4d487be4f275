//! What a record costs in resident memory, measured in a process that has done nothing else.
//!
//! An allocator hands out again what another system has freed, so within one process only the first
//! system's figure would mean anything.

use super::Boxed;
use super::drive::{Order, Subject};
use crate::error::BenchError;
use crate::machine::resident_bytes;
use crate::options::Footprint;
use crate::processes::Helper;
use crate::systems::{self, Load};

/// Starts a process that loads `system` and tells the bytes a record.
///
/// # Errors
/// [`BenchError::Process`].
pub fn measure_apart(system: &str, load: Load) -> Result<f64, BenchError> {
    let (records, value) = (load.records.to_string(), load.value.to_string());
    Helper::start(&[&"footprint", &system, &records, &value])?.answer()
}

/// Loads a system in this process; the bytes a record.
///
/// # Errors
/// As making and loading the system.
pub fn measure_here(options: &Footprint) -> Result<f64, BenchError> {
    let load = Load {
        records: options.records,
        value: options.value,
    };
    let before = resident_bytes();
    let subject: Box<dyn Subject> = systems::with(&options.system, load, Boxed)?;
    subject
        .load(load, Order::Numbered)
        .map_err(|what| BenchError::wrong(&options.system, "loading", what))?;
    let grown = resident_bytes().saturating_sub(before);
    Ok(grown as f64 / load.records as f64)
}
