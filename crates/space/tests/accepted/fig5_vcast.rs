//! `vcast`: overridden in so many words, and checked; the address lies in the other segment or it
//! is refused.
use mneme_space::{LocalSegment, Ptr, PtrError};

fn main() {
    let segment = LocalSegment::new("a", 4 << 20).unwrap();
    let elsewhere = LocalSegment::new("b", 4 << 20).unwrap();
    let kept: Ptr<'static, u64> = segment
        .enter(|here| {
            let at = here.heap("a").unwrap().place(7_u64).unwrap();
            // SAFETY: it is followed after another cast only.
            unsafe { at.vcast_unchecked() }
        })
        .unwrap();
    let read = segment.read(|here| {
        here.heap("a").unwrap();
        // SAFETY: put there above, and never freed.
        *unsafe { kept.vcast::<u64>(here) }.unwrap().get(here).unwrap()
    });
    assert_eq!(read.unwrap(), 7);
    let refused = elsewhere.read(|here| {
        here.heap("b").unwrap();
        // SAFETY: refused, since it does not lie there.
        unsafe { kept.vcast::<u64>(here) }.map(|_| ())
    });
    assert!(matches!(refused.unwrap(), Err(PtrError::Outside { .. })));
}
