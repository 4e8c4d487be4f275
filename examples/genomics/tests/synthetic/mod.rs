//! Directories for tests, and alignments that no sequencer made.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A directory that goes when it is dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let name = format!("mneme-genomics-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const CHROMOSOMES: [(&str, usize); 3] = [("chr10", 90_000), ("chr2", 40_000), ("chr1", 60_000)];

/// SAM with two alignments for each of that many read pairs, in no order; none where wgsim is absent.
///
/// **Synthetic**: the chromosomes are random, wgsim samples reads from them, and their alignments are where wgsim says
/// that they come from (the reads' names tell), without gaps. Every so many a read is unmapped, a duplicate, of low
/// quality or has its mate on another chromosome, so that all counts and orders have something to decide.
pub fn alignments(directory: &Path, pairs: usize) -> Option<PathBuf> {
    let mut random = 7u64;
    let mut next = |below: u64| {
        random = random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (random >> 33) % below
    };
    let mut fasta = String::new();
    for (name, length) in CHROMOSOMES {
        let bases = (0..length).map(|_| ['A', 'C', 'G', 'T'][next(4) as usize]);
        writeln!(fasta, ">{name}\n{}", bases.collect::<String>()).unwrap();
    }
    let path = |name: &str| directory.join(name);
    std::fs::write(path("genome.fa"), fasta).unwrap();
    let status = Command::new("wgsim")
        .args(["-S", "11", "-1", "70", "-2", "70", "-N", &pairs.to_string()])
        .args([path("genome.fa"), path("1.fq"), path("2.fq")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(status.ok()?.success());

    let mut sam = "@HD\tVN:1.6\tSO:unsorted\tGO:query\n".to_owned();
    for (name, length) in CHROMOSOMES {
        writeln!(sam, "@SQ\tSN:{name}\tLN:{length}").unwrap();
    }
    let read = |name: &str| std::fs::read_to_string(path(name)).unwrap();
    let (first, second) = (read("1.fq"), read("2.fq"));
    let reads = |text: &str| -> Vec<(String, String, String)> {
        let lines: Vec<&str> = text.lines().collect();
        let reads = lines.chunks(4);
        let name = |line: &str| line[1..].rsplit_once('/').unwrap().0.to_owned();
        reads
            .map(|read| (name(read[0]), read[1].to_owned(), read[3].to_owned()))
            .collect()
    };
    for (number, (one, two)) in reads(&first).into_iter().zip(reads(&second)).enumerate() {
        let mut fields = one.0.split('_');
        let chromosome = fields.next().unwrap();
        let mut position = || fields.next().unwrap().parse::<i64>().unwrap();
        let (start, end) = (position(), position());
        let start_of_second = end - two.1.len() as i64 + 1;
        let length = end - start + 1;
        let elsewhere = number % 17 == 3;
        let (mate, length) = if elsewhere {
            ("chr2", 0)
        } else {
            ("=", length)
        };
        let extra = match number % 29 {
            5 => 0x400,
            6 => 0x200,
            7 => 0x100,
            8 => 0x800,
            _ => 0,
        };
        let (name, quality) = (&one.0, number % 61);
        let bases = one.1.len();
        if number % 13 == 4 {
            // The first is not aligned and stands where its mate does; or neither is anywhere.
            let (place, at) = if number % 2 == 0 {
                (chromosome, start)
            } else {
                ("*", 0)
            };
            let (flags, mate) = if at > 0 { (0x45, "=") } else { (0x4d, "*") };
            writeln!(
                sam,
                "{name}\t{flags}\t{place}\t{at}\t0\t*\t{mate}\t{at}\t0\t{}\t{}",
                one.1, one.2
            )
            .unwrap();
            let (flags, cigar) = if at > 0 {
                (0x89, format!("{bases}M"))
            } else {
                (0x8d, "*".into())
            };
            writeln!(
                sam,
                "{name}\t{flags}\t{place}\t{at}\t9\t{cigar}\t{mate}\t{at}\t0\t{}\t*",
                two.1
            )
            .unwrap();
            continue;
        }
        let proper = if elsewhere { 0 } else { 2 };
        let flags = 0x61 | proper | extra;
        writeln!(
            sam,
            "{name}\t{flags}\t{chromosome}\t{start}\t{quality}\t{bases}M\t{mate}\t{start_of_second}\t{length}\t{}\t{}\tNM:i:{}\tRG:Z:g1\tXF:f:{}",
            one.1, one.2, number % 300, number as f32 / 7.0
        ).unwrap();
        let flags = 0x91 | proper | extra;
        let back = if elsewhere { chromosome } else { "=" };
        let here = if elsewhere { "chr2" } else { chromosome };
        let bases = two.1.len();
        writeln!(
            sam,
            "{name}\t{flags}\t{here}\t{start_of_second}\t{quality}\t{}M1D{}M\t{back}\t{start}\t{}\t{}\t{}",
            bases / 2, bases - bases / 2, -length, two.1, two.2
        ).unwrap();
    }
    let file = path("synthetic.sam");
    std::fs::write(&file, sam).unwrap();
    Some(file)
}
