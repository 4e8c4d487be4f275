//! The arena whose claims are measured, and its tenant.

use super::{BUSY, VALUE};
use mneme_arena::{
    Arena, ArenaOptions, CacheLookup, Class, Discardable, Extent, FRAME_BYTES, LendingOptions,
    MAX_RECORD, Stored,
};
use mneme_bench::error::{BenchError, failed};
use mneme_bench::generate::random::Random;
use mneme_bench::generate::zipfian::{YCSB_THETA, Zipfian};
use mneme_bench::latency::Latencies;
use mneme_bench::rounds::joined;
use mneme_sync::{ControlOptions, Participants, Slot};
use mneme_sys::{NodeId, PagePolicy, Region, ScriptedLiveness, SyntheticTopology};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

const NODE: NodeId = NodeId(0);

/// What happened in all rounds.
#[derive(Default)]
pub struct Count {
    pub claims: u64,
    pub refused: u64,
    pub discards: u64,
    pub frames_of_full: u64,
    pub buddy_claims: u64,
    pub buddy_refused: u64,
    pub lookups: u64,
    pub hits: u64,
    pub kept: u64,
    pub dropped: u64,
}

/// An arena, all of it resident.
pub struct MeasuredArena {
    participants: Participants,
    arena: Arc<Arena>,
    /// What it lends to, if it lends.
    cache: Option<Discardable>,
    frames: u32,
}

impl MeasuredArena {
    pub fn new(frames: u32, lends: bool) -> Result<MeasuredArena, BenchError> {
        let uuid = [1; 16];
        let control = ControlOptions::new(uuid);
        let len = control.region_len();
        let memory = Region::private(len, len, PagePolicy::Small)?;
        let liveness = Arc::new(ScriptedLiveness::new().process(1));
        let participants = Participants::create(memory, control, liveness).map_err(failed)?;
        let records = u64::from(frames) * FRAME_BYTES / VALUE as u64;
        let lending = lends.then_some(LendingOptions {
            records,
            max_frames: u32::MAX,
        });
        // The index, and the arena's other tables.
        let own = if lends {
            2 + records * 11 / FRAME_BYTES
        } else {
            1
        };
        let bytes = ((u64::from(frames) + own) * FRAME_BYTES) as usize;
        let region = Arc::new(Region::private(bytes, bytes, PagePolicy::Thp)?);
        region.prefault(0..bytes)?;
        let options = ArenaOptions {
            uuid,
            client_bytes: 4096,
            nodes: 1,
            topology: Arc::new(SyntheticTopology::new(1, 1)),
            reserve_frames: 0,
            lending,
        };
        let arena = Arena::create(region, participants.clone(), options);
        let arena = Arc::new(arena.map_err(failed)?);
        let cache = match lends {
            true => Some(Discardable::open(Arc::clone(&arena)).map_err(failed)?),
            false => None,
        };
        let measured = MeasuredArena {
            frames: arena.stats().free,
            participants,
            arena,
            cache,
        };
        // Only what somebody had is lent.
        let slot = measured.slot()?;
        let all = measured
            .claim(&slot, measured.frames)
            .ok_or_else(|| failed("no memory"))?;
        measured.release(&slot, all)?;
        drop(slot);
        Ok(measured)
    }

    fn slot(&self) -> Result<Slot<'_>, BenchError> {
        self.participants.slot().map_err(failed)
    }

    pub fn cache(&self) -> Result<&Discardable, BenchError> {
        self.cache.as_ref().ok_or_else(|| failed("nothing is lent"))
    }

    fn claim(&self, slot: &Slot<'_>, frames: u32) -> Option<Extent> {
        let class = Class::Ordinary;
        self.arena.claim(slot, frames, 1, NODE, class, 0).ok()
    }

    fn release(&self, slot: &Slot<'_>, extent: Extent) -> Result<(), BenchError> {
        self.arena.release(slot, extent).map_err(failed)
    }

    /// Claims until half of the frames are taken, again and again; `before` each time.
    fn halves(
        &self,
        frames: u32,
        claims: u32,
        count: &mut Count,
        mut before: impl FnMut(&Slot<'_>) -> Result<(), BenchError>,
    ) -> Result<Latencies, BenchError> {
        let slot = self.slot()?;
        let mut latencies = Latencies::default();
        let mut held = Vec::new();
        let most = (self.frames / 2 / frames).max(1) as usize;
        for _ in 0..claims {
            if held.is_empty() {
                before(&slot)?;
            }
            let began = Instant::now();
            let claimed = self.claim(&slot, frames);
            latencies.record(began.elapsed());
            count.claims += 1;
            match claimed {
                Some(extent) => held.push(extent),
                None => count.refused += 1,
            }
            if held.len() == most || claimed.is_none() {
                for extent in held.drain(..) {
                    self.release(&slot, extent)?;
                }
            }
        }
        for extent in held {
            self.release(&slot, extent)?;
        }
        Ok(latencies)
    }

    pub fn claims(
        &self,
        frames: u32,
        claims: u32,
        count: &mut Count,
    ) -> Result<Latencies, BenchError> {
        self.halves(frames, claims, count, |_| Ok(()))
    }

    /// Claims frames, all of which are full of records.
    pub fn claims_of_full(
        &self,
        frames: u32,
        claims: u32,
        count: &mut Count,
    ) -> Result<Latencies, BenchError> {
        let cache = self.cache()?;
        let discards = || cache.stats().map(|stats| stats.discards);
        let before = discards()?;
        // A frame has place for one, and its key is none of the busy tenant's. More than half of
        // the frame would make the next claim no slower, and filling it takes all the time.
        let value = vec![7; MAX_RECORD / 2];
        let mut number = 0u64;
        let latencies = self.halves(frames, claims, count, |slot| {
            while self.arena.stats().lent < self.frames {
                let key = format!("full {number}");
                let stored = cache.put(slot, NODE, key.as_bytes(), &value);
                if stored.map_err(failed)? != Stored::Kept {
                    return Err(failed("a put into idle frames was dropped"));
                }
                number += 1;
            }
            Ok(())
        })?;
        count.discards += discards()? - before;
        count.frames_of_full += u64::from(claims) * u64::from(frames);
        Ok(latencies)
    }

    /// Claims while a tenant looks up and puts.
    pub fn claims_beside(
        &self,
        frames: u32,
        claims: u32,
        seed: u64,
        count: &mut Count,
    ) -> Result<Latencies, BenchError> {
        let cache = self.cache()?;
        let before = cache.stats()?;
        let done = AtomicBool::new(false);
        let latencies = std::thread::scope(|scope| {
            let tenant = scope.spawn(|| {
                let keys = Tenant::keys(self.frames);
                let mut tenant = Tenant::new(cache, &keys, seed)?;
                while !done.load(Relaxed) {
                    tenant.look_up(1)?;
                }
                Ok(())
            });
            let latencies = self.halves(frames, claims, count, |_| Ok(()));
            done.store(true, Relaxed);
            joined(tenant).and(latencies)
        })?;
        let after = cache.stats()?;
        count.hits += after.hits - before.hits;
        count.lookups += after.hits + after.misses - before.hits - before.misses;
        count.kept += after.kept - before.kept;
        count.dropped += after.dropped - before.dropped;
        Ok(latencies)
    }
}

/// A tenant: it looks records up by Zipf's law over twice as many as there is place for, and fills
/// in those that it misses.
pub struct Tenant<'a> {
    cache: &'a Discardable,
    slot: Slot<'a>,
    keys: &'a Zipfian,
    random: Random,
    value: Vec<u8>,
    found: Vec<u8>,
}

impl<'a> Tenant<'a> {
    /// Which records such a number of frames has half of the place for.
    pub fn keys(frames: u32) -> Zipfian {
        let records = 2 * u64::from(frames) * FRAME_BYTES / VALUE as u64;
        Zipfian::new(records, YCSB_THETA)
    }

    pub fn new(cache: &'a Discardable, keys: &'a Zipfian, seed: u64) -> Result<Self, BenchError> {
        Ok(Tenant {
            cache,
            slot: cache.arena().participants().slot().map_err(failed)?,
            keys,
            random: Random::new(seed),
            value: vec![0; VALUE],
            found: Vec::new(),
        })
    }

    pub fn look_up(&mut self, lookups: u64) -> Result<(), BenchError> {
        for _ in 0..lookups {
            let key = self.keys.draw(&mut self.random).to_le_bytes();
            self.value[..8].copy_from_slice(&key);
            match self.cache.get(&key, &mut self.found) {
                CacheLookup::Hit if self.found == self.value => {}
                CacheLookup::Hit => {
                    return Err(BenchError::wrong(
                        BUSY,
                        "lookups",
                        "returned a value that was not put",
                    ));
                }
                CacheLookup::Miss(ticket) => {
                    let (slot, value) = (&self.slot, &self.value);
                    let stored = self.cache.fill(slot, NODE, ticket, &key, value);
                    let _: Stored = stored.map_err(failed)?;
                }
            }
        }
        Ok(())
    }
}
