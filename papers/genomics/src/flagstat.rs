//! Counts over all alignments by their flags, from two bytes each.
//!
//! [`Traits`] packs what the counts depend on into 14 bits. They lie in a column of their own, so
//! that counting streams two bytes an alignment: a histogram of the 16,384 combinations first, the
//! sixteen counts from that.

use std::fmt;

const PAIRED: u16 = 0x1;
const PROPER: u16 = 0x2;
const UNMAPPED: u16 = 0x4;
const MATE_UNMAPPED: u16 = 0x8;
const FIRST: u16 = 0x40;
const SECOND: u16 = 0x80;
const SECONDARY: u16 = 0x100;
const FAILED: u16 = 0x200;
const DUPLICATE: u16 = 0x400;
const SUPPLEMENTARY: u16 = 0x800;
/// Not of the specification: the mate lies on another reference sequence.
const MATE_ELSEWHERE: u16 = 0x1000;
/// Not of the specification: the mapping quality is at least 5.
const CERTAIN: u16 = 0x2000;

/// How many combinations there are.
const COMBINATIONS: usize = 1 << 14;

/// What the counts depend on, of one alignment.
pub type Traits = u16;

/// The traits of an alignment.
pub fn traits(flags: u16, elsewhere: bool, mapping_quality: u8) -> Traits {
    flags & 0xfff
        | if elsewhere { MATE_ELSEWHERE } else { 0 }
        | if mapping_quality >= 5 { CERTAIN } else { 0 }
}

/// What `samtools flagstat` tells; shown as it shows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flagstat {
    /// Reads that passed quality control.
    pub passed: Counts,
    /// Reads that did not.
    pub failed: Counts,
}

/// Numbers of alignments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the report")]
pub struct Counts {
    pub total: u64,
    pub primary: u64,
    pub secondary: u64,
    pub supplementary: u64,
    pub duplicates: u64,
    pub primary_duplicates: u64,
    pub mapped: u64,
    pub primary_mapped: u64,
    pub paired: u64,
    pub first: u64,
    pub second: u64,
    pub properly_paired: u64,
    pub both_mapped: u64,
    pub singletons: u64,
    pub mate_elsewhere: u64,
    pub mate_elsewhere_certain: u64,
}

impl Flagstat {
    /// Counts a column of traits: one pass.
    pub fn of(column: &[Traits]) -> Self {
        let mut histogram = vec![0u32; COMBINATIONS];
        for traits in column {
            histogram[usize::from(*traits) % COMBINATIONS] += 1;
        }
        let mut stat = Self::default();
        for (traits, count) in (0u16..).zip(histogram) {
            let counts = if traits & FAILED == 0 {
                &mut stat.passed
            } else {
                &mut stat.failed
            };
            counts.add(traits, u64::from(count));
        }
        stat
    }
}

impl Counts {
    fn add(&mut self, traits: Traits, count: u64) {
        let has = |flag| traits & flag != 0;
        let mapped = !has(UNMAPPED);
        let add = |to: &mut u64, when: bool| *to += if when { count } else { 0 };
        let secondary = has(SECONDARY);
        let supplementary = !secondary && has(SUPPLEMENTARY);
        let primary = !secondary && !supplementary;
        let paired = primary && has(PAIRED);
        let both = paired && mapped && !has(MATE_UNMAPPED);
        add(&mut self.total, true);
        add(&mut self.primary, primary);
        add(&mut self.secondary, secondary);
        add(&mut self.supplementary, supplementary);
        add(&mut self.duplicates, has(DUPLICATE));
        add(&mut self.primary_duplicates, primary && has(DUPLICATE));
        add(&mut self.mapped, mapped);
        add(&mut self.primary_mapped, primary && mapped);
        add(&mut self.paired, paired);
        add(&mut self.first, paired && has(FIRST));
        add(&mut self.second, paired && has(SECOND));
        add(&mut self.properly_paired, paired && has(PROPER) && mapped);
        add(&mut self.both_mapped, both);
        add(&mut self.singletons, paired && mapped && has(MATE_UNMAPPED));
        add(&mut self.mate_elsewhere, both && has(MATE_ELSEWHERE));
        add(
            &mut self.mate_elsewhere_certain,
            both && has(MATE_ELSEWHERE) && has(CERTAIN),
        );
    }
}

/// A share as samtools rounds it: the quotient of 32-bit floats, the percentage of 64-bit ones.
struct Percent(u64, u64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(part, whole) = *self;
        if whole == 0 {
            return f.write_str("N/A");
        }
        write!(f, "{:.2}%", f64::from(part as f32 / whole as f32) * 100.0)
    }
}

impl fmt::Display for Flagstat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        type Count = fn(&Counts) -> u64;
        const ROWS: [(Count, &str, Option<Count>); 16] = [
            (
                |c| c.total,
                "in total (QC-passed reads + QC-failed reads)",
                None,
            ),
            (|c| c.primary, "primary", None),
            (|c| c.secondary, "secondary", None),
            (|c| c.supplementary, "supplementary", None),
            (|c| c.duplicates, "duplicates", None),
            (|c| c.primary_duplicates, "primary duplicates", None),
            (|c| c.mapped, "mapped", Some(|c| c.total)),
            (|c| c.primary_mapped, "primary mapped", Some(|c| c.primary)),
            (|c| c.paired, "paired in sequencing", None),
            (|c| c.first, "read1", None),
            (|c| c.second, "read2", None),
            (|c| c.properly_paired, "properly paired", Some(|c| c.paired)),
            (|c| c.both_mapped, "with itself and mate mapped", None),
            (|c| c.singletons, "singletons", Some(|c| c.paired)),
            (
                |c| c.mate_elsewhere,
                "with mate mapped to a different chr",
                None,
            ),
            (
                |c| c.mate_elsewhere_certain,
                "with mate mapped to a different chr (mapQ>=5)",
                None,
            ),
        ];
        for (count, what, whole) in ROWS {
            let (passed, failed) = (count(&self.passed), count(&self.failed));
            write!(f, "{passed} + {failed} {what}")?;
            if let Some(whole) = whole {
                let passed = Percent(passed, whole(&self.passed));
                let failed = Percent(failed, whole(&self.failed));
                write!(f, " ({passed} : {failed})")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
