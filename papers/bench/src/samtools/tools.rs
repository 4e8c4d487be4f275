//! The programs that are measured, each run as a process of its own.

use mneme_bench::error::BenchError;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How one program is called in messages.
pub const SAMTOOLS: &str = "samtools";
const GENOMICS: &str = "genomics";

/// Where the programs are.
#[derive(Debug, Clone)]
pub struct Tools {
    /// What samtools calls itself; none if it is missing.
    pub samtools: Option<String>,
    genomics: PathBuf,
}

impl Tools {
    /// Looks for samtools on the PATH, and for our program beside this one.
    ///
    /// # Errors
    /// [`BenchError::Tool`] if ours has not been built, with what builds it.
    pub fn find() -> Result<Self, BenchError> {
        let here = std::env::current_exe().ok();
        let missing = "it is missing: cargo build --release -p mneme-genomics";
        let genomics = here.as_deref().and_then(beside);
        let genomics = genomics.ok_or_else(|| BenchError::tool(GENOMICS, missing))?;
        let version = Command::new(SAMTOOLS).arg("--version").output().ok();
        let samtools = version.and_then(|output| {
            // The names of its authors are not UTF-8.
            let text = String::from_utf8_lossy(&output.stdout);
            Some(text.lines().next()?.to_owned())
        });
        Ok(Self { samtools, genomics })
    }

    /// A run of samtools.
    pub fn samtools<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Run {
        Run::new(SAMTOOLS, Path::new(SAMTOOLS), words)
    }

    /// A run of our program.
    pub fn genomics<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Run {
        Run::new(GENOMICS, &self.genomics, words)
    }
}

/// Our program in the directory of this one, or, in a test, above it.
fn beside(here: &Path) -> Option<PathBuf> {
    let directories = here.ancestors().skip(1).take(2);
    let mut programs = directories.map(|directory| directory.join(GENOMICS));
    programs.find(|program| program.is_file())
}

/// One run of a program. What it prints goes to `/dev/null`, unless it is asked for.
#[derive(Debug)]
pub struct Run {
    tool: &'static str,
    command: Command,
}

/// What a run took.
#[derive(Debug, Clone, Copy)]
pub struct Took {
    /// From before the process is made until it is known to have ended.
    pub whole: Duration,
    /// What our program says of the work alone, between entering the segment and leaving it.
    pub work: Option<Duration>,
}

impl Run {
    fn new<'a>(
        tool: &'static str,
        program: &Path,
        words: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::null());
        Self { tool, command }
    }

    /// Runs and times it.
    ///
    /// # Errors
    /// [`BenchError::Tool`], with what it said.
    pub fn time(mut self) -> Result<Took, BenchError> {
        self.command.stdout(Stdio::null()).stderr(Stdio::piped());
        let begin = Instant::now();
        let output = self.command.output();
        let whole = begin.elapsed();
        let said = self.said(output)?.1;
        Ok(Took {
            whole,
            work: work(&said),
        })
    }

    /// Runs it; what it printed.
    ///
    /// # Errors
    /// [`BenchError::Tool`], with what it said.
    pub fn output(mut self) -> Result<Vec<u8>, BenchError> {
        let output = self.command.output();
        Ok(self.said(output)?.0)
    }

    fn said(
        &self,
        output: std::io::Result<std::process::Output>,
    ) -> Result<(Vec<u8>, String), BenchError> {
        let failed =
            |what: String| BenchError::tool(self.tool, format!("{:?}: {what}", self.command));
        let output = output.map_err(|error| failed(error.to_string()))?;
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if !output.status.success() {
            return Err(failed(format!("{}: {said}", output.status)));
        }
        Ok((output.stdout, said))
    }
}

/// The seconds behind "worked for".
fn work(said: &str) -> Option<Duration> {
    let (_, rest) = said.rsplit_once("worked for ")?;
    let seconds: f64 = rest.split_whitespace().next()?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_is_what_was_said_last() {
        let said = "attached in 0.5 s, worked for 0.25 s";
        assert_eq!(work(said), Some(Duration::from_millis(250)));
        assert_eq!(work(""), None);
    }

    #[test]
    fn a_failure_says_what_the_program_said() {
        let run = Run::new("ls", Path::new("ls"), ["/nowhere at all"]);
        let error = run.time().unwrap_err().to_string();
        assert!(error.contains("/nowhere at all"), "{error}");
    }
}
