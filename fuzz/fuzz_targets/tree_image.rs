//! A durable store's bytes with words overwritten or the end cut off: it is opened, checked, read
//! and written without a crash, and what it shows was once put.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/tree/tests/image/mod.rs"]
mod image;
#[path = "../../crates/tree/tests/common/kept.rs"]
mod kept;

use image::{Change, Damage, Image};

#[derive(Debug, Arbitrary)]
struct Case {
    damages: Vec<(u8, u32, Word)>,
    len: Option<u32>,
}

#[derive(Debug, Arbitrary)]
enum Word {
    Set(u64),
    Small(u8),
    Flip(u8),
    Add(i8),
    Copy(u32),
}

fuzz_target!(|case: Case| {
    let damages: Vec<_> = case
        .damages
        .iter()
        .take(16)
        .map(|(area, pick, word)| Damage {
            area: *area,
            pick: *pick,
            change: match *word {
                Word::Set(word) => Change::Set(word),
                Word::Small(word) => Change::Set(word.into()),
                Word::Flip(bit) => Change::Flip(bit),
                Word::Add(n) => Change::Add(n),
                Word::Copy(n) => Change::Copy(n),
            },
        })
        .collect();
    let image = Image::get();
    image.survives(image.damaged(&damages, case.len));
});
