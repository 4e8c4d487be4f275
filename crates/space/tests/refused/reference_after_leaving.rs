//! Rule 1: a reference obtained from the pointer is kept after leaving.
use mneme_space::LocalSegment;

fn main() {
    let segment = LocalSegment::new("a", 4 << 20).unwrap();
    let kept = segment.enter(|here| {
        let at = here.alloc(7_u64).unwrap();
        at.get(here).unwrap()
    });
}
