//! Runs are found as a whole, adopted once, and freed only by their own generation.

use super::*;

fn table(frames: usize) -> Vec<Descriptor> {
    let table: Vec<Descriptor> = (0..frames).map(|_| Descriptor::default()).collect();
    for descriptor in &table {
        descriptor.set(Status::free(0));
    }
    table
}

#[test]
fn a_run_is_found_from_each_of_its_frames_and_from_no_other() {
    let owned = table(8);
    let table = DescriptorTable(&owned);
    table.write_run(2..6, 77, 5, 1, |_| ()).unwrap();
    for frame in 0..8 {
        let status = Status {
            state: State::Claimed,
            tag: 77,
            owner: 5,
            generation: 1,
        };
        let wanted = (2..6).contains(&frame).then_some(FrameRun {
            head: 2,
            frames: 4,
            status,
        });
        assert_eq!(table.run_of(frame), wanted);
    }
    assert_eq!(table.run_of(8), None);
    assert!(table.free_run(2..6, 1, false, || ()));
    assert!((0..8).all(|frame| table.run_of(frame).is_none()));
}

#[test]
fn tails_without_a_head_are_not_a_run() {
    let owned = table(4);
    let table = DescriptorTable(&owned);
    table.write_run(0..3, 0, 5, 1, |_| ()).unwrap();
    owned[0].set(Status::free(1));
    assert!((0..4).all(|frame| table.run_of(frame).is_none()));
}

#[test]
fn freeing_again_does_not_touch_later_runs_of_the_same_frames() {
    let owned = table(6);
    let table = DescriptorTable(&owned);
    let old = table.next_generation(0..4).unwrap();
    table.write_run(0..4, 0, 5, old, |_| ()).unwrap();
    table.free_run(0..4, old, false, || ());
    let new = table.next_generation(2..6).unwrap();
    table.write_run(2..6, 0, 6, new, |_| ()).unwrap();
    table.free_run(0..4, old, false, || ());
    assert_eq!(table.run_of(3).map(|run| run.range()), Some(2..6));
}

#[test]
fn only_a_claimed_run_is_adopted_and_only_once() {
    let owned = table(4);
    let table = DescriptorTable(&owned);
    table.write_run(0..2, 0, 5, 1, |_| ()).unwrap();
    assert_eq!(table.adopt(0..1), Err(NotAdoptable::NoSuchRun));
    assert_eq!(table.adopt(1..2), Err(NotAdoptable::NoSuchRun));
    assert_eq!(table.adopt(2..4), Err(NotAdoptable::NoSuchRun));
    assert_eq!(table.adopt(9..10), Err(NotAdoptable::NoSuchRun));
    assert_eq!(table.adopt(0..2), Ok(()));
    assert_eq!(table.adopt(0..2), Err(NotAdoptable::AlreadyHeld));
    assert!(!table.free_run(0..2, 1, true, || ()));
    assert_eq!(
        table.run_of(1).map(|run| run.status.state),
        Some(State::Held)
    );
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_bytes_give_no_run_or_one_inside_the_table_with_the_frame(
        words in proptest::collection::vec((0u64..64, 0u64..3, 0u64..6, 0u64..6), 6), frame in 0u32..8,
    ) {
        let owned = table(6);
        for (descriptor, (low, generation, frames, back)) in owned.iter().zip(words) {
            descriptor.status.store(low | generation << 32, Release);
            descriptor.run.store(frames | back << 32, Release);
        }
        if let Some(run) = DescriptorTable(&owned).run_of(frame) {
            proptest::prop_assert!(run.range().contains(&frame) && run.range().end <= 6);
        }
    }
}

/// The status of a one-frame run of generation 2 with this tag after it was freed.
fn freed(tag: u16) -> Status {
    let owned = table(1);
    let table = DescriptorTable(&owned);
    table.write_run(0..1, 1, 5, 1, |_| ()).unwrap();
    assert!(table.free_run(0..1, 1, false, || ()));
    table.write_run(0..1, tag, 5, 2, |_| ()).unwrap();
    assert!(table.free_run(0..1, 2, true, || ()));
    owned[0].status().unwrap()
}

#[test]
fn a_frame_whose_memory_was_being_returned_is_bare_after_any_free() {
    let bare = freed(TAG_BARE);
    assert!(bare.is_bare() && !bare.is_spare() && bare.generation == 2);
}

/// The broken twin of the previous test: a process gives back memory with an ordinary claim, and
/// dies after the memory is gone.
#[test]
fn a_giver_with_an_ordinary_tag_leaves_a_frame_that_counts_as_backed() {
    let free = freed(1);
    assert!(free.is_spare() && !free.is_bare());
}

#[test]
fn only_the_bare_frame_that_was_seen_counts_as_backed_again() {
    let owned = table(1);
    let table = DescriptorTable(&owned);
    let give_back = |generation| {
        table
            .write_run(0..1, TAG_BARE, 5, generation, |_| ())
            .unwrap();
        table.free_run(0..1, generation, false, || ());
        owned[0].status().unwrap()
    };
    let seen = give_back(1);
    let later = give_back(2);
    owned[0].regain(seen);
    assert!(owned[0].status().unwrap().is_bare());
    owned[0].regain(later);
    assert!(owned[0].status().unwrap().is_spare());
}
