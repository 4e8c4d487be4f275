//! A virtual disk, the server on it, and the clients of that.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::random::Random;

use super::stream::{Found, Stream, Wire};
use super::writes::Writes;
use super::{LIMIT, Role};

/// Connections that store values on each disk.
const STREAMS: usize = 3;

/// A virtual disk, from cut to cut.
pub struct Disk {
    pub role: &'static Role,
    pub serial: String,
    /// As it is when a guest begins.
    pub image: PathBuf,
    /// What a guest changes.
    pub present: PathBuf,
    pub log: PathBuf,
    pub streams: Vec<Stream>,
    /// What was found after the cuts.
    pub looks: u64,
    pub found: Found,
    /// Looks that found less than was promised, or a store that did not come up.
    pub losses: u64,
    /// What is on it is not what was ever there; it begins anew.
    pub is_ruined: bool,
    /// Sectors that were not flushed at the cuts, and those lost.
    pub unflushed: u64,
    pub dropped: u64,
}

impl Disk {
    pub fn new(directory: &Path, number: usize, role: &'static Role) -> Self {
        let file = |ending| directory.join(format!("disk-{number}.{ending}"));
        Self {
            role,
            serial: format!("disk-{number}"),
            image: file("img"),
            present: file("present"),
            log: file("log"),
            streams: (0..STREAMS).map(Stream::new).collect(),
            looks: 0,
            found: Found::default(),
            losses: 0,
            is_ruined: false,
            unflushed: 0,
            dropped: 0,
        }
    }

    /// Looks at what is there, and stores values until the guest is killed. `served` counts
    /// those that have looked.
    pub fn live(
        &mut self,
        port: u16,
        cut: u64,
        mut random: Random,
        served: &AtomicUsize,
        console: &Path,
    ) -> Result<(), String> {
        let looked = self.look(port, cut, console);
        served.fetch_add(1, Ordering::Relaxed);
        match looked {
            Err(_) if self.role.is_twin => {
                self.losses += 1;
                self.is_ruined = true;
                return Ok(());
            }
            other => other.map_err(|why| format!("{} ({}): {why}", self.role.name, self.serial))?,
        }
        let log = &self.log;
        let log_bytes = || fs::metadata(log).map_or(u64::MAX, |log| log.len());
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for stream in &mut self.streams {
                let mut random = Random::new(random.draw());
                threads.push(scope.spawn(move || match Wire::to_served(port, LIMIT) {
                    Some(mut wire) => stream.store(&mut wire, &mut random, log_bytes),
                    // The power went first.
                    None => Ok(()),
                }));
            }
            let panicked = |_| Err("a client panicked".to_owned());
            let ended = threads.into_iter();
            let mut ended = ended.map(|thread| thread.join().unwrap_or_else(panicked));
            ended.try_for_each(|outcome| outcome)
        })
    }

    /// Its former content no longer counts: the image is one of an empty disk.
    pub fn begin_anew(&mut self) {
        self.is_ruined = false;
        self.streams = (0..STREAMS).map(Stream::new).collect();
    }

    /// Waits until the server serves, and looks at what is there.
    fn look(&mut self, port: u16, cut: u64, console: &Path) -> Result<(), String> {
        let begun = Instant::now();
        let mut wire = loop {
            if let Some(wire) = Wire::to_served(port, Duration::from_secs(5)) {
                break wire;
            }
            let said = fs::read_to_string(console).unwrap_or_default();
            let ends = [
                format!("@ended {}\r", self.serial),
                "Kernel panic".to_owned(),
            ];
            if ends.iter().any(|end| said.contains(end)) {
                return Err(format!("no server came up: see {}", console.display()));
            }
            if begun.elapsed() > LIMIT {
                return Err(format!(
                    "no server within {LIMIT:?}: see {}",
                    console.display()
                ));
            }
            thread::sleep(Duration::from_millis(100));
        };
        // The first guest finds empty disks.
        self.looks += u64::from(cut > 0);
        let mut is_whole = true;
        for stream in &mut self.streams {
            let found = stream.look(&mut wire, cut)?;
            self.found.promised += found.promised;
            self.found.lost += found.lost;
            self.found.window = self.found.window.max(found.window);
            is_whole &= found.lost == 0;
            if found.lost > 0 && !self.role.is_twin {
                return Err(format!(
                    "{} of {} values are lost",
                    found.lost, found.promised
                ));
            }
        }
        self.losses += u64::from(!is_whole);
        Ok(())
    }

    /// The power has gone: the image becomes what it left.
    pub fn cut(&mut self, random: &mut Random) -> Result<(), String> {
        let cut = Writes::read(&self.log)?.cut(&self.image, random)?;
        self.unflushed += cut.unflushed;
        self.dropped += cut.lost;
        for stream in &mut self.streams {
            stream.cut(self.role.promise, cut.log_bytes);
        }
        Ok(())
    }
}
