//! Lists the arrays that Python has put into a segment, with the sum of those of type `'<f8'`.
//! `docs/guides/python.md` shows their layout.
//!
//! ```sh
//! cargo run -p mneme-space --example arrays -- SEGMENT
//! ```

use std::error::Error;

use mneme_space::{Access, Attachment, Registry, Segment};

/// The segment's root.
#[repr(C)]
struct Arrays {
    magic: [u8; 8],
    count: u64,
    capacity: u64,
    entries: *const Array,
}

#[repr(C)]
struct Array {
    /// Points to the numbers of the shape, followed by the name and the type descriptor.
    shape: *const u64,
    dimensions: u32,
    name_bytes: u32,
    descr_bytes: u32,
    reserved: u32,
    /// The elements, in C order.
    data: *const f64,
    bytes: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1).ok_or("arrays SEGMENT")?;
    let segment = Segment::open(&Registry::open_default()?, &name)?;
    let attached = Attachment::new([(&segment, Access::ReadOnly)])?;
    // SAFETY: dropped at the end of this function, before the attachment.
    let inside = unsafe { attached.switch_in(Access::ReadOnly) }?;
    let entered = inside.segments().next().ok_or("no segment")?;
    let heap = inside.heap(entered.base.addr().get()).ok_or("no heap")?;
    let root = heap.root()?.ok_or("no arrays")?.cast::<Arrays>();
    // SAFETY: the block's first bytes identify it as the directory of arrays. Python's module has
    // written it, and nobody changes it while this thread is inside.
    let arrays = unsafe { root.as_ref() };
    if &arrays.magic != b"mnemarr1" {
        return Err("another program has laid this segment out".into());
    }
    for i in 0..arrays.count as usize {
        // SAFETY: the directory has that many entries.
        show(unsafe { &*arrays.entries.add(i) });
    }
    Ok(())
}

fn show(array: &Array) {
    let dimensions = array.dimensions as usize;
    // SAFETY: the numbers and texts are adjacent, with the lengths that the entry records.
    let (shape, name, descr) = unsafe {
        let name = array.shape.add(dimensions).cast::<u8>();
        let descr = name.add(array.name_bytes as usize);
        (
            std::slice::from_raw_parts(array.shape, dimensions),
            std::slice::from_raw_parts(name, array.name_bytes as usize),
            std::slice::from_raw_parts(descr, array.descr_bytes as usize),
        )
    };
    let (name, descr) = (
        String::from_utf8_lossy(name),
        String::from_utf8_lossy(descr),
    );
    print!("{name} {descr}");
    for number in shape {
        print!(" {number}");
    }
    if descr == "'<f8'" {
        // SAFETY: aligned to 64 bytes, and as long as the entry says.
        let numbers = unsafe { std::slice::from_raw_parts(array.data, array.bytes as usize / 8) };
        print!(
            " sum {}",
            numbers.iter().fold(0.0, |sum, number| sum + number)
        );
    }
    println!();
}
