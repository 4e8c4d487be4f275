//! How a client asks for records: attached to the store, or over a socket.

pub mod attached;
pub mod socket;

use crate::error::BenchError;
use crate::generate::random::Random;

/// What clients of every kind can be asked for. Each says how many requests were answered as they
/// should have been.
pub trait Asks {
    /// Copies out the value of a record.
    fn get(&mut self, id: u32) -> Result<bool, BenchError>;
    /// Stores the record's value anew.
    fn set(&mut self, id: u32) -> Result<bool, BenchError>;
    /// Does all of these at once.
    fn batch(&mut self, gets: &[u32], sets: &[u32]) -> Result<usize, BenchError>;
}

/// Appends the value of record `id`: its number, and as much more as it needs.
#[inline]
pub fn value_of(id: u32, bytes: usize, to: &mut Vec<u8>) {
    to.extend_from_slice(&id.to_le_bytes());
    to.resize(to.len() + bytes - size_of::<u32>(), 0x5A);
}

/// Appends another value of record `id`, one that no compression makes shorter.
#[inline]
pub fn noise_of(id: u32, bytes: usize, to: &mut Vec<u8>) {
    let end = to.len() + bytes;
    to.extend_from_slice(&id.to_le_bytes());
    let mut random = Random::new(u64::from(id));
    while to.len() < end {
        to.extend_from_slice(&random.next_u64().to_le_bytes());
    }
    to.truncate(end);
}

/// Whether `value` is that of record `id`.
#[inline]
pub fn is_value(value: &[u8], id: u32, bytes: usize) -> bool {
    value.len() == bytes && value.starts_with(&id.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_tells_the_record_it_belongs_to() {
        let mut value = Vec::new();
        value_of(7, 4, &mut value);
        assert!(is_value(&value, 7, 4) && !is_value(&value, 8, 4) && !is_value(&value, 7, 5));
        value_of(7, 1024, &mut value);
        assert_eq!(value.len(), 4 + 1024);
    }
}
