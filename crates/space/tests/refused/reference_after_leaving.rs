//! Rule 1: not the pointer but what it led to is kept.
use mneme_space::LocalSegment;

fn main() {
    let segment = LocalSegment::new("a", 4 << 20).unwrap();
    let kept = segment.enter(|here| {
        let at = here.alloc(7_u64).unwrap();
        at.get(here).unwrap()
    });
}
