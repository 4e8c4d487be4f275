//! A region's header is read back as written, or refused with a reason; nothing else.
#![allow(clippy::unwrap_used)] // clippy spares `#[test]` functions, not what they call

use std::sync::atomic::{AtomicU8, Ordering};

use mneme_sys::{FRAME, HEADER_LEN, HeaderError, PagePolicy, Region, RegionError, RegionHeader};

const MAGIC: [u8; 8] = *b"MNMtest\0";
const FORMAT: u32 = 3;
const LAYOUT: u64 = 0x1234_5678_9abc_def0;

fn region() -> Region {
    Region::private(FRAME, 2 * FRAME, PagePolicy::Small).unwrap()
}

fn written() -> (Region, RegionHeader) {
    let region = region();
    let header = RegionHeader::new(MAGIC, FORMAT, LAYOUT, &region).unwrap();
    header.write(&region).unwrap();
    (region, header)
}

fn read(region: &Region) -> Result<RegionHeader, HeaderError> {
    RegionHeader::read(region, MAGIC, FORMAT, LAYOUT)
}

#[test]
fn a_header_is_read_back_as_it_was_written() {
    let (region, header) = written();
    let back = read(&region).unwrap();
    assert_eq!(back.uuid, header.uuid);
    assert_eq!(back.header_len as usize, HEADER_LEN);
    assert_eq!(back.max_len, 2 * FRAME as u64);
    assert_eq!(back.committed_len, FRAME as u64);
    let other = RegionHeader::new(MAGIC, FORMAT, LAYOUT, &region).unwrap();
    assert_ne!(other.uuid, header.uuid, "identities are random");
}

#[test]
fn an_empty_region_has_no_header() {
    assert!(matches!(read(&region()), Err(HeaderError::Magic { .. })));
}

#[test]
fn another_kind_version_or_layout_is_named_with_both_sides() {
    let (region, _) = written();
    let error = RegionHeader::read(&region, *b"MNMother", FORMAT, LAYOUT).unwrap_err();
    assert!(matches!(error, HeaderError::Magic { expected, found }
        if expected == *b"MNMother" && found == MAGIC));
    let error = RegionHeader::read(&region, MAGIC, FORMAT + 1, LAYOUT).unwrap_err();
    let text = error.to_string();
    assert!(matches!(
        error,
        HeaderError::Format {
            expected: 4,
            found: 3
        }
    ));
    assert!(text.contains('3') && text.contains('4'), "{text}");
    let error = RegionHeader::read(&region, MAGIC, FORMAT, 1).unwrap_err();
    assert!(matches!(
        error,
        HeaderError::Layout {
            expected: 1,
            found: LAYOUT
        }
    ));
}

#[test]
fn any_damaged_byte_of_what_never_changes_is_noticed() {
    let (region, _) = written();
    let bytes = region.slice_at::<AtomicU8>(0, HEADER_LEN).unwrap();
    for place in (0..48).chain(120..128) {
        // Miri forbids bytes and words on the same place only when they race; these do not.
        bytes[place].fetch_xor(0x10, Ordering::Relaxed);
        assert!(read(&region).is_err(), "byte {place}");
        bytes[place].fetch_xor(0x10, Ordering::Relaxed);
    }
    read(&region).unwrap();
}

#[test]
fn an_impossible_committed_size_is_damage() {
    let (region, _) = written();
    RegionHeader::set_committed(&region, 2 * FRAME as u64).unwrap();
    assert_eq!(read(&region).unwrap().committed_len, 2 * FRAME as u64);
    RegionHeader::set_committed(&region, FRAME as u64).unwrap();
    assert_eq!(
        read(&region).unwrap().committed_len,
        2 * FRAME as u64,
        "only ever grows"
    );
    RegionHeader::set_committed(&region, 2 * FRAME as u64 + 1).unwrap();
    assert!(matches!(read(&region), Err(HeaderError::Damaged { .. })));
}

#[test]
fn the_tenants_words_are_in_the_region_and_not_in_the_checksum() {
    let (region, _) = written();
    let words = RegionHeader::client(&region).unwrap();
    for (i, word) in words.iter().enumerate() {
        word.store(i as u64 + 1, Ordering::Relaxed);
    }
    assert_eq!(read(&region).unwrap().client, [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn a_region_works_the_same_on_miris_heap() {
    let region = region();
    let word = region.at::<AtomicU8>(FRAME as u64 - 1).unwrap();
    word.store(1, Ordering::Relaxed);
    assert!(matches!(
        region.at::<AtomicU8>(FRAME as u64),
        Err(RegionError::OutOfBounds { .. })
    ));
    region.grow(2 * FRAME).unwrap();
    assert_eq!(word.load(Ordering::Relaxed), 1);
    assert!(region.at::<AtomicU8>(FRAME as u64).is_ok());
}
