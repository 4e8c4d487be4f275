//! `genomics`: the questions of samtools, asked of alignments in memory.
//!
//! Where they lie is [`place`]'s business alone: in a segment, which any process visits, or in this
//! process.

mod failure;
mod place;

use allocator_api2::alloc::Allocator;
use clap::error::ErrorKind;
use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand};
use failure::Failure;
use mneme_genomics::load::Summary;
use mneme_genomics::{Order, Store, synthetic};
use place::{New, Visit};
use std::error::Error;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Sequence alignments in memory: load them once, then ask.
///
/// Exit status: 0; 1 for what cannot be read or answered; 2 for a wrong command line; 3 if the
/// segment cannot be had; 4 if it is poisoned and must be loaded anew.
#[derive(Debug, Parser)]
#[command(name = "genomics", version, about)]
struct Arguments {
    #[command(flatten)]
    visit: Visit,
    #[command(subcommand)]
    command: Main,
}

#[derive(Debug, Subcommand)]
enum Main {
    /// Load a SAM or BAM file, into a segment or for the commands that follow, for example
    /// `genomics load reads.bam flagstat then sort then index then view chr1:1-1000`
    Load {
        /// SAM, SAM compressed by bgzip, or BAM; `-` for the standard input
        file: PathBuf,
        #[command(flatten)]
        new: New,
        /// Commands with `then` between them; `genomics load FILE help` tells which there are
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        commands: Vec<String>,
    },
    /// Write synthetic alignments as SAM, made with wgsim: something large to try this with
    Synthetic {
        /// Into this file; others beside it are there meanwhile
        file: PathBuf,
        /// Pairs of reads, of two alignments each, some 460 bytes of SAM
        #[arg(long, default_value_t = 100_000)]
        pairs: usize,
    },
    #[command(flatten)]
    Command(Command),
}

/// A command behind `load FILE`.
#[derive(Debug, Parser)]
#[command(name = "genomics load FILE", no_binary_name = true)]
struct Following {
    #[command(subcommand)]
    command: Command,
}

/// A command on loaded alignments.
#[derive(Debug, Subcommand)]
enum Command {
    /// Count alignments by their flags
    Flagstat,
    /// Bring the alignments in order of coordinates, or of names
    Sort(Sort),
    /// Make what `view REGION` needs; the order must be that of coordinates
    Index,
    /// Write alignments as SAM: all, or those that overlap regions
    #[command(disable_help_flag = true)]
    View(View),
}

#[derive(Debug, Args)]
struct Sort {
    /// By name
    #[arg(short, conflicts_with = "as_read")]
    name: bool,
    /// As in the file
    #[arg(long)]
    as_read: bool,
    /// Threads
    #[arg(short = '@', long, default_value_t = 1)]
    threads: usize,
}

#[derive(Debug, Args)]
struct View {
    /// The header, too
    #[arg(short = 'h', long)]
    header: bool,
    /// Into this file instead of the standard output
    #[arg(short)]
    output: Option<PathBuf>,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
    /// NAME, NAME:FROM-TO, `*` for what is placed nowhere, `.` for everything
    regions: Vec<String>,
}

fn main() -> ExitCode {
    let Arguments { visit, command } = Arguments::parse();
    let done = match command {
        Main::Load {
            file,
            new,
            commands,
        } => {
            let commands = commands
                .split(|word| word == "then")
                .filter(|words| !words.is_empty())
                .map(|words| Following::parse_from(words).command);
            let commands: Vec<Command> = commands.collect();
            if visit.is_nowhere() {
                in_private(&file, &commands)
            } else {
                in_new_segment(&visit, &new, &file, &commands)
            }
        }
        Main::Synthetic { file, pairs } => synthesise(&file, pairs).map_err(Failure::Asked),
        Main::Command(_) if visit.is_nowhere() => {
            let what = "`--segment NAME` is missing; or `genomics load FILE` and the command";
            Arguments::command()
                .error(ErrorKind::MissingRequiredArgument, what)
                .exit()
        }
        Main::Command(command) => in_segment(&visit, &command),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the output has closed it.
        Err(failure) if failure.is_broken_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("genomics: {failure}");
            failure.status()
        }
    }
}

/// Loads a file into this process and runs commands on it.
fn in_private(file: &Path, commands: &[Command]) -> Result<(), Failure> {
    let (mut store, summary) = place::private(file)?;
    warn(&summary);
    for command in commands {
        match command {
            Command::Flagstat | Command::View(_) => ask(&store, command),
            Command::Sort(_) | Command::Index => change(&mut store, command),
        }
        .map_err(Failure::Asked)?;
    }
    Ok(())
}

/// Loads a file into a segment and runs commands on it.
fn in_new_segment(
    visit: &Visit,
    new: &New,
    file: &Path,
    commands: &[Command],
) -> Result<(), Failure> {
    warn(&visit.load(new, file)?);
    commands
        .iter()
        .try_for_each(|command| in_segment(visit, command))
}

/// Runs a command on what lies in a segment: beside other readers, or alone where it changes
/// something.
fn in_segment(visit: &Visit, command: &Command) -> Result<(), Failure> {
    match command {
        Command::Flagstat | Command::View(_) => visit.read(|store| ask(store, command)),
        Command::Sort(_) | Command::Index => visit.change(|store| change(store, command)),
    }
}

fn synthesise(file: &Path, pairs: usize) -> Result<(), Box<dyn Error>> {
    let beside = match file.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let mut to = BufWriter::new(File::create(file)?);
    synthetic::write(&mut to, pairs, beside)?;
    Ok(to.flush()?)
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

/// Runs a command that reads, wherever the store lies.
fn ask<A: Allocator + Copy>(store: &Store<A>, command: &Command) -> Result<(), Box<dyn Error>> {
    match command {
        Command::Flagstat => write!(io::stdout(), "{}", store.flagstat())?,
        Command::View(view) => view.of(store)?,
        Command::Sort(_) | Command::Index => {}
    }
    Ok(())
}

/// Runs a command that changes the store, wherever it lies.
fn change<A: Allocator + Copy>(
    store: &mut Store<A>,
    command: &Command,
) -> Result<(), Box<dyn Error>> {
    match command {
        Command::Sort(sort) => store.sort(sort.order(), sort.threads)?,
        Command::Index => store.index()?,
        Command::Flagstat | Command::View(_) => {}
    }
    Ok(())
}

impl Sort {
    fn order(&self) -> Order {
        match self {
            Sort { name: true, .. } => Order::Name,
            Sort { as_read: true, .. } => Order::AsRead,
            _ => Order::Coordinate,
        }
    }
}

impl View {
    /// Writes nothing unless every region is known and can be viewed.
    fn of<A: Allocator + Copy>(&self, store: &Store<A>) -> Result<(), Box<dyn Error>> {
        let regions: Vec<_> = match &*self.regions {
            [] => vec![store.region(".")?],
            regions => regions
                .iter()
                .map(|text| store.region(text))
                .collect::<Result<_, _>>()?,
        };
        let found = regions.iter().map(|region| store.view(region));
        let found: Vec<_> = found.collect::<Result<_, _>>()?;
        let to: Box<dyn Write> = match &self.output {
            Some(path) => Box::new(File::create(path)?),
            None => Box::new(io::stdout().lock()),
        };
        let mut to = BufWriter::new(to);
        if self.header {
            to.write_all(store.header().text())?;
        }
        for alignments in found {
            store.write(alignments, &mut to)?;
        }
        Ok(to.flush()?)
    }
}
