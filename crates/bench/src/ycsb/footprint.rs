//! What a record costs in resident memory, measured in a process that has done nothing else.
//!
//! An allocator hands out again what another system has freed, so within one process only the first
//! system's figure would mean anything.

use super::Boxed;
use super::drive::{Order, Subject};
use crate::error::BenchError;
use crate::machine::resident_bytes;
use crate::options::Footprint;
use crate::systems::{self, Load};
use std::process::Command;

/// Starts a process that loads `system` and tells the bytes a record.
///
/// # Errors
/// [`BenchError::Footprint`].
pub fn measure_apart(system: &str, load: Load) -> Result<f64, BenchError> {
    let program = std::env::current_exe().map_err(|error| BenchError::Footprint {
        system: system.to_owned(),
        what: error.to_string(),
    })?;
    let mut child = Command::new(program);
    child
        .args(["footprint", "--system", system])
        .args(["--records", &load.records.to_string()])
        .args(["--value", &load.value.to_string()]);
    said_by(&mut child, system, |last| last.trim().parse().ok())
}

/// What a child that measures `system` says in its last line, as `read` understands it.
///
/// # Errors
/// [`BenchError::Footprint`].
pub fn said_by<T>(
    child: &mut Command,
    system: &str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<T, BenchError> {
    let failed = |what: String| BenchError::Footprint {
        system: system.to_owned(),
        what,
    };
    let output = child.output().map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(failed(why.trim().to_owned()));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    read(last).ok_or_else(|| failed(format!("it said `{last}`")))
}

/// Loads a system in this process and prints the bytes a record.
///
/// # Errors
/// As making and loading the system.
pub fn measure_here(options: &Footprint) -> Result<(), BenchError> {
    let load = Load {
        records: options.records,
        value: options.value,
    };
    let before = resident_bytes();
    let subject: Box<dyn Subject> = systems::with(&options.system, load, Boxed)?;
    subject
        .load(load, Order::Numbered)
        .map_err(|what| BenchError::Footprint {
            system: options.system.clone(),
            what,
        })?;
    let grown = resident_bytes().saturating_sub(before);
    println!("{}", grown as f64 / load.records as f64);
    Ok(())
}
