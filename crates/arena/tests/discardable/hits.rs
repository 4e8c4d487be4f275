//! Which lookups hit, and which values are too old to be returned.

use std::sync::atomic::Ordering::Relaxed;

use mneme_arena::{CacheLookup, Dropped, Extent, MAX_RECORD, Stored};

use crate::support::NODE;
use crate::{SHAPE, descriptor, generation, get, keyed, lending, put};

#[test]
fn all_openings_find_a_record_until_it_is_removed() {
    let (world, _process, cache) = lending(SHAPE);
    let other = world.open().cache();
    assert_eq!(get(&cache, b"a"), None);
    for length in [0, 1, 7, 8, 100, 4096, 100_000] {
        let value = keyed(length as u64, length);
        assert_eq!(put(&cache, b"a", &value), Stored::Kept);
        assert_eq!(get(&other, b"a"), Some(value), "{length}");
    }
    assert_eq!(put(&other, b"", b"of the empty key"), Stored::Kept);
    assert_eq!(get(&cache, b""), Some(b"of the empty key".to_vec()));
    other.remove(b"a").unwrap();
    assert_eq!(get(&cache, b"a"), None);
    other.clear().unwrap();
    assert_eq!(get(&cache, b""), None);
    let stats = cache.stats().unwrap();
    assert_eq!((stats.hits, stats.kept, stats.dropped), (1, 7, 0));
    assert_eq!(stats.frames, 1);
}

/// Claims of single frames take the frame that the policy evicts first, not the one with the lowest
/// address.
#[test]
fn records_that_are_hit_outlive_others() {
    let (_world, process, cache) = lending(SHAPE);
    let key = |number: u64| number.to_le_bytes();
    for number in 0..40u64 {
        // A small record that is looked up, and one that fills the rest of its frame.
        assert_eq!(put(&cache, &key(number), b"small"), Stored::Kept);
        assert_eq!(
            put(&cache, &key(number + 100), &keyed(number, MAX_RECORD - 100)),
            Stored::Kept
        );
        for _ in 0..100 {
            // Two are read all the time, the others never.
            get(&cache, &key(0));
            get(&cache, &key(1));
        }
    }
    assert!(get(&cache, &key(0)).is_some() && get(&cache, &key(1)).is_some());
    assert!((2..20).all(|number| get(&cache, &key(number)).is_none()));
    for _ in 0..8 {
        process.hold(1);
    }
    assert!(get(&cache, &key(0)).is_some() && get(&cache, &key(1)).is_some());
    process.assert_whole();
}

/// Generation numbers start again while frames are lent, claimed and lent again. Nothing older than
/// its frame's generation is found, and no frame counts as never claimed.
#[test]
fn generation_numbers_may_repeat_without_harm() {
    let (_world, process, cache) = lending(SHAPE);
    for frame in 1..SHAPE.frames as u32 {
        let word = descriptor(&process, frame);
        let low = word.load(Relaxed) & u64::from(u32::MAX);
        word.store(low | u64::from(u32::MAX - frame % 4) << 32, Relaxed);
    }
    process.assert_whole();
    let mut begun_again = 0;
    for round in 0..12u64 {
        // Each record fills a frame.
        for number in 0..10u64 {
            let value = keyed(round << 8 | number, MAX_RECORD - 8);
            assert_eq!(put(&cache, &number.to_le_bytes(), &value), Stored::Kept);
        }
        let found = |number: u64| {
            let found = get(&cache, &number.to_le_bytes());
            if let Some(found) = &found {
                assert!(*found == keyed(round << 8 | number, MAX_RECORD - 8));
            }
            found.is_some()
        };
        let there = (0..10).filter(|number| found(*number)).count();
        assert_eq!(there, 10, "in round {round}");
        // All frames except the one being filled: in runs, and the rest one by one.
        let claims = [1 + round as u32 % 3, 1].into_iter();
        let mut taken: Vec<Extent> = Vec::new();
        for frames in claims {
            taken.extend(std::iter::from_fn(|| process.claim(frames).ok()));
        }
        assert_eq!(taken.iter().map(|extent| extent.frames).sum::<u32>(), 15);
        let there = (0..10).filter(|number| found(*number)).count();
        assert!(there <= 1, "{there} found in frames that were claimed");
        for extent in taken {
            process.release(extent).unwrap();
        }
        process.assert_whole();
        let generations = (1..SHAPE.frames as u32).map(|frame| generation(&process, frame));
        assert!(generations.clone().all(|generation| generation > 0));
        begun_again += generations.filter(|generation| *generation < 100).count();
    }
    assert!(begun_again > 100, "{begun_again}");
}

/// An entry contains the low bits of a generation. When these repeat, the entry matches again, and
/// its record's bytes may still be there; but the record's checksum covers all bits.
#[test]
fn an_entry_that_matches_again_finds_nothing() {
    let (_world, process, cache) = lending(SHAPE);
    assert_eq!(put(&cache, b"first", &[1; 100]), Stored::Kept);
    assert_eq!(put(&cache, b"second", &[2; 100]), Stored::Kept);
    let filling = process.arena.being_filled()[0];
    // Sealed by a record that does not fit.
    assert_eq!(
        put(&cache, b"large", &vec![3; MAX_RECORD - 8]),
        Stored::Kept
    );
    assert!(get(&cache, b"second").is_some());
    let before = generation(&process, filling.0);
    let of_entry = 1 << 11;
    for _ in 1..of_entry {
        let all: Vec<Extent> = std::iter::from_fn(|| process.claim(1).ok()).collect();
        for extent in all {
            process.release(extent).unwrap();
        }
    }
    // It is lent with those low bits, and the second record's bytes are unchanged.
    assert_eq!(put(&cache, b"third", &[4; 8]), Stored::Kept);
    assert_eq!(process.arena.being_filled(), [filling]);
    assert_eq!(generation(&process, filling.0), before + of_entry);
    assert_eq!(get(&cache, b"second"), None);
}

#[test]
fn a_ticket_from_before_a_change_is_refused() {
    let (_world, process, cache) = lending(SHAPE);
    let slot = process.arena.participants().slot().unwrap();
    let mut value = Vec::new();
    let CacheLookup::Miss(ticket) = cache.get(b"key", &mut value) else {
        panic!("a hit in an empty cache");
    };
    let fill = |ticket, key: &[u8]| cache.fill(&slot, NODE, ticket, key, b"old").unwrap();
    assert_eq!(fill(ticket, b"other"), Stored::Dropped(Dropped::Superseded));
    cache.remove(b"key").unwrap();
    assert_eq!(fill(ticket, b"key"), Stored::Dropped(Dropped::Superseded));
    assert_eq!(get(&cache, b"key"), None);
    let CacheLookup::Miss(ticket) = cache.get(b"key", &mut value) else {
        panic!("a hit after a removal");
    };
    assert_eq!(fill(ticket, b"key"), Stored::Kept);
    assert_eq!(get(&cache, b"key"), Some(b"old".to_vec()));
    cache.clear().unwrap();
    assert_eq!(fill(ticket, b"key"), Stored::Dropped(Dropped::Superseded));
}
