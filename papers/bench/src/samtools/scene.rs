//! What the operations work on: files in memory, and the same alignments in two segments.

use super::tools::Tools;
use mneme_bench::error::{BenchError, file_failed};
use mneme_bench::scratch::Scratch;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Directories of this run's own, on tmpfs and on a file system, which go when it is dropped.
pub struct Scene {
    memory: Scratch,
    disk: PathBuf,
    tools: Tools,
    /// NAME:FROM-TO, a hundredth of the first reference, in its middle.
    pub region: String,
    /// Bytes of SAM.
    pub sam_bytes: u64,
    /// Bytes of BAM.
    pub bam_bytes: u64,
    /// How long loading SAM into a segment took.
    pub load: Duration,
}

/// Bytes that a pair takes at most, in all the files and the segment together.
const PAIR: u64 = 3000;

/// The segment in shared memory.
pub const SEGMENT: &str = "segment";
/// The segment that is a file.
pub const FILE: &str = "mapped-file";

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.disk);
    }
}

impl Scene {
    /// Makes so many pairs of reads, the files that samtools works on, and the segments.
    ///
    /// # Errors
    /// A program that is missing or fails; a directory that cannot be made.
    pub fn new(tools: &Tools, pairs: u64) -> Result<Self, BenchError> {
        let name = format!("mneme-bench-samtools-{}", std::process::id());
        let mut scene = Self {
            memory: Scratch::new("samtools", pairs * PAIR)?,
            disk: std::env::temp_dir().join(name),
            tools: tools.clone(),
            region: String::new(),
            sam_bytes: 0,
            bam_bytes: 0,
            load: Duration::ZERO,
        };
        fs::create_dir_all(&scene.disk).map_err(file_failed(&scene.disk))?;
        let sam = scene.path("reads.sam");
        let synthetic = ["synthetic", "--pairs", &pairs.to_string(), &sam];
        tools.genomics(synthetic).output()?;
        scene.sam_bytes = scene.bytes("reads.sam")?;
        scene.region = region(Path::new(&sam))?;
        if tools.samtools.is_some() {
            scene.prepare_samtools()?;
        }
        let load = ["load", &sam, "--segment", SEGMENT];
        scene.load = scene.ours(load).time()?.whole;
        let disk = scene.disk.display().to_string();
        let load = ["load", &sam, "--segment", FILE, "--directory", &disk];
        scene.ours(load).output()?;
        Ok(scene)
    }

    /// BAM as it comes, and both kinds sorted, with indices.
    fn prepare_samtools(&mut self) -> Result<(), BenchError> {
        let [sam, bam, sorted_bam, sorted_sam] =
            ["reads.sam", "reads.bam", "sorted.bam", "sorted.sam.gz"].map(|name| self.path(name));
        let steps: [&[&str]; 5] = [
            &["view", "-b", "--no-PG", "-o", &bam, &sam],
            &["sort", "--no-PG", "-o", &sorted_bam, &sam],
            &["index", &sorted_bam],
            &[
                "view",
                "-h",
                "--no-PG",
                "-O",
                "sam.gz",
                "-o",
                &sorted_sam,
                &sorted_bam,
            ],
            &["index", "-c", &sorted_sam],
        ];
        for step in steps {
            self.tools.samtools(step.iter().copied()).output()?;
        }
        self.bam_bytes = self.bytes("reads.bam")?;
        Ok(())
    }

    /// A file on tmpfs.
    pub fn path(&self, name: &str) -> String {
        self.memory.root().join(name).display().to_string()
    }

    fn bytes(&self, name: &str) -> Result<u64, BenchError> {
        let path = self.memory.root().join(name);
        let found = fs::metadata(&path);
        Ok(found.map_err(file_failed(&path))?.len())
    }

    /// Bytes of the segment in shared memory.
    pub fn segment_bytes(&self) -> u64 {
        let files = fs::read_dir(self.memory.root().join("memory"))
            .into_iter()
            .flatten();
        let files = files.filter_map(|file| file.ok()?.metadata().ok());
        files.map(|file| file.len()).sum()
    }

    /// A run of our program in this scene's registry.
    pub fn ours<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> super::tools::Run {
        let registry = self.path("registry");
        let words: Vec<&str> = words.into_iter().collect();
        self.tools
            .genomics(["--dir", &*registry, "--times"].into_iter().chain(words))
    }

    /// Whether a segment's alignments are samtools' in every byte: as counted, sorted, and by
    /// region.
    ///
    /// # Errors
    /// [`BenchError::Wrong`] if not.
    pub fn verify(&self, segment: &str) -> Result<(), BenchError> {
        let wrong =
            |case: &str| BenchError::wrong(segment, case, "its output is not that of samtools");
        for change in ["sort", "index"] {
            self.ours([change, "--segment", segment]).output()?;
        }
        let bam = self.path("sorted.bam");
        let theirs = self.tools.samtools(["flagstat", &bam]).output()?;
        if self.ours(["flagstat", "--segment", segment]).output()? != theirs {
            return Err(wrong("flagstat"));
        }
        let theirs = self.tools.samtools(["view", &bam, &self.region]);
        let ours = ["view", "--segment", segment, &self.region];
        if self.ours(ours).output()? != theirs.output()? {
            return Err(wrong("view"));
        }
        let [ours, theirs] = ["ours.sam", "theirs.sam"].map(|name| self.path(name));
        let view = ["view", "-h", "-o", &ours, "--segment", segment];
        self.ours(view).output()?;
        let view = ["view", "-h", "--no-PG", "-o", &theirs, &bam];
        self.tools.samtools(view).output()?;
        let same = equal(Path::new(&ours), Path::new(&theirs));
        for path in [&ours, &theirs] {
            let _ = fs::remove_file(path);
        }
        if same? { Ok(()) } else { Err(wrong("sort")) }
    }
}

fn open(path: &Path) -> Result<BufReader<File>, BenchError> {
    let file = File::open(path).map_err(file_failed(path))?;
    Ok(BufReader::with_capacity(1 << 20, file))
}

/// Whether two files hold the same bytes.
fn equal(one: &Path, other: &Path) -> Result<bool, BenchError> {
    let failed = file_failed(one);
    let (mut a, mut b) = (open(one)?, open(other)?);
    let mut rest = vec![0; 1 << 20];
    loop {
        let block = a.fill_buf().map_err(failed)?;
        let len = block.len();
        if len == 0 {
            return Ok(b.read(&mut rest).map_err(failed)? == 0);
        }
        let other = &mut rest[..len];
        if b.read_exact(other).is_err() || block != other {
            return Ok(false);
        }
        a.consume(len);
    }
}

/// A hundredth of the first reference that the header of a SAM file names.
fn region(sam: &Path) -> Result<String, BenchError> {
    let lines = open(sam)?.lines().map_while(Result::ok);
    let mut references = lines
        .take_while(|line| line.starts_with('@'))
        .filter(|line| line.starts_with("@SQ"));
    let part = references.next().and_then(|line| {
        let field = |tag: &str| line.split('\t').find_map(|field| field.strip_prefix(tag));
        let (name, length) = (field("SN:")?, field("LN:")?.parse::<u64>().ok()?);
        Some(format!(
            "{name}:{}-{}",
            length / 2,
            length / 2 + length / 100
        ))
    });
    part.ok_or_else(|| BenchError::wrong("synthetic", "header", "it has no reference"))
}
