//! Alignments that no sequencer made, to test and to measure with.
//!
//! The chromosomes are random, `wgsim` samples pairs of reads from them, and their alignments are
//! where wgsim says that they come from (the reads' names tell), without gaps. Every so many a read
//! is unmapped, a duplicate, of low quality or has its mate on another chromosome, so that all
//! counts and orders have something to decide. The same number of pairs gives the same file.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Names and lengths, for every [`PAIRS`] pairs: each base is covered almost four times.
const CHROMOSOMES: [(&str, usize); 3] = [("chr10", 90_000), ("chr2", 40_000), ("chr1", 60_000)];
const PAIRS: usize = 5_000;

/// Bases of a read.
const LENGTH: &str = "70";

/// Why there are no synthetic alignments.
#[derive(Debug, thiserror::Error)]
pub enum SyntheticError {
    /// wgsim cannot be run.
    #[error("wgsim cannot be run (Debian has it in the package `samtools`)")]
    Missing(#[source] io::Error),
    /// wgsim failed, or wrote something else than reads.
    #[error("wgsim failed")]
    Wgsim,
    /// A file could not be written or read.
    #[error("synthetic alignments in {}", directory.display())]
    File {
        /// The directory of all of them.
        directory: PathBuf,
        /// The operating system's reason.
        #[source]
        source: io::Error,
    },
}

/// Writes SAM with two alignments for each of that many pairs, in the order in which wgsim draws
/// them, which is none. Beside it in `directory` other files appear meanwhile.
///
/// # Errors
/// [`SyntheticError`]; part of the text may have been written.
pub fn write(to: &mut impl Write, pairs: usize, directory: &Path) -> Result<(), SyntheticError> {
    let files = ["genome.fa", "1.fq", "2.fq"].map(|name| directory.join(name));
    let failed = |source| SyntheticError::File {
        directory: directory.to_owned(),
        source,
    };
    let scale = pairs.div_ceil(PAIRS).max(1);
    write_genome(&files[0], scale).map_err(failed)?;
    let status = Command::new("wgsim")
        .args(["-S", "11", "-1", LENGTH, "-2", LENGTH])
        .args(["-N", &pairs.to_string()])
        .args(&files)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .map_err(SyntheticError::Missing)?;
    if !status.success() {
        return Err(SyntheticError::Wgsim);
    }
    let read = |file: &Path| Ok(Reads(BufReader::new(File::open(file)?).lines()));
    let (mut first, mut second) = read(&files[1])
        .and_then(|first| Ok((first, read(&files[2])?)))
        .map_err(failed)?;
    let mut text = header(scale);
    let mut number = 0;
    while let Some(one) = first.next().map_err(failed)? {
        let two = second.next().map_err(failed)?;
        let pair = two.and_then(|two| Pair::new(number, one, two));
        pair.ok_or(SyntheticError::Wgsim)?.write(&mut text);
        number += 1;
        to.write_all(text.as_bytes()).map_err(failed)?;
        text.clear();
    }
    to.write_all(text.as_bytes()).map_err(failed)?;
    files.iter().try_for_each(fs::remove_file).map_err(failed)
}

fn write_genome(path: &Path, scale: usize) -> io::Result<()> {
    let mut random = 7u64;
    let mut base = || {
        random = random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        b"ACGT"[(random >> 62) as usize]
    };
    let mut fasta = Vec::new();
    for (name, length) in CHROMOSOMES {
        writeln!(fasta, ">{name}")?;
        fasta.extend((0..length * scale).map(|_| base()));
        fasta.push(b'\n');
    }
    fs::write(path, fasta)
}

fn header(scale: usize) -> String {
    let mut text = "@HD\tVN:1.6\tSO:unsorted\tGO:query\n".to_owned();
    for (name, length) in CHROMOSOMES {
        text += &format!("@SQ\tSN:{name}\tLN:{}\n", length * scale);
    }
    text
}

/// The reads of a FASTQ file.
struct Reads(Lines<BufReader<File>>);

struct Read {
    name: String,
    bases: String,
    qualities: String,
}

impl Reads {
    fn next(&mut self) -> io::Result<Option<Read>> {
        let mut line = || self.0.next().transpose();
        let (Some(name), Some(bases), Some(_), Some(qualities)) =
            (line()?, line()?, line()?, line()?)
        else {
            return Ok(None);
        };
        Ok(Some(Read {
            name,
            bases,
            qualities,
        }))
    }
}

/// Two reads and where they come from.
struct Pair {
    number: usize,
    name: String,
    chromosome: String,
    start: i64,
    start_of_second: i64,
    /// Of the template.
    length: i64,
    one: Read,
    two: Read,
}

impl Pair {
    /// None if the name does not tell.
    fn new(number: usize, one: Read, two: Read) -> Option<Self> {
        let name = one.name.strip_prefix('@')?.rsplit_once('/')?.0.to_owned();
        let mut fields = name.split('_');
        let chromosome = fields.next()?.to_owned();
        let mut position = || fields.next()?.parse::<i64>().ok();
        let (start, end) = (position()?, position()?);
        Some(Self {
            number,
            chromosome,
            start,
            start_of_second: end - two.bases.len() as i64 + 1,
            length: end - start + 1,
            name,
            one,
            two,
        })
    }

    fn write(&self, to: &mut String) {
        if self.number % 13 == 4 {
            self.write_unaligned(to);
        } else {
            self.write_aligned(to);
        }
    }

    /// The first is not aligned and stands where its mate does; or neither is anywhere.
    fn write_unaligned(&self, to: &mut String) {
        let Self { name, one, two, .. } = self;
        let (place, at) = if self.number.is_multiple_of(2) {
            (&*self.chromosome, self.start)
        } else {
            ("*", 0)
        };
        let (flags, mate) = if at > 0 { (0x45, "=") } else { (0x4d, "*") };
        *to += &format!(
            "{name}\t{flags}\t{place}\t{at}\t0\t*\t{mate}\t{at}\t0\t{}\t{}\n",
            one.bases, one.qualities
        );
        let (flags, cigar) = if at > 0 {
            (0x89, format!("{}M", two.bases.len()))
        } else {
            (0x8d, "*".to_owned())
        };
        *to += &format!(
            "{name}\t{flags}\t{place}\t{at}\t9\t{cigar}\t{mate}\t{at}\t0\t{}\t*\n",
            two.bases
        );
    }

    fn write_aligned(&self, to: &mut String) {
        let Self {
            number,
            name,
            chromosome,
            start,
            start_of_second,
            one,
            two,
            ..
        } = self;
        let elsewhere = number % 17 == 3;
        let (mate, length) = if elsewhere {
            ("chr2", 0)
        } else {
            ("=", self.length)
        };
        let extra = match number % 29 {
            5 => 0x400,
            6 => 0x200,
            7 => 0x100,
            8 => 0x800,
            _ => 0,
        };
        let proper = if elsewhere { 0 } else { 2 };
        let (flags, quality) = (0x61 | proper | extra, number % 61);
        *to += &format!(
            "{name}\t{flags}\t{chromosome}\t{start}\t{quality}\t{}M\t{mate}\t{start_of_second}\t{length}\t{}\t{}\tNM:i:{}\tRG:Z:g1\tXF:f:{}\n",
            one.bases.len(),
            one.bases,
            one.qualities,
            number % 300,
            *number as f32 / 7.0
        );
        let flags = 0x91 | proper | extra;
        let back = if elsewhere { chromosome } else { "=" };
        let here = if elsewhere { "chr2" } else { chromosome };
        let half = two.bases.len() / 2;
        *to += &format!(
            "{name}\t{flags}\t{here}\t{start_of_second}\t{quality}\t{half}M1D{}M\t{back}\t{start}\t{}\t{}\t{}\n",
            two.bases.len() - half,
            -length,
            two.bases,
            two.qualities
        );
    }
}
