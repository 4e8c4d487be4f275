//! The store: a header, its alignments, the order they stand in, and perhaps an index of that
//! order.

use crate::alignment::{Alignment, Fields};
use crate::error::{IndexError, LoadError, RegionError, SortError, ViewError};
use crate::flagstat::{self, Flagstat, Traits};
use crate::header::Header;
use crate::index::{Index, Refused};
use crate::memory::push;
use crate::order::{self, Order};
use crate::region::Region;
use crate::text;
use allocator_api2::alloc::Allocator;
use allocator_api2::vec::Vec;
use mneme_space::{Heap, Schema, Stored};
use std::io::{self, Write};
use std::iter::once;

/// Alignments in memory of `A`. See the [crate's documentation](crate).
///
/// Reading takes `&self` and may be done by several threads if the allocator allows it; sorting and
/// indexing take `&mut self`.
#[derive(Debug, Stored)]
#[stored(allocator = A)]
pub struct Store<A: Allocator> {
    header: Header<A>,
    /// As read; never moved by sorting.
    alignments: Vec<Alignment<A>, A>,
    /// What flagstat counts, of each alignment: a column, so that a count streams 2 bytes an
    /// alignment.
    traits: Vec<Traits, A>,
    /// The numbers of the alignments, by rank.
    ranks: Vec<u32, A>,
    order: Order,
    /// Of `ranks`; there is none after they change.
    index: Option<Index<A>>,
}

/// What a segment with alignments holds: a [`Store`] in memory of the segment. See the [crate's
/// documentation](crate).
#[derive(Debug)]
pub struct Alignments;

impl Schema for Alignments {
    type Root<'s> = Store<Heap<'s>>;
}

impl<A: Allocator + Copy> Store<A> {
    /// A store of nothing; [`load`](crate::load) makes others.
    pub fn new_in(memory: A) -> Self {
        Self::new(Header::empty(memory), memory)
    }

    /// A store without alignments.
    pub(crate) fn new(header: Header<A>, memory: A) -> Self {
        Self {
            header,
            alignments: Vec::new_in(memory),
            traits: Vec::new_in(memory),
            ranks: Vec::new_in(memory),
            order: Order::AsRead,
            index: None,
        }
    }

    /// Appends an alignment, in memory of the store.
    pub(crate) fn push(&mut self, fields: &Fields<'_>) -> Result<(), LoadError> {
        let number = u32::try_from(self.alignments.len()).map_err(|_| LoadError::TooMany)?;
        if number == u32::MAX {
            return Err(LoadError::TooMany);
        }
        let elsewhere = fields.mate_reference != fields.reference;
        let traits = flagstat::traits(fields.flags, elsewhere, fields.mapping_quality);
        let alignment = Alignment::new_in(fields, *self.alignments.allocator())?;
        push(&mut self.alignments, alignment)?;
        push(&mut self.traits, traits)?;
        push(&mut self.ranks, number)?;
        Ok(())
    }

    /// The memory in which all of it lies.
    pub fn memory(&self) -> A {
        *self.alignments.allocator()
    }

    /// The header.
    pub fn header(&self) -> &Header<A> {
        &self.header
    }

    /// How many alignments there are.
    pub fn len(&self) -> usize {
        self.alignments.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.alignments.is_empty()
    }

    /// In which order they stand.
    pub fn order(&self) -> Order {
        self.order
    }

    /// All alignments in the present order.
    pub fn alignments(&self) -> impl ExactSizeIterator<Item = &Alignment<A>> {
        self.ranks
            .iter()
            .map(|number| &self.alignments[*number as usize])
    }

    /// What `samtools flagstat` tells. Reads 2 bytes an alignment.
    pub fn flagstat(&self) -> Flagstat {
        Flagstat::of(&self.traits)
    }

    /// Brings the alignments in order, with that many threads; equal ones stay as they stood. `@HD`
    /// says so from now on. An index of the former order is given up. [`Order::AsRead`] is where
    /// they came from.
    ///
    /// Alignments do not move; the cost is that of sorting 16 bytes (coordinate) or 32 (name) for
    /// each.
    ///
    /// # Errors
    /// [`SortError::OutOfMemory`] if there is no memory for the header's new line; the order is
    /// unchanged then.
    pub fn sort(&mut self, order: Order, threads: usize) -> Result<(), SortError> {
        self.header.set_sort_order(order.tag())?;
        let former: std::vec::Vec<u32> = self.ranks.to_vec();
        let reorder = |ranks: &mut [u32], sorted: &mut dyn Iterator<Item = u32>| {
            for (place, rank) in ranks.iter_mut().zip(sorted) {
                *place = former[rank as usize];
            }
        };
        match order {
            Order::AsRead => self.ranks.sort_unstable(),
            Order::Coordinate => {
                let alignments = (0..).zip(self.alignments());
                let keys =
                    alignments.map(|(rank, alignment)| order::coordinate_key(alignment, rank));
                let mut sorted = order::by_coordinate(keys.collect(), threads);
                reorder(&mut self.ranks, &mut sorted);
            }
            Order::Name => {
                let alignments = &self.alignments;
                let reads = former.iter().map(|number| {
                    let alignment = &alignments[*number as usize];
                    (alignment.name(), alignment.flags())
                });
                let reads: std::vec::Vec<_> = reads.collect();
                reorder(&mut self.ranks, &mut order::by_name(&reads, threads));
            }
        }
        self.order = order;
        self.index = None;
        Ok(())
    }

    /// Indexes the present order, for [`view`](Self::view). One pass.
    ///
    /// # Errors
    /// [`IndexError::Unsorted`] if it is not by coordinate: one reference sequence after the other,
    /// by position, and what is placed nowhere last.
    pub fn index(&mut self) -> Result<(), IndexError> {
        let references = self.header.references();
        let longest = references.iter().map(|reference| reference.length()).max();
        let built = Index::build(
            self.alignments(),
            references.len(),
            longest.unwrap_or(0),
            *self.alignments.allocator(),
        );
        self.index = Some(built.map_err(|refused| match refused {
            Refused::OutOfMemory(full) => IndexError::from(full),
            Refused::Unsorted(rank) => {
                let alignment = &self.alignments[self.ranks[rank as usize] as usize];
                IndexError::Unsorted {
                    number: u64::from(rank) + 1,
                    name: String::from_utf8_lossy(alignment.name()).into_owned(),
                    order: self.order,
                }
            }
        })?);
        Ok(())
    }

    /// Reads a region's text. See [`Region::parse`].
    ///
    /// # Errors
    /// [`RegionError`], which names the text.
    pub fn region(&self, text: &str) -> Result<Region, RegionError> {
        Region::parse(text, &self.header)
    }

    /// The alignments that overlap a region, in the present order. An unmapped read that was given
    /// its mate's place covers one position there.
    ///
    /// # Errors
    /// [`ViewError::NoIndex`] before [`index`](Self::index), except for [`Region::All`].
    pub fn view(&self, region: &Region) -> Result<impl Iterator<Item = &Alignment<A>>, ViewError> {
        let index = self.index.as_ref().ok_or(ViewError::NoIndex);
        let all = self.ranks.len() as u32;
        let (ranges, part) = match *region {
            Region::All => (once(0..all).collect(), None),
            Region::Unplaced => (once(index?.unplaced()..all).collect(), None),
            Region::Part {
                reference,
                start,
                end,
            } => (index?.candidates(reference, start, end), Some(start..end)),
        };
        let overlaps = move |alignment: &&Alignment<A>| {
            part.as_ref()
                .is_none_or(|part| alignment.position() < part.end && alignment.end() > part.start)
        };
        let ranks = ranges.into_iter().flatten();
        let alignments = ranks.map(|rank| &self.alignments[self.ranks[rank as usize] as usize]);
        Ok(alignments.filter(overlaps))
    }

    /// Writes alignments as lines of SAM.
    ///
    /// # Errors
    /// The writer's.
    pub fn write<'a>(
        &'a self,
        alignments: impl Iterator<Item = &'a Alignment<A>>,
        mut to: impl Write,
    ) -> io::Result<()>
    where
        A: 'a,
    {
        const BLOCK: usize = 64 << 10;
        let mut lines = std::vec::Vec::with_capacity(2 * BLOCK);
        for alignment in alignments {
            text::line(&self.header, &alignment.fields(), &mut lines);
            if lines.len() >= BLOCK {
                to.write_all(&lines)?;
                lines.clear();
            }
        }
        to.write_all(&lines)
    }
}
