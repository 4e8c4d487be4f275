//! What a process that reads a store beside its writer costs: the time and the memory of its
//! opening, the memory of an index that knows all leaves, and gets with and without a writer.
//!
//! `cargo run --release -p mneme-tree --example reading_process [KEYS]`

use std::error::Error;
use std::time::Instant;

use mneme_tree::{Batch, Durability, Store};

fn main() -> Result<(), Box<dyn Error>> {
    let keys: u64 = std::env::args()
        .nth(1)
        .map_or(Ok(1_000_000), |n| n.parse())?;
    let path = std::env::temp_dir().join(format!("mneme-tree-reading-{}", std::process::id()));
    let done = measure(&path, keys);
    std::fs::remove_file(&path)?;
    done
}

fn measure(path: &std::path::Path, keys: u64) -> Result<(), Box<dyn Error>> {
    let builder = Store::builder().durability(Durability::Process);
    let db = builder.open(path)?;
    let key = |n: u64| {
        format!(
            "user{:021}",
            n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (4 * keys)
        )
    };
    for from in (0..keys).step_by(10_000) {
        let mut batch = Batch::new();
        for n in from..from + 10_000 {
            batch.put(key(n).as_bytes(), &[n as u8; 100]);
        }
        db.apply(&batch)?;
    }
    let stats = db.stats()?;
    let file = stats.file_bytes >> 20;
    println!(
        "{} keys, {} leaves, {file} MiB",
        stats.entries, stats.leaves
    );

    let before = anonymous_kib()?;
    let begun = Instant::now();
    let reader = builder.read_only(true).open(path)?;
    let took = begun.elapsed();
    let opened = anonymous_kib()?;
    println!("open: {took:?}, {} KiB", opened - before);

    let gets = |what: &str, by: &Store| -> Result<(), Box<dyn Error>> {
        let begun = Instant::now();
        for n in 0..keys {
            by.get_with(key(n).as_bytes(), <[u8]>::len)?;
        }
        println!("{what}: {:?} a get", begun.elapsed() / keys as u32);
        Ok(())
    };
    gets("first gets, which load the leaves", &reader)?;
    println!("all leaves: {} KiB more", anonymous_kib()? - opened);
    for _ in 0..3 {
        gets("gets, nobody writes", &reader)?;
        gets("gets in the writing process", &db)?;
    }
    let begun = Instant::now();
    let rounds = keys.min(100_000);
    for n in 0..rounds {
        db.put(key(n * 7).as_bytes(), &[1; 100])?;
    }
    let puts = begun.elapsed();
    let begun = Instant::now();
    for n in 0..rounds {
        db.put(key(n * 7).as_bytes(), &[2; 100])?;
        reader.get_with(key(n * 13).as_bytes(), <[u8]>::len)?;
    }
    let both = begun.elapsed();
    println!("a put, one at a time: {:?}", puts / rounds as u32);
    println!("a put, then a get elsewhere: {:?}", both / rounds as u32);
    Ok(())
}

/// Memory of this process that is no file's.
fn anonymous_kib() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.ok_or("no RssAnon")?.parse()?)
}
