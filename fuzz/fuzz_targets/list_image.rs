//! An image of a list, made by changes and then damaged, or of any bytes: reading and changing it
//! end in an error or in an answer, and a change that fails changes nothing.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use mneme_collections::{End, LIST, ListEdit, PackedList, apply};

#[derive(Debug, Arbitrary)]
struct Input {
    pushed: Vec<(bool, Vec<u8>)>,
    damage: Vec<(u16, u8)>,
    cut: Option<u16>,
    anything: Vec<u8>,
    item: Vec<u8>,
    position: u64,
}

fuzz_target!(|input: Input| {
    let mut edit = ListEdit::new();
    for (at_front, item) in &input.pushed {
        let (end, index) = match at_front {
            true => (End::Front, 0),
            false => (End::Back, edit.len().unwrap()),
        };
        edit.push(end, item).unwrap();
        assert!(edit.get(index).unwrap().unwrap() == *item);
    }
    edit.read().unwrap().check().unwrap();
    let mut image = edit.into_image();
    for (at, byte) in &input.damage {
        let at = usize::from(*at) % image.len();
        image[at] = *byte;
    }
    if let Some(cut) = input.cut {
        image.truncate(usize::from(cut));
    }
    use_all(&image, &input);
    use_all(&input.anything, &input);
});

fn use_all(image: &[u8], Input { item, position, .. }: &Input) {
    let element = position.to_be_bytes();
    if let Ok(replayed) = apply(LIST, image, &element, Some(item)) {
        let _ = apply(LIST, &replayed, &element, None);
    }
    let Ok(list) = PackedList::read(image) else {
        return;
    };
    let _ = (list.len(), list.check(), list.get(1), list.items().count());
    let _ = list.positions(item, End::Back, 9, |_| true);
    let of = || ListEdit::of(image).unwrap();
    let before = of();
    let mut edits = [of(), of(), of(), of(), of(), of(), of()];
    let failed = [
        edits[0].push(End::Front, item).is_err(),
        edits[1].push(End::Back, item).is_err(),
        edits[2].pop(End::Back, 2, |_| ()).is_err(),
        edits[3].set(1, item).is_err(),
        edits[4].insert(item, true, item).is_err(),
        edits[5].remove(End::Back, 1, item).is_err(),
        edits[6].trim(1..2).is_err(),
    ];
    for (edit, failed) in edits.iter().zip(failed) {
        assert!(!failed || *edit == before);
    }
}
