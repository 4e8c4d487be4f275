//! Deterministic streams of work: the same seed gives the same keys and the same operations, on
//! every machine.

pub mod keys;
pub mod operations;
pub mod random;
pub mod zipfian;
