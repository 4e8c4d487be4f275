//! `vcast`: the rules are overridden explicitly and with a check: an address outside the other
//! segment is refused.
use mneme_space::{LocalSegment, Ptr, PtrError};

fn main() {
    let segment = LocalSegment::new("a", 4 << 20).unwrap();
    let elsewhere = LocalSegment::new("b", 4 << 20).unwrap();
    let kept: Ptr<'static, u64> = segment
        .enter(|here| {
            let at = here.heap("a").unwrap().place(7_u64).unwrap();
            // SAFETY: it is followed only after another cast.
            unsafe { at.vcast_unchecked() }
        })
        .unwrap();
    let read = segment.read(|here| {
        here.heap("a").unwrap();
        // SAFETY: it was put there above, and is never freed.
        *unsafe { kept.vcast::<u64>(here) }.unwrap().get(here).unwrap()
    });
    assert_eq!(read.unwrap(), 7);
    let refused = elsewhere.read(|here| {
        here.heap("b").unwrap();
        // SAFETY: refused, because it does not lie there.
        unsafe { kept.vcast::<u64>(here) }.map(|_| ())
    });
    assert!(matches!(refused.unwrap(), Err(PtrError::Outside { .. })));
}
