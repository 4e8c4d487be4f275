//! Finds free addresses. They are computed from all descriptions and stored nowhere.

use std::ops::Range;

use crate::registry::GIB;
use crate::registry::files::entries;
use crate::segment::meta::SegmentMeta;
use crate::{CreateError, Registry, RegistryError};

impl Registry {
    /// The addresses that segments have, including those being created or removed. The registry
    /// must be locked, so that nothing is added meanwhile. Directories are read in the order in
    /// which segments move between them, so none is missed. An unreadable description claims no
    /// addresses; if it is repaired later, two segments may have the same ones, and mapping the
    /// second returns an error.
    fn taken(&self) -> Result<Vec<Range<usize>>, RegistryError> {
        let mut taken = Vec::new();
        for part in ["making", "segments", "dying"] {
            for directory in entries(&self.root().join(part))? {
                taken.extend(
                    SegmentMeta::read(&directory)
                        .ok()
                        .and_then(|meta| meta.addresses()),
                );
            }
        }
        Ok(taken)
    }
}

/// An address for `max_size` bytes: the requested one, or the lowest that is free.
pub(crate) fn choose_base(
    registry: &Registry,
    wanted: Option<usize>,
    max_size: usize,
) -> Result<usize, CreateError> {
    let (start, len) = registry.window();
    let slots = max_size.div_ceil(GIB);
    if let Some(base) = wanted {
        let refused = |why| CreateError::Base {
            base,
            max: max_size,
            why,
        };
        let inside = base >= start && base - start <= len && slots * GIB <= len - (base - start);
        return match (base.is_multiple_of(GIB), inside) {
            (false, _) => Err(refused("it is not a multiple of 1 GiB")),
            (true, false) => Err(refused("that is not inside the registry's window")),
            (true, true) => Ok(base),
        };
    }
    lowest(start..start + len, slots * GIB, registry.taken()?).ok_or(CreateError::NoSlot { slots })
}

/// The lowest free addresses in the window; first fit, so that addresses stay close together.
fn lowest(window: Range<usize>, bytes: usize, mut taken: Vec<Range<usize>>) -> Option<usize> {
    taken.sort_by_key(|range| range.start);
    let mut at = window.start;
    for range in taken {
        if range.start >= at && range.start - at >= bytes {
            break;
        }
        at = at.max(range.end.next_multiple_of(GIB));
    }
    (at <= window.end && bytes <= window.end - at).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_sufficient_gap_is_chosen() {
        let window = 10 * GIB..20 * GIB;
        let place = |slots, taken: &[Range<usize>]| {
            let taken = taken.iter().map(|r| r.start * GIB..r.end * GIB).collect();
            lowest(window.clone(), slots * GIB, taken).map(|at| at / GIB)
        };
        assert_eq!(place(1, &[]), Some(10));
        assert_eq!(place(10, &[]), Some(10));
        assert_eq!(place(11, &[]), None);
        assert_eq!(place(1, &[11..12, 10..11]), Some(12));
        assert_eq!(place(2, &[11..12, 14..15]), Some(12));
        assert_eq!(place(3, &[11..12, 14..15]), Some(15));
        assert_eq!(place(6, &[11..12, 14..15]), None);
        // Overlapping segments, such as a clone and its original, and some beyond either end of the
        // window.
        assert_eq!(place(1, &[10..14, 10..14, 12..13]), Some(14));
        assert_eq!(place(1, &[0..5, 19..30]), Some(10));
        assert_eq!(place(1, &[0..15, 15..30]), None);
        // A part of a slot occupies the whole slot, even 1 byte.
        let odd = vec![10 * GIB..10 * GIB + 1, 12 * GIB..13 * GIB];
        assert_eq!(lowest(window.clone(), GIB, odd), Some(11 * GIB));
    }
}
