//! Where a store lies: in memory of this process, or in a segment. Nothing else in this program
//! knows.
//!
//! A segment is loaded in one section and then visited: questions share it, changes have it alone.
//! A file is opened before a segment is touched; what cannot be loaded leaves no segment behind,
//! and a process that dies while it loads leaves one that says so.

use crate::failure::{Failure, is_out_of_memory};
use allocator_api2::alloc::Global;
use clap::Args;
use mneme_genomics::load::{self, Summary};
use mneme_genomics::{Alignments, LoadError, Store};
use mneme_space::{
    Attachment, Backing, CreateError, EnterError, Heap, HeapError, OpenError, Registry,
    RegistryError, RemoveError, Section, Segment,
};
use mneme_sys::{Access, Clock, SystemClock};
use std::error::Error;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Greatest size of a segment, unless said otherwise or the file is large: addresses, not memory.
const MAX_SIZE: u64 = 64 << 30;

/// How many times as large as its file a store is at most. Sequencers' qualities compress to a
/// quarter.
const OVER_FILE: u64 = 16;

/// Which segment, and how it is visited.
#[derive(Debug, Args)]
#[command(next_help_heading = "Segment")]
pub struct Visit {
    /// The segment that holds the alignments
    #[arg(long, global = true, value_name = "NAME")]
    segment: Option<String>,
    /// The registry of segments. By default $MNEME_DIR, else /dev/shm/mneme-UID-registry
    #[arg(long, global = true, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Wait so many seconds for others that work on the segment
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 60.0, value_parser = seconds)]
    wait: f64,
    /// Say on the standard error how long it took to attach the segment and to do the work
    #[arg(long, global = true)]
    times: bool,
}

/// What a new segment is to be.
#[derive(Debug, Args)]
#[command(next_help_heading = "New segment")]
pub struct New {
    /// Load anew if there is a segment of that name, whatever it holds
    #[arg(long, requires = "segment")]
    replace: bool,
    /// Bytes that the segment may grow to, such as 200G. Takes addresses only; by default 64 GiB,
    /// or 16 times the file
    #[arg(long, requires = "segment", value_name = "SIZE", value_parser = size)]
    max_size: Option<u64>,
    /// Permissions of the segment, as for a file
    #[arg(long, requires = "segment", value_name = "OCTAL", default_value = "600", value_parser = mode)]
    mode: u32,
    /// Keep the segment in a file in this directory instead of in shared memory
    #[arg(long, requires = "segment", value_name = "DIR")]
    directory: Option<PathBuf>,
}

/// Loads a file into memory of this process.
pub fn private(file: &Path) -> Result<(Store<Global>, Summary), Failure> {
    let loaded = open(file).and_then(|input| load::from_reader(input, Global));
    loaded.map_err(|error| Failure::Asked(error.into()))
}

fn open(file: &Path) -> Result<Box<dyn Read>, LoadError> {
    if file.as_os_str() == "-" {
        return Ok(Box::new(io::stdin().lock()));
    }
    Ok(Box::new(load::open(file)?))
}

impl Visit {
    /// Whether no segment is named.
    pub fn is_nowhere(&self) -> bool {
        self.segment.is_none()
    }

    /// Loads a file into a new segment.
    pub fn load(&self, new: &New, file: &Path) -> Result<Summary, Failure> {
        let input = open(file).map_err(|error| Failure::Asked(error.into()))?;
        let registry = self.registry()?;
        let name = self.name();
        if new.replace {
            match registry.remove_segment(name) {
                Ok(()) | Err(RemoveError::NotFound { .. }) => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
        let backing = match &new.directory {
            Some(directory) => Backing::File {
                directory: directory.clone(),
            },
            None => Backing::Shared,
        };
        let segment = registry
            .segment(name)
            .max_size(new.max_size(file))
            .mode(new.mode)
            .backing(backing)
            .create();
        let segment = segment.map_err(|error| match error {
            error @ CreateError::Exists { .. } => self.advised(error, "--replace loads anew"),
            error => self.failed(error),
        })?;
        let loaded = self.fill(&segment, input);
        // What was not loaded whole is of no use to anybody; what died here is poisoned.
        if loaded.is_err() {
            let _ = segment.remove();
        }
        loaded
    }

    fn fill(&self, segment: &Segment, input: impl Read) -> Result<Summary, Failure> {
        let name = self.name();
        let work = |here: &mut Section<'_>| -> Result<Summary, Box<dyn Error>> {
            let (store, summary) = load::from_reader(input, here.heap(name)?)?;
            here.create_root::<Alignments>(name, |_| store)?;
            Ok(summary)
        };
        let at = self.attach(segment, Access::ReadWrite)?;
        let done = at.enter(work).map_err(|error| self.not_entered(error))?;
        done.map_err(|error| self.refused(segment, error))
    }

    /// Asks what lies in the segment, beside other readers.
    pub fn read(
        &self,
        work: impl for<'s> FnOnce(&Store<Heap<'s>>) -> Result<(), Box<dyn Error>>,
    ) -> Result<(), Failure> {
        self.visit(Access::ReadOnly, |here, name| {
            Ok(work(here.root::<Alignments>(name)?))
        })
    }

    /// Changes what lies in the segment, alone with it.
    pub fn change(
        &self,
        work: impl for<'s> FnOnce(&mut Store<Heap<'s>>) -> Result<(), Box<dyn Error>>,
    ) -> Result<(), Failure> {
        self.visit(Access::ReadWrite, |here, name| {
            Ok(work(here.root_mut::<Alignments>(name)?))
        })
    }

    fn visit(
        &self,
        access: Access,
        work: impl for<'s> FnOnce(
            &mut Section<'s>,
            &str,
        ) -> Result<Result<(), Box<dyn Error>>, HeapError>,
    ) -> Result<(), Failure> {
        let seconds = |from: u64, to: u64| (to - from) as f64 / 1e9;
        let begin = SystemClock.now_ns();
        let segment = Segment::open(&self.registry()?, self.name());
        let segment = segment.map_err(|error| match error {
            error @ OpenError::NotFound { .. } => {
                self.advised(error, "`genomics load FILE --segment NAME` makes one")
            }
            error => self.failed(error),
        })?;
        let at = self.attach(&segment, access)?;
        let attached = SystemClock.now_ns();
        let done = at.enter(|here| work(here, self.name()));
        if self.times {
            eprintln!(
                "attached in {:.6} s, worked for {:.6} s",
                seconds(begin, attached),
                seconds(attached, SystemClock.now_ns())
            );
        }
        done.map_err(|error| self.not_entered(error))?
            .map_err(|error| self.foreign(error))?
            .map_err(|error| self.refused(&segment, error))
    }

    fn attach(&self, segment: &Segment, access: Access) -> Result<Attachment, Failure> {
        let at = Attachment::new([(segment, access)]).map_err(|error| self.failed(error))?;
        Ok(at.timeout(Duration::from_secs_f64(self.wait)))
    }

    fn registry(&self) -> Result<Registry, Failure> {
        let opened: Result<_, RegistryError> = match &self.dir {
            Some(dir) => Registry::open(dir),
            None => Registry::open_default(),
        };
        opened.map_err(|error| self.failed(error))
    }

    fn name(&self) -> &str {
        self.segment.as_deref().unwrap_or_default()
    }

    fn failed(&self, error: impl Into<Box<dyn Error>>) -> Failure {
        self.advised(error, "")
    }

    fn advised(&self, error: impl Into<Box<dyn Error>>, advice: &'static str) -> Failure {
        Failure::Segment {
            name: self.name().to_owned(),
            source: error.into(),
            advice,
        }
    }

    fn not_entered(&self, error: EnterError) -> Failure {
        match error {
            EnterError::Poisoned { segment } => Failure::Poisoned { name: segment },
            error => self.failed(error),
        }
    }

    /// There is no store of this program's in the segment.
    fn foreign(&self, error: HeapError) -> Failure {
        let advice = match error {
            HeapError::NoRoot { .. } | HeapError::Layout { .. } => {
                "if nobody needs what it holds, load with --replace"
            }
            _ => "",
        };
        self.advised(error, advice)
    }

    /// The segment was had, and the work failed.
    fn refused(&self, segment: &Segment, error: Box<dyn Error>) -> Failure {
        if !is_out_of_memory(&*error) {
            return Failure::Asked(error);
        }
        let info = segment.info();
        Failure::Full {
            name: self.name().to_owned(),
            grown: info.is_ok_and(|info| info.size >= info.max_size),
        }
    }
}

impl New {
    fn max_size(&self, file: &Path) -> usize {
        let estimate = || {
            let size = std::fs::metadata(file).map_or(0, |found| found.len());
            size.saturating_mul(OVER_FILE).max(MAX_SIZE)
        };
        usize::try_from(self.max_size.unwrap_or_else(estimate)).unwrap_or(usize::MAX)
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|s| (0.0..=1e9).contains(s));
    seconds.ok_or_else(|| "seconds are a number such as 0.5 or 60".to_owned())
}

/// A number of bytes, with a unit of 1024s if there is one.
fn size(text: &str) -> Result<u64, String> {
    let unit = text
        .trim_end_matches(['B', 'b'])
        .trim_end_matches(['i', 'I']);
    let digits = unit.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &*unit[digits.len()..].to_ascii_lowercase() {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err("a size is a number of bytes, or one with K, M, G or T".to_owned()),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| "a size is a whole number".to_owned())?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| "that is more than 64 bits can count".to_owned())
}

fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "permissions are three octal digits, such as 640".to_owned())
}
