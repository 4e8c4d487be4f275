//! `genomics`: the questions of samtools, asked of alignments in memory.

use allocator_api2::alloc::{Allocator, Global};
use clap::{Parser, Subcommand};
use mneme_genomics::load::{self, Summary};
use mneme_genomics::{Order, Store};
use std::error::Error;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Sequence alignments in memory: load them once, then ask.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Main,
}

#[derive(Debug, Subcommand)]
enum Main {
    /// Load a SAM or BAM file and run commands on it, for example
    /// `genomics load reads.bam flagstat then sort then index then view chr1:1-1000`
    Load {
        /// SAM, SAM compressed by bgzip, or BAM; `-` for the standard input
        file: PathBuf,
        /// Commands with `then` between them; `genomics load FILE help` tells which there are
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        commands: Vec<String>,
    },
}

/// A command on a loaded store.
#[derive(Debug, Parser)]
#[command(name = "genomics load FILE", no_binary_name = true)]
enum Command {
    /// Count alignments by their flags
    Flagstat,
    /// Bring the alignments in order of coordinates, or of names
    Sort {
        /// By name
        #[arg(short)]
        name: bool,
        /// Threads
        #[arg(short = '@', long, default_value_t = 1)]
        threads: usize,
    },
    /// Make what `view REGION` needs; the order must be that of coordinates
    Index,
    /// Write alignments as SAM: all, or those that overlap regions
    #[command(disable_help_flag = true)]
    View {
        /// The header, too
        #[arg(short = 'h', long)]
        header: bool,
        /// Into this file instead of the standard output
        #[arg(short)]
        output: Option<PathBuf>,
        /// NAME, NAME:FROM-TO, `*` for what is placed nowhere, `.` for everything
        regions: Vec<String>,
    },
}

fn main() -> ExitCode {
    let Main::Load { file, commands } = Arguments::parse().command;
    let commands = commands
        .split(|word| word == "then")
        .map(Command::parse_from);
    let commands: Vec<Command> = commands.collect();
    match with_store(&file, |store| run(store, &commands)) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads the output has had enough.
        Err(error) if is_broken_pipe(&*error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("genomics: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Gives `work` the store of a file.
///
/// **This is where a segment comes in.** Here the store lies on the heap of this process and is loaded anew each time.
/// In a segment it is the root: `work` runs between entering and leaving, with the segment's allocator for `A`, and what
/// it loaded, sorted and indexed is there for the next process. Nothing but this function knows where a store lies.
fn with_store<R>(
    file: &Path,
    work: impl FnOnce(&mut Store<Global>) -> Result<R, Box<dyn Error>>,
) -> Result<R, Box<dyn Error>> {
    let (mut store, summary) = if file.as_os_str() == "-" {
        load::from_reader(io::stdin().lock(), Global)?
    } else {
        load::from_path(file, Global)?
    };
    warn(&summary);
    work(&mut store)
}

fn warn(summary: &Summary) {
    if !summary.ends_well {
        eprintln!("genomics: the file lacks its end mark and is perhaps truncated");
    }
    if summary.repaired > 0 {
        let repaired = summary.repaired;
        eprintln!("genomics: {repaired} alignments without a known place were made unmapped");
    }
}

/// Runs commands on a store, wherever it lies.
fn run<A: Allocator + Copy>(
    store: &mut Store<A>,
    commands: &[Command],
) -> Result<(), Box<dyn Error>> {
    for command in commands {
        match command {
            Command::Flagstat => write!(io::stdout(), "{}", store.flagstat())?,
            Command::Sort { name, threads } => {
                let order = if *name {
                    Order::Name
                } else {
                    Order::Coordinate
                };
                store.sort(order, *threads)?;
            }
            Command::Index => store.index()?,
            Command::View {
                header,
                output,
                regions,
            } => {
                let to: Box<dyn Write> = match output {
                    Some(path) => Box::new(File::create(path)?),
                    None => Box::new(io::stdout().lock()),
                };
                view(store, *header, regions, to)?;
            }
        }
    }
    Ok(())
}

/// Writes nothing unless every region is known and can be viewed.
fn view<A: Allocator + Copy>(
    store: &Store<A>,
    header: bool,
    regions: &[String],
    to: Box<dyn Write>,
) -> Result<(), Box<dyn Error>> {
    let mut to = BufWriter::new(to);
    let regions: Vec<_> = match regions {
        [] => vec![store.region(".")?],
        regions => regions
            .iter()
            .map(|text| store.region(text))
            .collect::<Result<_, _>>()?,
    };
    let found = regions.iter().map(|region| store.view(region));
    let found: Vec<_> = found.collect::<Result<_, _>>()?;
    if header {
        to.write_all(store.header().text())?;
    }
    for alignments in found {
        store.write(alignments, &mut to)?;
    }
    Ok(to.flush()?)
}

fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
