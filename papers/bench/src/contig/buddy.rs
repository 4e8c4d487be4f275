//! A buddy allocator of frames, to compare with (Park, §2.2.3): blocks of a power of two, halved to
//! serve and merged with their other half when both are free.

/// The largest block, as a power of two: 1,024 frames.
const ORDERS: usize = 11;

/// Frames in blocks.
pub struct Buddy {
    /// Starts of free blocks, by order.
    free: [Vec<u32>; ORDERS],
    /// The order of the free block that begins at a frame, plus one.
    begins: Vec<u8>,
}

impl Buddy {
    /// An allocator of `frames` frames, all free.
    pub fn new(frames: u32) -> Buddy {
        let mut buddy = Buddy {
            free: Default::default(),
            begins: vec![0; frames as usize],
        };
        for frame in 0..frames {
            buddy.release(frame, 0);
        }
        buddy
    }

    /// A block of `1 << order` frames.
    pub fn claim(&mut self, order: u32) -> Option<u32> {
        let order = order as usize;
        let from = (order..ORDERS).find(|larger| !self.free[*larger].is_empty())?;
        let start = self.free[from].pop()?;
        self.begins[start as usize] = 0;
        for half in (order..from).rev() {
            self.add(start + (1 << half), half);
        }
        Some(start)
    }

    /// Gives a block back.
    pub fn release(&mut self, start: u32, order: u32) {
        let (mut start, mut order) = (start, order as usize);
        while order + 1 < ORDERS {
            let other = start ^ 1 << order;
            if self.begins.get(other as usize) != Some(&(order as u8 + 1)) {
                break;
            }
            self.begins[other as usize] = 0;
            // Where it stands in its list is searched for; a kernel links its pages.
            self.free[order].retain(|block| *block != other);
            start = start.min(other);
            order += 1;
        }
        self.add(start, order);
    }

    fn add(&mut self, start: u32, order: usize) {
        self.begins[start as usize] = order as u8 + 1;
        self.free[order].push(start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_disjoint_and_merge_again() {
        let mut buddy = Buddy::new(100);
        let orders = [0, 3, 1, 4, 0, 2];
        let blocks: Vec<(u32, u32)> = orders
            .iter()
            .map(|order| (buddy.claim(*order).unwrap(), *order))
            .collect();
        let mut taken = [false; 100];
        for (start, order) in &blocks {
            assert!(start.is_multiple_of(1 << order));
            for frame in *start..start + (1 << order) {
                assert!(!std::mem::replace(&mut taken[frame as usize], true));
            }
        }
        for (start, order) in blocks {
            buddy.release(start, order);
        }
        assert_eq!(buddy.claim(6), Some(0));
        assert_eq!(buddy.claim(6), None);
        assert_eq!(buddy.claim(5), Some(64));
    }
}
