//! A segment with records, and the server that is stopped and started on it.

use crate::client::attached::{Attached, SEGMENT};
use crate::client::socket::Socket;
use crate::client::{Asks, value_of};
use crate::error::BenchError;
use crate::generate::keys::key;
use crate::generate::random::Random;
use crate::processes::Helper;
use crate::restart::{SIZE, load, until_found};
use crate::rounds::joined;
use crate::scratch::{Scratch, space};
use crate::served::Served;
use mneme_shared::{MIN_CAPACITY, SharedStore, StoreOptions};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long there have been writes when the server is killed.
const WRITING: Duration = Duration::from_millis(100);

/// Longer than anything takes that comes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes of a store for so many of values: nine tenths are live then.
pub fn capacity(data: u64) -> u64 {
    (data + data / 6).max(MIN_CAPACITY)
}

/// A served segment.
pub struct Ours {
    // Ended before its segment is removed.
    server: Option<Served>,
    scratch: Scratch,
    records: u32,
    random: Random,
}

/// What a process that attaches finds.
pub struct Attaching {
    /// From before it opens the registry until the store is attached.
    pub attach: Duration,
    /// From before the process is made until it has said that it found a record.
    pub whole: Duration,
}

/// What the processes that stay see of the end of the one that served and maintained.
pub struct Bereft {
    /// Until another maintains the store, and stores into it.
    pub maintained: Duration,
    /// The longest that an attached writer waited meanwhile.
    pub longest: Duration,
}

impl Ours {
    /// Makes, loads and serves one.
    ///
    /// # Errors
    /// No memory, a server that does not start.
    pub fn new(data: u64, seed: u64) -> Result<Self, BenchError> {
        let scratch = Scratch::new("restart", 1 << 20)?;
        let records = (data / SIZE as u64) as u32;
        let capacity = capacity(data);
        let options = StoreOptions::new()
            .capacity(capacity)
            .max_capacity(capacity);
        options.make(scratch.registry(), SEGMENT).map_err(space)?;
        let mut loader = Attached::new(scratch.registry().root(), SEGMENT, true, SIZE)?;
        load(&mut loader, records)?;
        drop(loader);
        let mut ours = Self {
            server: None,
            scratch,
            records,
            random: Random::new(seed),
        };
        ours.start()?;
        Ok(ours)
    }

    fn socket(&self) -> PathBuf {
        self.scratch.root().join("socket")
    }

    fn id(&mut self) -> u32 {
        self.random.below(u64::from(self.records)) as u32
    }

    /// Starts the server; from before its process is made until a record was found.
    fn start(&mut self) -> Result<Duration, BenchError> {
        let (id, socket) = (self.id(), self.socket());
        let begin = Instant::now();
        let server = Served::start(self.scratch.registry().root(), SEGMENT, &socket, &[])?;
        self.server = Some(server);
        until_found(&socket, id)?;
        Ok(begin.elapsed())
    }

    /// Ends it in an orderly way and starts another.
    ///
    /// # Errors
    /// It does not end or start.
    pub fn after_sigterm(&mut self) -> Result<Duration, BenchError> {
        if let Some(mut server) = self.server.take() {
            server.process.terminate()?;
        }
        self.start()
    }

    /// Kills it while a client writes and starts another: until a record was found, and, from the
    /// kill on, until one was stored.
    ///
    /// # Errors
    /// It did not serve, or another does not start.
    pub fn after_kill(&mut self) -> Result<(Duration, Duration), BenchError> {
        let mut client = Socket::connect(&self.socket(), SIZE)?;
        let mut random = Random::new(self.random.next_u64());
        let records = self.records;
        let server = self.server.take();
        let has_written = &AtomicBool::new(false);
        let killed = std::thread::scope(|scope| {
            let writer = scope.spawn(move || {
                while let Ok(true) = client.set(random.below(u64::from(records)) as u32) {
                    has_written.store(true, Ordering::Relaxed);
                }
            });
            std::thread::sleep(WRITING);
            // Longer, if the machine is busy.
            while !has_written.load(Ordering::Relaxed) && !writer.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let killed = Instant::now();
            drop(server);
            match writer.join() {
                Ok(()) if has_written.load(Ordering::Relaxed) => Ok(killed),
                _ => Err(BenchError::Process("nothing was written".to_owned())),
            }
        })?;
        let found = self.start()?;
        let id = self.id();
        Socket::connect(&self.socket(), SIZE)?.set(id)?;
        Ok((found, killed.elapsed()))
    }

    /// Kills it while a process that has attached the store writes, and starts another afterwards.
    ///
    /// # Errors
    /// A write is refused; nobody takes over; no other starts.
    pub fn bereft(&mut self) -> Result<Bereft, BenchError> {
        let store = SharedStore::attach_writable(self.scratch.registry(), SEGMENT);
        let store = store.map_err(space)?;
        let (end, records) = (AtomicBool::new(false), u64::from(self.records));
        let mut random = Random::new(self.random.next_u64());
        let server = self.server.take();
        let put = |random: &mut Random| {
            let id = random.below(records) as u32;
            let mut value = Vec::new();
            value_of(id, SIZE, &mut value);
            store.put(&key(id), &value).map_err(space)
        };
        let bereft = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut random = Random::new(random.next_u64());
                let mut longest = Duration::ZERO;
                while !end.load(Ordering::Relaxed) {
                    let begin = Instant::now();
                    put(&mut random)?;
                    longest = longest.max(begin.elapsed());
                }
                Ok::<_, BenchError>(longest)
            });
            std::thread::sleep(WRITING);
            let killed = Instant::now();
            drop(server);
            while !store.maintains() && killed.elapsed() < TIMEOUT {
                std::thread::sleep(Duration::from_micros(200));
            }
            let stored = put(&mut Random::new(killed.elapsed().as_nanos() as u64));
            let maintained = killed.elapsed();
            end.store(true, Ordering::Relaxed);
            stored?;
            Ok::<_, BenchError>(Bereft {
                maintained,
                longest: joined(writer)?,
            })
        })?;
        drop(store);
        self.start()?;
        Ok(bereft)
    }

    /// Makes a new process attach the store.
    ///
    /// # Errors
    /// It cannot.
    pub fn attach(&mut self) -> Result<Attaching, BenchError> {
        let id = self.id().to_string();
        let root = self.scratch.registry().root();
        let begin = Instant::now();
        let mut process = Helper::start(&[&"attach", &root, &id])?;
        let attach = process.answer()?;
        Ok(Attaching {
            attach,
            whole: begin.elapsed(),
        })
    }
}
