//! Rule 2, and the stores that need no check. Pointers to the stack, to globals and to functions
//! are checked by Rust itself, and any pointer may be stored in such memory; a segment may hold
//! pointers to itself.
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
        // Stored in the common region: a list on the process's heap.
        let mut list: Vec<Ptr<'_, u64>> = Vec::new();
        list.push(here.alloc(*stack + GLOBAL)?);
        // Stored within the segment.
        let to = here.alloc(list[0])?;
        list.push(*to.get(here).unwrap());
        Ok(list.iter().map(|at| call(*at.get(here).unwrap())).sum())
    });
    assert_eq!(sum.unwrap().unwrap(), 10);
}
