//! A segment's description, header and control words overwritten or cut off: opening, mapping,
//! checking, cleaning and removing it answer or say what is wrong, and its name can be used again.
#![no_main]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use mneme_fuzz::registry;
use mneme_space::Segment;
use mneme_sys::Access;

#[derive(Debug, Arbitrary)]
struct Case {
    meta: Vec<(u16, u8)>,
    meta_len: Option<u16>,
    header: Vec<(u8, u64)>,
    data_len: Option<u32>,
    control: Vec<(u16, u64)>,
    control_len: Option<u32>,
}

/// Overwrites words and cuts the file off.
fn damage(path: &PathBuf, words: impl Iterator<Item = (u64, u64)>, len: Option<u64>) {
    let file = File::options().write(true).open(path).unwrap();
    for (at, word) in words.take(16) {
        file.write_all_at(&word.to_le_bytes(), at * 8).unwrap();
    }
    if let Some(len) = len {
        file.set_len(len).unwrap();
    }
}

fuzz_target!(|case: Case| {
    let registry = registry();
    let made = registry.segment("s").create().unwrap();
    let directory = registry.root().join("segments/s");
    let data = made.info().unwrap().data;

    let mut text = fs::read(directory.join("meta")).unwrap();
    for (at, byte) in case.meta.iter().take(16) {
        let at = usize::from(*at) % text.len();
        text[at] = *byte;
    }
    text.truncate(case.meta_len.map_or(usize::MAX, usize::from));
    fs::write(directory.join("meta"), text).unwrap();
    let words = case
        .header
        .iter()
        .map(|(at, word)| (u64::from(at % 16), *word));
    damage(&data, words, case.data_len.map(u64::from));
    // The control region: its header, its processes and the first slots.
    let words = case
        .control
        .iter()
        .map(|(at, word)| (u64::from(at % 4096), *word));
    damage(
        &directory.join("control"),
        words,
        case.control_len.map(u64::from),
    );

    let found = registry.check().unwrap();
    match Segment::open(registry, "s") {
        Ok(segment) => {
            assert_eq!(segment.uuid(), made.uuid());
            segment.info().unwrap();
            // Mapped or refused; what is mapped is there.
            if let Ok(mapping) = segment.map(Access::ReadOnly) {
                // SAFETY: nobody is in a section of it.
                unsafe { mapping.region() }
                    .load_u64(mapping.len() as u64 - 8)
                    .unwrap();
            }
        }
        Err(_) => assert!(!found.is_empty(), "what cannot be opened is not reported"),
    }
    registry.clean().unwrap();
    registry
        .remove_segment("s")
        .unwrap_or_else(|e| panic!("{e}"));
    registry.clean().unwrap();
    assert_eq!(registry.check().unwrap(), []);
});
