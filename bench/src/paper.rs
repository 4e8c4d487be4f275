//! The workloads that answer a paper's figure: another program, which takes this one's place.
//!
//! Below `cargo run` it is built first, as this program is. Otherwise it lies beside this program.

use crate::error::{BenchError, process_failed};
use crate::options::PAPERS;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The program of these workloads.
const PROGRAM: &str = "mneme-paper-bench";

/// Goes on as that program, with all the words of this one. `words` begins with the workload.
///
/// # Errors
/// The workload is unknown, or the program was not built.
pub fn run(words: &[OsString]) -> Result<(), BenchError> {
    let word = words.first().map(|word| word.to_string_lossy());
    let word = word.unwrap_or_default();
    if !PAPERS.contains(&&*word) {
        let what = format!("there is no workload `{word}`; `--help` lists them");
        return Err(BenchError::Options(what));
    }
    let here = std::env::current_exe().map_err(process_failed)?;
    let mut command = match of_cargo() {
        Some(command) => command,
        None => {
            let program = here.with_file_name(PROGRAM);
            if !program.is_file() {
                let build = "it is missing: cargo build --release -p mneme-paper-bench";
                return Err(BenchError::tool(PROGRAM, build));
            }
            Command::new(program)
        }
    };
    Err(process_failed(
        command.args(std::env::args_os().skip(1)).exec(),
    ))
}

/// `cargo run` of that program in this one's profile, if this one was started so.
fn of_cargo() -> Option<Command> {
    let mut command = Command::new(std::env::var_os("CARGO")?);
    let home = std::env::var_os("CARGO_MANIFEST_DIR")?;
    let manifest = Path::new(&home).join("../papers/bench/Cargo.toml");
    command
        .args(["run", "--quiet", "--manifest-path"])
        .arg(manifest);
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    command.arg("--");
    Some(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_workload_is_refused_with_its_name() {
        let error = run(&["gupz".into()]).unwrap_err();
        assert!(error.to_string().contains("`gupz`"), "{error}");
    }
}
