//! Rule 1: a section returns its pointer.
use mneme_space::LocalSegment;

fn main() {
    let segment = LocalSegment::new("a", 4 << 20).unwrap();
    let kept = segment.enter(|here| here.alloc(7_u64).unwrap());
}
