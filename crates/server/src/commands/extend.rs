//! Values that a command changes a part of.

/// A copy of `value`, with zeros behind it if it is shorter than `len`. Allocates once, and a long tail of zeros costs
/// nothing until it is read.
pub(crate) fn extended(value: &[u8], len: usize) -> Vec<u8> {
    if len <= value.len() {
        return value.to_vec();
    }
    let mut extended = vec![0; len];
    extended[..value.len()].copy_from_slice(value);
    extended
}
