//! `wear`: what durable puts of ours write (CDDS thesis, ch. 6).
//!
//! The store lies on a medium in memory that counts. A page of 4 KiB counts as written at a sync if
//! something was stored into it since the sync before: that is what a device gets to see.
//!
//! How to read it: bytes stored and pages written a put; for the commit records, the tables of the
//! leaves' headers and the leaves, how often the most written page of that kind was written, and
//! the mean of those that were written at all; the file's bytes over those of the keys and values
//! after 24 turnovers of the data. Beside it a log: the
//! bytes of an entry and its header, in sequence, each record synced.
//!
//! Then, by engine, what single puts make the kernel write, in the system's directory for temporary
//! files: pages that became dirty between two syncs, and bytes of system calls (`/proc/self/io`).
//! On tmpfs nothing is written, and these are zero.
//!
//! `--svg` draws the writes of each page over time, as the thesis' figures 6.1 to 6.5 do: the ring
//! of commit records at the bottom, the frames of leaves with their tables above.

use crate::heat::HeatMap;
use mneme_bench::error::{BenchError, failed, file_failed};
use mneme_bench::figure::Figure;
use mneme_bench::generate::random::{Random, mix};
use mneme_bench::goals::Goal;
use mneme_bench::ledger::{Ledger, Metric};
use mneme_bench::options::Common;
use mneme_bench::progress;
use mneme_bench::report::Report;
use mneme_bench::scratch::Directory;
use mneme_bench::systems::pipeline::field;
use mneme_bench::table::{NONE, Table, figure, median};
use mneme_bench::tree;
use mneme_bench::tree::engines::{self, KEY, key};
use mneme_bench::tree::names::{self, HASHED, MAP, OURS, VOLATILE};
use mneme_sys::medium::{Medium, MediumError, MemoryMedium};
use mneme_tree::{Durability, Store};
use serde_json::json;
use std::ops::Range;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// What a device writes at once.
const PAGE: u64 = 4096;
/// Pages of a frame, and those of its table. The first frame has the commit records alone.
const FRAME: usize = 512;
const TABLE: usize = 4;
/// Bytes of the header of a log's record.
const LOG_HEADER: u64 = 24;

/// Counts what is stored.
#[derive(Debug, Default)]
struct Counts {
    bytes: u64,
    /// By page: written at so many syncs.
    writes: Vec<u32>,
    dirty: Vec<u32>,
    is_dirty: Vec<bool>,
}

impl Counts {
    fn store(&mut self, at: u64, bytes: u64) {
        self.bytes += bytes;
        for page in (at / PAGE) as usize..=((at + bytes.max(1) - 1) / PAGE) as usize {
            if page >= self.is_dirty.len() {
                self.is_dirty.resize(page + 1, false);
                self.writes.resize(page + 1, 0);
            }
            if !std::mem::replace(&mut self.is_dirty[page], true) {
                self.dirty.push(page as u32);
            }
        }
    }

    fn sync(&mut self) {
        for page in self.dirty.drain(..) {
            self.is_dirty[page as usize] = false;
            self.writes[page as usize] += 1;
        }
    }
}

/// Memory that counts what is stored into it.
#[derive(Debug, Clone)]
struct Counting {
    memory: Arc<MemoryMedium>,
    counts: Arc<Mutex<Counts>>,
}

impl Counting {
    fn counts(&self) -> std::sync::MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Medium for Counting {
    fn base(&self) -> NonNull<u8> {
        self.memory.base()
    }
    fn len(&self) -> u64 {
        self.memory.len()
    }
    fn max(&self) -> u64 {
        self.memory.max()
    }
    fn store(&self, at: u64, bytes: &[u8]) {
        self.counts().store(at, bytes.len() as u64);
        self.memory.store(at, bytes);
    }
    fn store_word(&self, at: u64, word: u64) {
        self.counts().store(at, 8);
        self.memory.store_word(at, word);
    }
    fn flush(&self, range: Range<u64>) {
        self.memory.flush(range);
    }
    fn fence(&self) {
        self.memory.fence();
    }
    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), MediumError> {
        self.counts().store(at, bytes.len() as u64);
        self.memory.write(at, bytes)
    }
    fn sync(&self) -> Result<(), MediumError> {
        self.counts().sync();
        self.memory.sync()
    }
    fn grow(&self, to: u64) -> Result<(), MediumError> {
        self.memory.grow(to)
    }
}

const MEASURED: [(&str, Metric); 9] = [
    ("bytes of a put", Metric::Stored),
    ("pages of a put", Metric::Pages),
    ("most written page of the records", Metric::Wear),
    ("mean page of the records", Metric::Wear),
    ("most written page of the tables", Metric::Wear),
    ("mean page of the tables", Metric::Wear),
    ("most written page of the leaves", Metric::Wear),
    ("mean page of the leaves", Metric::Wear),
    ("file after the turnovers", Metric::Overhead),
];

/// Columns and rows of a figure.
const CELLS: usize = 96;

/// How much is done.
pub struct Scale {
    records: u32,
    turnovers: u32,
    /// Records, and puts, of each engine on a disk.
    on_disk: (u32, u32),
}

impl Scale {
    /// For these options.
    pub fn of(options: &Common) -> Self {
        Self {
            records: options.pick(10_000, 200_000),
            turnovers: 24,
            on_disk: options.pick((10_000, 300), (100_000, 3_000)),
        }
    }
}

/// Measures and reports.
///
/// # Errors
/// No memory, a store that fails.
pub fn run(scale: &Scale, options: &Common) -> Result<Report, BenchError> {
    let mut ledger = Ledger::default();
    let mut table = Table::new(["value", "what", "measured", "a log"]);
    let (mut goals, mut figures) = (Vec::new(), Vec::new());
    for (value, target) in [(100, 2.2), (1024, 1.5)] {
        let case = format!("{} records of {value} B", scale.records);
        for round in 0..options.rounds.min(3) {
            let seed = mix(options.seed) ^ round as u64;
            progress::show(format_args!("{case}, round {}", round + 1));
            let over_time = measure(scale, value, seed, &case, &mut ledger)?;
            if round == 0 {
                let map = heat(format!("Writes of pages, {case}"), scale, &over_time);
                figures.push(Figure::new(format!("wear-{value}.svg"), map));
            }
        }
        let logged = (LOG_HEADER + KEY as u64 + value as u64) as f64;
        for (what, metric) in MEASURED {
            let name = format!("{what}, {case}");
            let measured = ledger.values(OURS, &name).to_vec();
            let median = median(&measured, 1.0);
            let log = match metric {
                Metric::Stored => figure(logged),
                // The page that a record ends in is written again by the next.
                Metric::Pages => figure(1.0 + logged / PAGE as f64),
                _ => NONE.to_owned(),
            };
            if metric == Metric::Overhead {
                goals.push(Goal::at_most(name, target, measured));
            }
            let what = format!("{what}, {}", metric.unit());
            table.row([value.to_string(), what, median, log]);
        }
    }
    progress::clear();
    println!("{table}");
    println!("{}", engines_on_disk(scale, &mut ledger)?);
    Ok(Report {
        figures,
        params: json!({ "records": scale.records, "turnovers": scale.turnovers }),
        goals,
        ledger,
        notes: Vec::new(),
    })
}

/// Pages and bytes that this process has made the kernel write.
fn written() -> Result<(u64, u64), BenchError> {
    let path = Path::new("/proc/self/io");
    let counts = std::fs::read_to_string(path).map_err(file_failed(path))?;
    let all = field(&counts, "write_bytes").zip(field(&counts, "wchar"));
    let (pages, bytes) =
        all.ok_or_else(|| engines::wrong("/proc/self/io", "counts are missing"))?;
    Ok((pages / PAGE, bytes))
}

/// What single puts of each engine make the kernel write.
fn engines_on_disk(scale: &Scale, ledger: &mut Ledger) -> Result<Table, BenchError> {
    let (records, puts) = scale.on_disk;
    let mut table = Table::new(["value", "system", "pages of a put", "bytes of system calls"]);
    for value in [100, 1024] {
        let compared = |name: &&str| ![MAP, HASHED, VOLATILE].contains(name);
        for system in names::all().into_iter().filter(compared) {
            let directory = Directory::new("wear")?;
            let mut engine = engines::open(system, directory.path(), records, value)?;
            tree::load(&mut *engine, records, value)?;
            let mut random = Random::new(mix(u64::from(records)));
            let bytes = vec![2; value];
            let before = written()?;
            for _ in 0..puts {
                let id = random.below(u64::from(records)) as u32;
                engine.put(&key(id), &bytes)?;
            }
            let after = written()?;
            let each = |after: u64, before: u64| (after - before) as f64 / f64::from(puts);
            let (pages, called) = (each(after.0, before.0), each(after.1, before.1));
            let case = format!("on a disk, {records} records of {value} B");
            ledger.add(system, &case, Metric::Pages, pages);
            let value = value.to_string();
            table.row([value, system.to_owned(), figure(pages), figure(called)]);
        }
    }
    Ok(table)
}

/// Draws how often pages were written, given that after each of some equal parts of the puts.
fn heat(title: String, scale: &Scale, over_time: &[Vec<u32>]) -> HeatMap {
    let pages = over_time.last().map_or(0, Vec::len);
    let row = pages.div_ceil(CELLS).max(1);
    let mut before = vec![0; pages];
    let mut columns = Vec::new();
    for after in over_time {
        let mut column = vec![0; pages.div_ceil(row)];
        for (page, (writes, before)) in after.iter().zip(&mut before).enumerate() {
            column[page / row] += u64::from(writes - *before);
            *before = *writes;
        }
        columns.push(column);
    }
    HeatMap {
        title,
        across: "puts".to_owned(),
        up: "MiB of the file".to_owned(),
        ends: (
            f64::from(scale.records) * f64::from(scale.turnovers),
            (pages.next_multiple_of(row) as u64 * PAGE) as f64 / f64::from(1 << 20),
        ),
        columns,
    }
}

/// One put a commit, each key as likely as any other, until the data have turned over. Gives how
/// often each page was written by the end of each part of the puts.
fn measure(
    scale: &Scale,
    value: usize,
    seed: u64,
    case: &str,
    ledger: &mut Ledger,
) -> Result<Vec<Vec<u32>>, BenchError> {
    let data = u64::from(scale.records) * (KEY + value) as u64;
    let memory = MemoryMedium::new(data * 8 + (64 << 20)).map_err(failed)?;
    let medium = Counting {
        memory: Arc::new(memory),
        counts: Arc::default(),
    };
    let builder = Store::builder().durability(Durability::File);
    let opened = builder.open_on(Box::new(medium.clone()));
    let db = opened.map_err(failed)?;
    let mut random = Random::new(seed);
    let bytes = vec![1; value];
    tree::put_all(&db, scale.records, &bytes)?;
    *medium.counts() = Counts::default();
    let puts = u64::from(scale.records) * u64::from(scale.turnovers);
    let mut over_time = Vec::with_capacity(CELLS);
    for put in 0..puts {
        let id = random.below(u64::from(scale.records)) as u32;
        db.put(&key(id), &bytes).map_err(failed)?;
        if (put + 1) * CELLS as u64 / puts > over_time.len() as u64 {
            over_time.push(medium.counts().writes.clone());
        }
    }
    let file = db.stats().map_err(failed)?.file_bytes;
    let counts = medium.counts();
    let sum = |pages: &[u32]| pages.iter().map(|writes| f64::from(*writes)).sum::<f64>();
    let most_and_mean = |is_of: fn(usize) -> bool| {
        let pages = counts.writes.iter().enumerate();
        let of = pages.filter(|(page, writes)| is_of(*page) && **writes > 0);
        let of: Vec<u32> = of.map(|(_, writes)| *writes).collect();
        let most = of.iter().copied().max().unwrap_or(0);
        [f64::from(most), sum(&of) / of.len().max(1) as f64]
    };
    let records = most_and_mean(|page| page < FRAME);
    let tables = most_and_mean(|page| page >= FRAME && page % FRAME < TABLE);
    let leaves = most_and_mean(|page| page >= FRAME && page % FRAME >= TABLE);
    let values = [
        counts.bytes as f64 / puts as f64,
        sum(&counts.writes) / puts as f64,
        records[0],
        records[1],
        tables[0],
        tables[1],
        leaves[0],
        leaves[1],
        file as f64 / data as f64,
    ];
    for ((what, metric), value) in MEASURED.into_iter().zip(values) {
        ledger.add(OURS, &format!("{what}, {case}"), metric, value);
    }
    Ok(over_time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_written_once_a_sync_however_often_it_was_stored_to() {
        let mut counts = Counts::default();
        counts.store(0, 8);
        counts.store(8, 8);
        counts.store(PAGE - 4, 8);
        counts.sync();
        counts.store(0, 8);
        counts.sync();
        counts.sync();
        assert_eq!((counts.writes, counts.bytes), (vec![2, 1], 32));
    }

    #[test]
    fn a_figure_has_each_write_once() {
        let scale = Scale {
            records: 50,
            turnovers: 2,
            on_disk: (0, 0),
        };
        let map = heat(String::new(), &scale, &[vec![1], vec![1, 2], vec![4, 2, 9]]);
        let expected = [[1, 0, 0], [0, 2, 0], [3, 0, 9]].map(|column| column.to_vec());
        assert_eq!(map.columns, expected);
        assert_eq!(map.ends, (100.0, 3.0 / 256.0));
    }

    #[test]
    fn a_run_counts_what_puts_store() {
        let scale = Scale {
            records: 300,
            turnovers: 2,
            on_disk: (300, 20),
        };
        let report = run(&scale, &crate::options::tests::common()).unwrap();
        let stored = report
            .ledger
            .values(OURS, "bytes of a put, 300 records of 100 B");
        // An entry and a record at least.
        assert!(stored[0] > 184.0 + 125.0, "{stored:?}");
        let directory = Directory::new("wear-test").unwrap();
        for (figure, value) in report.figures.iter().zip([100, 1024]) {
            figure.write(directory.path()).unwrap();
            let drawn = directory.path().join(format!("wear-{value}.svg"));
            let drawn = std::fs::read_to_string(drawn).unwrap();
            assert!(drawn.contains(&format!("300 records of {value} B")));
        }
        let cases = MEASURED.map(|(what, _)| format!("{what}, 300 records of 1024 B"));
        mneme_bench::testing::assert_well_formed(&report, &cases.each_ref().map(String::as_str));
    }
}
