//! An image of a hash or a set, made by changes and then damaged, or of any bytes: reading and
//! changing it end in an error or in an answer, and a change that fails changes nothing.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use mneme_collections::{HashEdit, Limits, PackedHash, PackedSet, SetEdit};

#[derive(Debug, Arbitrary)]
struct Input {
    set: Vec<(Vec<u8>, Vec<u8>)>,
    damage: Vec<(u16, u8)>,
    cut: Option<u16>,
    anything: Vec<u8>,
    sought: Vec<u8>,
}

fuzz_target!(|input: Input| {
    let mut edit = HashEdit::new();
    for (field, value) in &input.set {
        edit.set(field, value).unwrap();
        assert!(edit.read().unwrap().get(field).unwrap().unwrap().to_vec() == *value);
    }
    edit.read().unwrap().check().unwrap();
    let mut set = SetEdit::new();
    for (member, _) in &input.set {
        set.add(member).unwrap();
        assert!(set.read().unwrap().contains(member).unwrap());
    }
    set.read().unwrap().check().unwrap();
    for mut image in [edit.into_image(), set.into_image(), input.anything] {
        for (at, byte) in &input.damage {
            let at = usize::from(*at) % image.len().max(1);
            if let Some(old) = image.get_mut(at) {
                *old = *byte;
            }
        }
        if let Some(cut) = input.cut {
            image.truncate(usize::from(cut));
        }
        use_all(&image, &input.sought);
        use_set(&image, &input.sought);
    }
});

fn use_set(image: &[u8], member: &[u8]) {
    let Ok(set) = PackedSet::read(image) else {
        return;
    };
    let _ = (set.len(), set.check(), set.contains(member), set.scan(0, 2));
    let raw: Vec<_> = set.raw().map_while(Result::ok).collect();
    let _ = (set.contains_many(&raw), set.members().count());
    let before = SetEdit::of(image).unwrap();
    let mut edits = [before.clone(), before.clone(), before.clone(), before.clone()];
    let failed = [
        edits[0].add(member).is_err(),
        edits[1].remove(member).is_err(),
        edits[2].add_many(&[member; 9]).is_err(),
        edits[3].remove_many(&[member; 9]).is_err(),
    ];
    for (edit, failed) in edits.iter().zip(failed) {
        assert!(!failed || *edit == before);
    }
    let _ = before.clone().convert(3);
}

fn use_all(image: &[u8], field: &[u8]) {
    let Ok(hash) = PackedHash::read(image) else {
        return;
    };
    let _ = (
        hash.len(),
        hash.check(),
        hash.get(field),
        hash.scan(0, 2),
        hash.nth(1),
    );
    let _ = hash.get_many(&[field; 9]);
    let of = || HashEdit::of(image).unwrap();
    let before = of();
    let pairs = vec![(field, field); 9];
    let mut edits = [of(), of(), of(), of(), of()];
    let failed = [
        edits[0].set(field, b"value").is_err(),
        edits[1].remove(field).is_err(),
        edits[2].increment(field, 1).is_err(),
        edits[3].set_many(&pairs).is_err(),
        edits[4].remove_many(&[field; 9]).is_err(),
    ];
    for (edit, failed) in edits.iter().zip(failed) {
        assert!(!failed || *edit == before);
    }
    let _ = of().convert(Limits::default());
}
