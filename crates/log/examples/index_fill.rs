//! The cost of the index, and how far entries lie from home, while it grows.
//!
//! `cargo run --release -p mneme-log --example index_fill -- [millions of records] [MiB]`. Prints,
//! at each size, the bytes of index for each record, those of whole frames, the share of entries
//! behind their home and the buckets read by a hit; then the means over the logarithm of the size
//! from 1 M on, and the worst sizes from 100,000 on. The capacity decides the number of partitions;
//! it follows from the records unless it is given.

#![allow(clippy::unwrap_used, reason = "a probe stops at the first error")]

use mneme_log::LogStore;

fn main() {
    let argument = |i| std::env::args().nth(i).map(|a| a.parse::<u64>().unwrap());
    let records = argument(1).unwrap_or(8) * 1_000_000;
    let capacity = argument(2).map_or(records * 64 + (256 << 20), |mib| mib << 20);
    let store = LogStore::builder()
        .capacity(capacity)
        .open_private()
        .unwrap();
    println!(
        "{:>12} {:>8} {:>8} {:>9} {:>12}",
        "records", "B/rec", "frames", "displaced", "buckets/hit"
    );
    let (mut next, mut points) = (100_000.0f64, Vec::new());
    let mut worst = [(0.0f64, 0); 2];
    for i in 0..records {
        store.put(&i.to_le_bytes(), b"").unwrap();
        if i + 1 >= 100_000 && (i + 1) % 1_000 == 0 {
            let stats = store.stats();
            let bytes = [stats.index_used_bytes, stats.index_bytes];
            for (worst, bytes) in worst.iter_mut().zip(bytes) {
                let now = (bytes as f64 / (i + 1) as f64, i + 1);
                if now.0 > worst.0 {
                    *worst = now;
                }
            }
        }
        if i as f64 >= next {
            next *= 1.07;
            let (stats, report) = (store.stats(), store.check().unwrap());
            assert!(report.is_sound(), "{report:?}");
            let n = (i + 1) as f64;
            let used = stats.index_used_bytes as f64 / n;
            let displaced = report.displaced as f64 / n;
            println!(
                "{:>12} {used:>8.2} {:>8.2} {:>8.2}% {:>12.4}",
                i + 1,
                stats.index_bytes as f64 / n,
                displaced * 100.0,
                1.0 + displaced,
            );
            if n >= 1e6 {
                points.push((used, stats.index_bytes as f64 / n, 1.0 + displaced));
            }
        }
    }
    let mean = |f: fn(&(f64, f64, f64)) -> f64| {
        points.iter().map(f).sum::<f64>() / points.len().max(1) as f64
    };
    println!(
        "mean from 1 M on: {:.2} B a record in blocks, {:.2} in frames, {:.4} buckets a hit",
        mean(|p| p.0),
        mean(|p| p.1),
        mean(|p| p.2),
    );
    for (what, (bytes, at)) in ["blocks", "frames"].into_iter().zip(worst) {
        println!("at most {bytes:.2} B a record in {what}, at {at}");
    }
}
