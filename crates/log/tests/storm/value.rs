//! Values that name their owner, and in which no byte can belong to another value.

/// Bytes of the shortest value.
pub const LEAST: usize = 32;
/// The number of bytes that a change of a part replaces; the bytes after them identify the whole
/// value to which they belong.
pub const PART: usize = 4096;
/// How many elements a shared record has: one for each lane.
pub const ELEMENTS: usize = super::names::LANES;

const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

fn word(bytes: &[u8], i: usize) -> u64 {
    let bytes = bytes.get(i * 8..i * 8 + 8);
    bytes.map_or(0, |b| u64::from_le_bytes(b.try_into().unwrap()))
}

/// The content of a value: the lane that wrote it, under which name, the number of the change that
/// last wrote a part of it, the number of the one that wrote it as a whole, and its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    pub lane: usize,
    pub name: usize,
    pub seq: u64,
    pub whole: u64,
    pub len: usize,
}

impl Stamp {
    fn body(self) -> impl Iterator<Item = u64> {
        let name = mix((self.lane as u64) << 32 | self.name as u64);
        (0..).map(move |i: u64| {
            let of_part = LEAST as u64 + i * 8 < PART as u64;
            let start = name ^ mix(if of_part { self.seq } else { self.whole });
            start.wrapping_add(i.wrapping_mul(ODD))
        })
    }

    /// The value.
    pub fn bytes(self) -> Vec<u8> {
        assert!(self.len >= LEAST);
        let head = [
            (self.lane as u64) << 32 | self.name as u64,
            self.seq,
            self.whole,
            self.len as u64,
        ];
        let mut bytes = Vec::with_capacity(self.len + 8);
        head.iter()
            .for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        let words = (self.len - LEAST).div_ceil(8);
        for word in self.body().take(words) {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.truncate(self.len);
        bytes
    }

    /// The content of the first bytes of a value.
    pub fn of_head(bytes: &[u8]) -> Stamp {
        Stamp {
            lane: (word(bytes, 0) >> 32) as usize,
            name: word(bytes, 0) as u32 as usize,
            seq: word(bytes, 1),
            whole: word(bytes, 2),
            len: word(bytes, 3) as usize,
        }
    }

    /// The content of these bytes, if all of them agree.
    pub fn of(bytes: &[u8]) -> Result<Stamp, String> {
        let stamp = Stamp {
            len: bytes.len(),
            ..Stamp::of_head(bytes)
        };
        if bytes.len() < LEAST || word(bytes, 3) != bytes.len() as u64 {
            return Err(format!(
                "{} bytes that say they are {}: {stamp:?}",
                bytes.len(),
                word(bytes, 3)
            ));
        }
        let chunks = bytes[LEAST..].chunks(8);
        for (i, (chunk, expected)) in chunks.zip(stamp.body()).enumerate() {
            if chunk != &expected.to_le_bytes()[..chunk.len()] {
                return Err(format!(
                    "byte {} is of another value: {stamp:?}",
                    LEAST + i * 8
                ));
            }
        }
        Ok(stamp)
    }
}

/// A record that every lane changes: one number for each of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shared(pub [u64; ELEMENTS]);

impl Shared {
    fn check(self, number: usize) -> u64 {
        let words = self.0.iter();
        words.fold(mix(number as u64), |sum, word| mix(sum ^ word))
    }

    /// The value of shared record `number`.
    pub fn bytes(self, number: usize) -> Vec<u8> {
        let words = self.0.iter().copied().chain([self.check(number)]);
        words.flat_map(u64::to_le_bytes).collect()
    }

    /// The content of these bytes, if they agree.
    pub fn of(bytes: &[u8], number: usize) -> Result<Shared, String> {
        let shared = Shared(std::array::from_fn(|i| word(bytes, i)));
        let is_whole = bytes.len() == 8 * (ELEMENTS + 1);
        if !is_whole || word(bytes, ELEMENTS) != shared.check(number) {
            return Err(format!("shared record {number} is torn: {shared:?}"));
        }
        Ok(shared)
    }
}

#[test]
fn a_torn_or_foreign_value_is_detected() {
    let stamp = Stamp {
        lane: 1,
        name: 7,
        seq: 9,
        whole: 9,
        len: 203,
    };
    let bytes = stamp.bytes();
    assert_eq!(Stamp::of(&bytes), Ok(stamp));
    for i in 0..bytes.len() {
        let mut torn = bytes.clone();
        torn[i] ^= 4;
        assert_ne!(Stamp::of(&torn), Ok(stamp), "byte {i}");
    }
    let newer = Stamp {
        seq: 10,
        whole: 10,
        ..stamp
    };
    let newer = newer.bytes();
    // By the length alone it could be either's.
    for cut in 9..bytes.len() {
        let torn = [&bytes[..cut], &newer[cut..]].concat();
        let as_before = torn == bytes || torn == newer;
        assert!(as_before || Stamp::of(&torn).is_err(), "cut at {cut}");
    }
    assert!(Stamp::of(&bytes[..200]).is_err());
    let shared = Shared([1, 2, 3, 4]);
    assert_eq!(Shared::of(&shared.bytes(5), 5), Ok(shared));
    assert!(Shared::of(&shared.bytes(5), 6).is_err());
    let mut torn = shared.bytes(5);
    torn[8] += 1;
    assert!(Shared::of(&torn, 5).is_err());
}
