//! A reader that remembers the last bytes it gave, to tell whether a compressed file ends as it
//! should.

use std::io::{self, Read};

/// The empty block at the end of every BGZF file (SAM specification, section 4.1.2).
const END_OF_BGZF: [u8; 28] =
    *b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x06\0BC\x02\0\x1b\0\x03\0\0\0\0\0\0\0\0\0";

/// See the [module's documentation](self).
pub struct Tail<R> {
    inner: R,
    last: [u8; END_OF_BGZF.len()],
}

impl<R> Tail<R> {
    pub fn new(inner: R) -> Self {
        Self {
            inner,
            last: [0; END_OF_BGZF.len()],
        }
    }

    /// Whether the bytes so far end with the mark.
    pub fn is_end_of_bgzf(&self) -> bool {
        self.last == END_OF_BGZF
    }
}

impl<R: Read> Read for Tail<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = self.inner.read(into)?;
        let new = &into[..len];
        // Of the former bytes as many stay as the new ones leave space for.
        let fresh = len.min(END_OF_BGZF.len());
        self.last.copy_within(fresh.., 0);
        self.last[END_OF_BGZF.len() - fresh..].copy_from_slice(&new[len - fresh..]);
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_seen_however_it_is_cut() {
        let mut bytes = vec![7; 100];
        bytes.extend(END_OF_BGZF);
        for step in 1..bytes.len() {
            let mut tail = Tail::new(&*bytes);
            let mut into = vec![0; step];
            while tail.read(&mut into).unwrap() > 0 {}
            assert!(tail.is_end_of_bgzf(), "{step}");
        }
        let mut tail = Tail::new(&bytes[..bytes.len() - 1]);
        tail.read_to_end(&mut Vec::new()).unwrap();
        assert!(!tail.is_end_of_bgzf());
    }
}
