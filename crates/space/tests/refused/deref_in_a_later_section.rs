//! Rule 1: a pointer is kept until the segment is entered again, when it may have been freed.
use mneme_space::LocalSegment;

fn main() {
    let segment = LocalSegment::new("a", 4 << 20).unwrap();
    let mut kept = None;
    segment.enter(|here| kept = here.alloc(7_u64).ok()).unwrap();
    segment.enter(|here| kept.unwrap().get(here).is_ok()).unwrap();
}
