//! What a store answers about a small file written by hand, what it refuses, and that it survives a
//! full memory. Needs no samtools; that samtools gives the same answers about the same file is
//! tested where it is there.

#![allow(clippy::unwrap_used)]

use allocator_api2::alloc::{AllocError, Allocator, Global, Layout};
use mneme_genomics::load::{Summary, from_reader};
use mneme_genomics::{
    Fields, IndexError, LoadError, Order, OutOfMemory, RecordError, RegionError, Store, ViewError,
};
use std::cell::Cell;
use std::io::{ErrorKind, Read, Write};
use std::ptr::NonNull;

const SMALL: &str = include_str!("data/small.sam");

fn load(sam: &str) -> Store<Global> {
    from_reader(sam.as_bytes(), Global).unwrap().0
}

fn text_of<A: Allocator + Copy>(store: &Store<A>) -> Vec<u8> {
    let mut text = store.header().text().to_vec();
    store.write(store.alignments(), &mut text).unwrap();
    text
}

fn text<A: Allocator + Copy>(store: &Store<A>) -> String {
    String::from_utf8(text_of(store)).unwrap()
}

/// Names and flags tell an alignment of the file from the others.
fn fields_of<'a>(alignments: impl Iterator<Item = Fields<'a>>) -> Vec<String> {
    let tell = |fields: Fields<'_>| {
        let name = std::str::from_utf8(fields.name).unwrap();
        format!("{name}/{}", fields.flags)
    };
    alignments.map(tell).collect()
}

fn in_order(store: &Store<Global>) -> Vec<String> {
    fields_of(store.alignments().map(|alignment| alignment.fields()))
}

fn in_region(store: &Store<Global>, region: &str) -> Vec<String> {
    let region = store.region(region).unwrap();
    let found = store.view(&region).unwrap();
    fields_of(found.map(|alignment| alignment.fields()))
}

#[test]
fn records_that_were_read_are_written_byte_for_byte() {
    assert_eq!(text(&load(SMALL)), SMALL);
    assert_eq!(text(&load(&SMALL.replace('\n', "\r\n"))), SMALL);
    assert_eq!(text(&load(SMALL.trim_end())), SMALL);
}

#[test]
fn flagstat_counts_primary_reads_apart() {
    let stat = load(SMALL).flagstat();
    assert_eq!((stat.passed.total, stat.failed.total), (11, 1));
    assert_eq!((stat.passed.primary, stat.passed.supplementary), (10, 1));
    assert_eq!((stat.passed.mapped, stat.passed.paired), (8, 8));
    assert_eq!((stat.passed.singletons, stat.passed.duplicates), (1, 1));
    assert_eq!(
        (stat.passed.both_mapped, stat.passed.properly_paired),
        (4, 2)
    );
    assert_eq!(
        (
            stat.passed.mate_elsewhere,
            stat.passed.mate_elsewhere_certain
        ),
        (2, 0)
    );
    assert_eq!((stat.failed.secondary, stat.failed.primary), (1, 0));
    let text = stat.to_string();
    assert!(
        text.contains("\n8 + 1 mapped (72.73% : 100.00%)\n"),
        "{text}"
    );
    assert!(
        text.contains("\n7 + 0 primary mapped (70.00% : N/A)\n"),
        "{text}"
    );
}

#[test]
fn orders_are_those_of_samtools() {
    let mut store = load(SMALL);
    store.sort(Order::Name, 1).unwrap();
    assert_eq!(
        in_order(&store),
        [
            "read1/16",
            "read1/1040",
            "read1/784",
            "read1/2064",
            "read02/73",
            "read02/133",
            "read2/77",
            "read2/141",
            "read9/65",
            "read9/129",
            "read10/99",
            "read10/147",
        ]
    );
    assert!(text(&store).starts_with("@HD\tVN:1.6\tSO:queryname\n"));
    store.sort(Order::Coordinate, 1).unwrap();
    assert_eq!(
        in_order(&store),
        [
            "read1/1040",
            "read1/784",
            "read1/2064",
            "read9/65",
            "read02/73",
            "read02/133",
            "read10/99",
            "read1/16",
            "read10/147",
            "read9/129",
            "read2/77",
            "read2/141",
        ]
    );
}

#[test]
fn a_region_has_the_alignments_that_overlap_it() {
    let mut store = load(SMALL);
    store.sort(Order::Coordinate, 1).unwrap();
    store.index().unwrap();
    // Both ends belong to it; an unmapped read covers the position it was given.
    assert_eq!(in_region(&store, "chr1:105-200"), ["read10/99", "read1/16"]);
    assert_eq!(in_region(&store, "chr1:106-200"), [""; 0]);
    assert_eq!(in_region(&store, "chr1:206"), ["read10/147", "read9/129"]);
    assert_eq!(in_region(&store, "chr1:207"), ["read9/129"]);
    let at_101 = ["read10/99", "read02/73", "read02/133", "read1/16"];
    assert_eq!(in_region(&store, "chr1:1-101"), at_101);
    // What is skipped is covered, across windows of the index.
    assert_eq!(in_region(&store, "chr2:20,000-20,000"), ["read1/2064"]);
    assert_eq!(in_region(&store, "chr2:20050"), ["read1/2064", "read9/65"]);
    assert_eq!(in_region(&store, "*"), ["read2/77", "read2/141"]);
    assert_eq!(in_region(&store, ".").len(), store.len());
}

#[test]
fn a_region_needs_an_index_of_the_present_order() {
    let mut store = load(SMALL);
    let region = store.region("chr1").unwrap();
    assert_eq!(store.view(&region).err(), Some(ViewError::NoIndex));
    let error = store.index().unwrap_err();
    assert!(
        matches!(&error, IndexError::Unsorted { number: 4, name, order: Order::AsRead } if name == "read9"),
        "{error}"
    );
    store.sort(Order::Coordinate, 1).unwrap();
    store.index().unwrap();
    assert!(store.view(&region).is_ok());
    store.sort(Order::Name, 1).unwrap();
    assert_eq!(store.view(&region).err(), Some(ViewError::NoIndex));
    let unknown = RegionError::Unknown("chr3:1-2".into());
    assert_eq!(store.region("chr3:1-2"), Err(unknown));
}

#[test]
fn a_place_that_cannot_be_is_repaired_as_samtools_does() {
    let sam = "@SQ\tSN:a\tLN:9\n\
        r\t0\tb\t5\t60\t1M\t=\t5\t0\tA\tI\n\
        r\t0\ta\t0\t60\t1M\t*\t0\t0\tA\tI\n\
        r\t0\ta\t5\t60\t*\tb\t5\t0\tA\tI\n";
    let (store, summary) = from_reader(sam.as_bytes(), Global).unwrap();
    let meant = Summary {
        alignments: 3,
        repaired: 3,
        ends_well: true,
    };
    assert_eq!(summary, meant);
    assert_eq!(
        text(&store).lines().skip(1).collect::<Vec<_>>(),
        [
            "r\t4\t*\t5\t60\t1M\t*\t5\t0\tA\tI",
            "r\t4\t*\t0\t60\t1M\t*\t0\t0\tA\tI",
            "r\t4\ta\t5\t60\t*\t*\t5\t0\tA\tI",
        ]
    );
}

#[test]
fn a_cigar_kept_in_a_tag_is_put_back() {
    let line = |cigar: &str, tags: &str| {
        format!("@SQ\tSN:a\tLN:99\nr\t0\ta\t5\t60\t{cigar}\t*\t0\t0\tACGT\tIIII{tags}\n")
    };
    // 1M1I1M1S, as words of BAM.
    let kept = line("4S2N", "\tNM:i:1\tCG:B:I,16,17,16,20\tXX:i:2");
    assert_eq!(text(&load(&kept)), line("1M1I1M1S", "\tNM:i:1\tXX:i:2"));
    // A clip of another length says nothing of a tag.
    let other = line("1S3M", "\tCG:B:I,16,17,16,20");
    assert_eq!(text(&load(&other)), other);
}

#[test]
fn a_malformed_line_is_named_with_what_is_wrong() {
    let good = ["r", "0", "a", "5", "60", "2M", "*", "0", "0", "AC", "II"];
    let wrong = |field: usize, value: &str| {
        let mut fields = good;
        fields[field] = value;
        let sam = format!(
            "@SQ\tSN:a\tLN:9\n{}\n{}\n",
            good.join("\t"),
            fields.join("\t")
        );
        match from_reader(sam.as_bytes(), Global) {
            Err(LoadError::Record { number: 2, source }) => source,
            other => panic!("{field} {value}: {other:?}"),
        }
    };
    assert_eq!(wrong(0, &"r".repeat(255)), RecordError::Name);
    assert_eq!(wrong(1, "65536"), RecordError::Flags);
    assert_eq!(wrong(3, "-1"), RecordError::Position);
    assert_eq!(wrong(4, "256"), RecordError::MappingQuality);
    for cigar in ["2", "M", "2M2", "2m", "268435456M", "99999999999M"] {
        assert_eq!(wrong(5, cigar), RecordError::Cigar, "{cigar}");
    }
    assert_eq!(
        wrong(5, "3M"),
        RecordError::Lengths {
            cigar: 3,
            sequence: 2
        }
    );
    assert_eq!(wrong(7, "x"), RecordError::MatePosition);
    assert_eq!(wrong(8, "2147483648"), RecordError::TemplateLength);
    assert_eq!(wrong(10, "III"), RecordError::QualityLength);
    assert_eq!(wrong(10, "I "), RecordError::Quality);
    assert_eq!(wrong(10, "II\tNM:i"), RecordError::Tag("NM:i".into()));
    let short = format!("@SQ\tSN:a\tLN:9\n{}\nr\t0\ta\n", good.join("\t"));
    let error = from_reader(short.as_bytes(), Global).unwrap_err();
    assert!(
        matches!(
            error,
            LoadError::Record {
                number: 2,
                source: RecordError::Fields
            }
        ),
        "{error}"
    );
    let headless = good.join("\t");
    let error = from_reader(headless.as_bytes(), Global).unwrap_err();
    assert!(
        matches!(
            error,
            LoadError::Record {
                number: 1,
                source: RecordError::NoReferences
            }
        ),
        "{error}"
    );
}

#[test]
fn files_of_other_kinds_are_distinguished() {
    let kind = |bytes: &[u8]| match from_reader(bytes, Global) {
        Err(LoadError::Kind(kind)) => kind,
        other => panic!("{other:?}"),
    };
    assert_eq!(kind(b""), "empty");
    assert_eq!(kind(b"CRAM\x03\0"), "CRAM");
    assert_eq!(
        kind(b"\x1f\x8b\x08\0\0\0\0\0"),
        "compressed by gzip and not by bgzip"
    );
}

/// A reader that gives one byte at a time, as a pipe may.
struct Trickle<'a>(&'a [u8]);

impl Read for Trickle<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let len = into.len().min(1);
        self.0.read(&mut into[..len])
    }
}

#[test]
fn a_pipe_that_trickles_is_recognised_as_well() {
    let mut writer = noodles_bgzf::io::Writer::new(Vec::new());
    writer.write_all(SMALL.as_bytes()).unwrap();
    let compressed = writer.finish().unwrap();
    for file in [SMALL.as_bytes(), &compressed, &bam(&record(0, b""))] {
        let (store, summary) = from_reader(Trickle(file), Global).unwrap();
        assert!(summary.ends_well && !store.is_empty());
    }
}

/// A BAM file without compression: the header, and one record whose bytes are given.
fn bam(record: &[u8]) -> Vec<u8> {
    let text = b"@SQ\tSN:a\tLN:9\n";
    let mut file = b"BAM\x01".to_vec();
    let number = |file: &mut Vec<u8>, number: usize| file.extend((number as u32).to_le_bytes());
    number(&mut file, text.len());
    file.extend(text);
    number(&mut file, 1);
    number(&mut file, 2);
    file.extend(b"a\0");
    number(&mut file, 9);
    number(&mut file, record.len());
    file.extend(record);
    file
}

/// A record of BAM: `r`, flags 0, at the third base, `2M`, `AC`, with tags.
fn record(reference: i32, tags: &[u8]) -> Vec<u8> {
    let mut record = Vec::new();
    for word in [reference, 2, 0x1249_3c02, 0x0000_0001, 2, -1, -1, 0] {
        record.extend(word.to_le_bytes());
    }
    record.extend(b"r\0\x20\0\0\0\x12\xff\xff");
    record.extend(tags);
    record
}

#[test]
fn a_damaged_bam_is_an_error_wherever_it_ends() {
    let whole = bam(&record(0, b"NMC\x07"));
    let (store, _) = from_reader(&*whole, Global).unwrap();
    let line = "r\t0\ta\t3\t60\t2M\t*\t0\t0\tAC\t*\tNM:i:7\n";
    assert!(text(&store).ends_with(line), "{}", text(&store));
    let header = whole.len() - 4 - record(0, b"NMC\x07").len();
    for end in 1..whole.len() {
        match from_reader(&whole[..end], Global) {
            // The file ends between two records.
            Ok((store, _)) => assert!(end == header && store.is_empty(), "{end}"),
            Err(LoadError::Read { records: 0, source }) => {
                assert_eq!(source.kind(), ErrorKind::UnexpectedEof, "{end}");
            }
            // Fewer than four bytes are no BAM.
            Err(LoadError::Header { line: 1, .. }) | Err(LoadError::Record { .. }) => {
                assert!(end < 4, "{end}");
            }
            Err(other) => panic!("{end}: {other}"),
        }
    }
    let wrong = |record: &[u8]| match from_reader(&*bam(record), Global) {
        Err(LoadError::Record { number: 1, source }) => source,
        other => panic!("{other:?}"),
    };
    assert_eq!(wrong(b""), RecordError::Damaged);
    assert_eq!(wrong(&record(0, b"")[..40]), RecordError::Damaged);
    assert_eq!(wrong(&record(1, b"")), RecordError::Reference(1));
    assert_eq!(wrong(&record(0, b"NMZabc")), RecordError::Tag("NM".into()));
}

#[test]
fn a_byte_changed_anywhere_is_an_error_or_another_file_and_never_a_panic() {
    let compressed = {
        let mut writer = noodles_bgzf::io::Writer::new(Vec::new());
        writer.write_all(SMALL.as_bytes()).unwrap();
        writer.finish().unwrap()
    };
    let files = [
        SMALL.as_bytes().to_vec(),
        compressed,
        bam(&record(0, b"NMC\x07XXBs\x01\0\0\0ab")),
    ];
    for mut file in files {
        for at in 0..file.len() {
            let was = file[at];
            for byte in [0, 1, b'\t', b'\n', b'9', 0x7f, 0x80, 0xff, was ^ 1] {
                file[at] = byte;
                if let Ok((mut store, _)) = from_reader(&*file, Global) {
                    let _ = text_of(&store);
                    store.sort(Order::Coordinate, 1).unwrap();
                    store.index().unwrap();
                }
            }
            file[at] = was;
        }
    }
}

#[test]
fn a_compressed_file_cut_anywhere_never_passes_for_a_whole_one() {
    let mut writer = noodles_bgzf::io::Writer::new(Vec::new());
    for lines in SMALL.as_bytes().chunks(300) {
        writer.write_all(lines).unwrap();
        writer.flush().unwrap();
    }
    let whole = writer.finish().unwrap();
    let (store, summary) = from_reader(&*whole, Global).unwrap();
    assert_eq!(text(&store), SMALL);
    assert!(summary.ends_well);
    for end in 0..whole.len() {
        if let Ok((_, summary)) = from_reader(&whole[..end], Global) {
            assert!(!summary.ends_well, "{end}");
        }
    }
}

thread_local! {
    /// How many more allocations succeed.
    static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The heap, until it refuses.
#[derive(Debug, Clone, Copy)]
struct Refusing;

// SAFETY: it is the heap's allocator, which sometimes fails.
unsafe impl Allocator for Refusing {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        LEFT.with(|left| match left.get() {
            0 => Err(AllocError),
            more => {
                left.set(more - 1);
                Global.allocate(layout)
            }
        })
    }

    unsafe fn deallocate(&self, at: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { Global.deallocate(at, layout) }
    }
}

#[test]
fn a_full_memory_is_an_error_at_every_single_allocation() {
    let full = |allocations: usize| {
        LEFT.set(allocations);
        let loaded = from_reader(SMALL.as_bytes(), Refusing);
        LEFT.set(usize::MAX);
        loaded
    };
    let needed = (0..1000)
        .find(|allocations| full(*allocations).is_ok())
        .unwrap();
    assert!(needed > 20, "{needed}");
    for allocations in 0..needed {
        let error = full(allocations).unwrap_err();
        assert!(
            matches!(error, LoadError::OutOfMemory(OutOfMemory)),
            "{error}"
        );
    }
    let (mut store, _) = full(needed).unwrap();
    LEFT.set(0);
    assert!(store.sort(Order::Coordinate, 1).is_err());
    assert_eq!(
        (store.order(), text(&store).as_str()),
        (Order::AsRead, SMALL)
    );
    LEFT.set(usize::MAX);
    store.sort(Order::Coordinate, 1).unwrap();
    LEFT.set(3);
    assert!(matches!(store.index(), Err(IndexError::OutOfMemory(_))));
    LEFT.set(usize::MAX);
    store.index().unwrap();
}
