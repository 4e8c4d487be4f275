//! Rule 2, and the stores that need no check: pointers to the stack, to globals and to functions
//! are Rust's own business, and any pointer may be stored there; in a segment, pointers to the
//! segment.
use mneme_space::{HeapError, LocalSegment, Ptr};

static GLOBAL: u64 = 2;

fn function(number: u64) -> u64 {
    number + 1
}

fn main() {
    let segment = LocalSegment::new("a", 4 << 20).unwrap();
    let mut local = 1;
    let sum = segment.enter(|here| -> Result<u64, HeapError> {
        here.heap("a")?;
        let stack = &mut local;
        *stack += 1;
        let call: fn(u64) -> u64 = function;
        // To the common region: a list on the process' heap.
        let mut list: Vec<Ptr<'_, u64>> = Vec::new();
        list.push(here.alloc(*stack + GLOBAL)?);
        // Within the segment.
        let to = here.alloc(list[0])?;
        list.push(*to.get(here).unwrap());
        Ok(list.iter().map(|at| call(*at.get(here).unwrap())).sum())
    });
    assert_eq!(sum.unwrap().unwrap(), 10);
}
