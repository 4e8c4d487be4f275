//! The systems of a comparison behind one trait.
//!
//! The rules are the same for all: a key is made from the record's number by whoever needs one, a
//! value is copied out (nobody is credited with a reference), and every copy is checked for whose
//! it is. Peers get their fastest documented way to do each thing, and our hash function in place
//! of a slower default.

pub mod bare;
pub mod daemon;
mod dashmap;
pub mod memcached;
pub mod mneme;
mod moka;
mod papaya;
pub mod pipeline;
pub mod redis;
mod scc;
pub mod strings;

use crate::error::BenchError;
use crate::generate::keys::stamp_of;
use mneme_log::UpdatePolicy;

/// Our own stores in a comparison.
pub const OURS: [&str; 2] = [mneme::NAME, mneme::OVERWRITING];

/// Peers that can be asked for.
pub const PEERS: [&str; 4] = ["dashmap", "papaya", "scc", "moka"];

/// Records of a batched call.
pub const BATCH: usize = 32;

/// A thread's part in a measurement.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Its number.
    pub thread: u32,
    /// Of how many.
    pub threads: u32,
    /// Whether any of them will write.
    pub writers: bool,
}

/// A store of records by number, shared by threads.
pub trait System: Sync {
    /// Every thread of a measurement says so before its first operation, with a number of its own.
    fn enter(&self, _: Entry) {}

    /// Copies the record's value to `into`, which is as long; whether it was there and its own.
    fn read(&self, id: u32, into: &mut [u8]) -> bool;

    /// Stores the record's value, whether or not there is one; whether it was stored.
    fn write(&self, id: u32, value: &[u8]) -> bool;

    /// Reads the record's value to `into`, lets [`change`] alter it, stores it, as one atomic step.
    fn modify(&self, id: u32, into: &mut [u8]) -> bool;

    /// Removes the record; whether it was there.
    fn remove(&self, id: u32) -> bool;

    /// Reads several records, one after the other to the same `into`; how many were there and their
    /// own.
    #[inline]
    fn read_many(&self, ids: &[u32], into: &mut [u8]) -> usize {
        ids.iter().filter(|&&id| self.read(id, into)).count()
    }

    /// Stores several records, whose values lie one after the other; how many were stored.
    #[inline]
    fn write_many(&self, ids: &[u32], values: &[u8]) -> usize {
        let values = values.chunks_exact(values.len() / ids.len().max(1));
        ids.iter()
            .zip(values)
            .filter(|&(&id, value)| self.write(id, value))
            .count()
    }

    /// Why something was refused, if the system said so.
    fn trouble(&self) -> Option<String> {
        None
    }
}

/// Copies a value out and says whether it is record `id`'s.
#[inline]
pub fn take(value: &[u8], id: u32, into: &mut [u8]) -> bool {
    if value.len() != into.len() {
        return false;
    }
    into.copy_from_slice(value);
    std::hint::black_box(&mut *into);
    stamp_of(into) == u64::from(id)
}

/// What a read-modify-write does to a value: it counts in the eight bytes behind the stamp.
#[inline]
pub fn change(value: &mut [u8]) {
    let mut counter = [0; 8];
    counter.copy_from_slice(&value[8..16]);
    let counter = u64::from_le_bytes(counter).wrapping_add(1);
    value[8..16].copy_from_slice(&counter.to_le_bytes());
}

/// What is stored, and how much of it.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// How many records.
    pub records: u64,
    /// Bytes of a value.
    pub value: usize,
}

/// Hands a system, once made, to generic code; the code that is measured is compiled for each
/// system.
pub trait Visitor {
    /// What comes back.
    type Result;
    /// Called with the system.
    fn visit<S: System + 'static>(self, system: S) -> Self::Result;
}

/// Makes the system called `name`, empty, and hands it over.
///
/// # Errors
/// No memory; a name nobody has.
pub fn with<V: Visitor>(name: &str, load: Load, visitor: V) -> Result<V::Result, BenchError> {
    Ok(match name {
        bare::NAME => visitor.visit(bare::BareRecords::new(load)?),
        mneme::NAME => visitor.visit(mneme::Store::new(load, UpdatePolicy::Append)?),
        mneme::OVERWRITING => visitor.visit(mneme::Store::new(load, UpdatePolicy::InPlace)?),
        "dashmap" => visitor.visit(dashmap::Peer::new()),
        "papaya" => visitor.visit(papaya::Peer::new()),
        "scc" => visitor.visit(scc::Peer::new()),
        "moka" => visitor.visit(moka::Peer::new()),
        other => {
            return Err(BenchError::Options(format!(
                "no system is called `{other}`"
            )));
        }
    })
}

/// The hash that the peers are given: the one we use.
pub type Hash = rapidhash::quality::SeedableState<'static>;

/// A hasher whose seed is always the same.
pub fn hasher() -> Hash {
    Hash::fixed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::keys::stamp;

    struct Conformance(&'static str);

    impl Visitor for Conformance {
        type Result = ();
        fn visit<S: System + 'static>(self, system: S) {
            let name = self.0;
            let value_of = |id: u32| {
                let mut value = vec![0; 100];
                stamp(&mut value, id);
                value
            };
            let mut into = vec![0; 100];
            let ids: Vec<u32> = (0..BATCH as u32).collect();
            let values: Vec<u8> = ids.iter().flat_map(|&id| value_of(id)).collect();
            assert_eq!(system.write_many(&ids, &values), BATCH, "{name}");
            assert_eq!(system.read_many(&ids, &mut into), BATCH, "{name}");
            assert!(system.write(40, &value_of(40)), "{name}");
            assert!(system.read(40, &mut into) && into == value_of(40), "{name}");
            assert!(
                system.modify(40, &mut into) && system.modify(40, &mut into),
                "{name}"
            );
            assert!(system.read(40, &mut into), "{name}");
            assert_eq!(into[8], 2, "{name}: both changes are there");
            assert_eq!(system.trouble(), None, "{name}");
            if name != bare::NAME {
                assert!(system.write(40, &value_of(41)), "{name}");
                assert!(
                    !system.read(40, &mut into),
                    "{name}: another record's value is not taken for its own"
                );
                assert!(
                    !system.read(99, &mut into) && !system.modify(99, &mut into),
                    "{name}"
                );
                assert!(
                    system.remove(40) && !system.remove(40) && !system.read(40, &mut into),
                    "{name}"
                );
                assert_eq!(system.read_many(&[1, 40, 2], &mut into), 2, "{name}");
            }
        }
    }

    #[test]
    fn all_systems_do_the_same_things() {
        let load = Load {
            records: 100,
            value: 100,
        };
        for name in [bare::NAME].into_iter().chain(OURS).chain(PEERS) {
            with(name, load, Conformance(name)).unwrap();
        }
        assert!(with("redis", load, Conformance("redis")).is_err());
    }
}
