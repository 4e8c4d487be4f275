//! One large table in windows, and the ways of reaching them.

use crate::reside::{self, TIMEOUT, UPDATE};
use mneme_bench::error::{BenchError, file_failed};
use mneme_bench::processes::Helper;
use mneme_bench::scratch::{Scratch, space};
use mneme_space::{Attachment, Caller, Calls, EnterError, Schema, SegVec, Segment};
use mneme_sys::{Access, View};
use std::fs::File;
use std::path::PathBuf;

/// A change of one word.
#[derive(Debug, Clone, Copy)]
pub struct Update {
    /// Which word of the window.
    pub at: usize,
    /// What is added to it without carry.
    pub by: u64,
}

/// The content of a window.
pub struct Words;

impl Schema for Words {
    type Root<'s> = SegVec<'s, u64>;
}

#[inline]
fn apply(words: &mut [u64], updates: &[Update]) {
    for update in updates {
        words[update.at] ^= update.by;
    }
}

/// Updates as they travel to another process.
pub fn apply_encoded(words: &mut [u64], request: &[u8]) {
    for update in request.chunks_exact(16) {
        let [at, by] = [&update[..8], &update[8..]].map(|half| {
            half.first_chunk()
                .map_or(0, |bytes| u64::from_le_bytes(*bytes))
        });
        words[at as usize] ^= by;
    }
}

fn encode(updates: &[Update], into: &mut Vec<u8>) {
    into.clear();
    for update in updates {
        into.extend_from_slice(&(update.at as u64).to_le_bytes());
        into.extend_from_slice(&update.by.to_le_bytes());
    }
}

/// Windows that are updated by one thread, one after the other.
pub trait Windows {
    /// Applies a set of updates to a window.
    fn update(&mut self, window: usize, updates: &[Update]) -> Result<(), BenchError>;
}

/// Segments, one a window, all of them full and in memory.
pub struct Segments {
    segments: Vec<Segment>,
    words: usize,
    /// Where the words lie in each one's file: at a page, as large blocks do.
    offset: u64,
}

/// What a segment needs beside its words.
const BESIDES: u64 = 2 << 20;

impl Segments {
    /// Makes `count` windows of `bytes` bytes each; all at one address, or each at its own.
    pub fn new(
        scratch: &Scratch,
        name: &str,
        count: usize,
        bytes: u64,
        at: Option<usize>,
    ) -> Result<Self, BenchError> {
        let words = bytes as usize / 8;
        let make = |number| {
            let name = format!("{name}-{number}");
            let segment = scratch.segment_at(&name, bytes + BESIDES, at)?;
            let attached = Attachment::new([(&segment, Access::ReadWrite)]).map_err(space)?;
            let filled = attached.try_enter(|here| {
                let filled = |heap| {
                    let mut filled = SegVec::with_capacity_in(words, heap);
                    filled.resize(words, 0);
                    filled
                };
                let words = here.create_root::<Words>(&name, filled)?;
                Ok::<_, EnterError>(words.as_ptr().addr())
            });
            let first = filled.map_err(space)?;
            let offset = first - segment.base().unwrap_or(first);
            Ok((segment, offset as u64))
        };
        let made = (0..count).map(make);
        let made: Vec<(Segment, u64)> = made.collect::<Result<_, BenchError>>()?;
        // Made alike, they are alike.
        let offset = made.first().map_or(0, |(_, offset)| *offset);
        if !offset.is_multiple_of(4096) || made.iter().any(|(_, other)| *other != offset) {
            let what = format!("the words of {name} lie at odd places");
            return Err(BenchError::Space(what));
        }
        Ok(Self {
            segments: made.into_iter().map(|(segment, _)| segment).collect(),
            words,
            offset,
        })
    }

    /// The first of them, as an address for others.
    pub fn address(&self) -> Option<usize> {
        self.segments.first()?.base()
    }

    /// Words of a window.
    pub fn words(&self) -> usize {
        self.words
    }

    /// The content of a window.
    #[cfg(test)]
    pub fn content(&self, window: usize) -> Vec<u64> {
        let segment = &self.segments[window];
        let attached = Attachment::new([(segment, Access::ReadOnly)]).unwrap();
        let name = segment.name().as_str();
        let read = attached.read(|here| here.root::<Words>(name).unwrap().to_vec());
        read.unwrap()
    }
}

/// Each window an attachment of its own, which is entered for each set: its lock is taken, and if
/// its addresses are another's at the moment, it is moved there.
pub struct Entered {
    attached: Vec<(Attachment, String)>,
}

impl Entered {
    pub fn new(segments: &Segments) -> Result<Self, BenchError> {
        let attach = |segment: &Segment| {
            let attached = Attachment::new([(segment, Access::ReadWrite)]).map_err(space)?;
            Ok((attached, segment.name().to_string()))
        };
        let attached = segments.segments.iter().map(attach);
        Ok(Self {
            attached: attached.collect::<Result<_, BenchError>>()?,
        })
    }
}

impl Windows for Entered {
    #[inline]
    fn update(&mut self, window: usize, updates: &[Update]) -> Result<(), BenchError> {
        let (attached, name) = &self.attached[window];
        let done: Result<_, EnterError> = attached.enter(|here| {
            here.root_mut::<Words>(name)
                .map(|words| apply(words, updates))
        });
        done.map_err(space)?.map_err(space)
    }
}

/// The paper's MP: each window is a process', which applies what it is sent and answers.
pub struct Called<'a> {
    callers: Vec<Caller<'a>>,
    request: Vec<u8>,
    reply: Vec<u8>,
}

/// The resident of each window, and the way there.
pub struct Residents {
    calls: Vec<Calls>,
    _residents: Vec<Helper>,
}

impl Residents {
    pub fn new(scratch: &Scratch, segments: &Segments) -> Result<Self, BenchError> {
        let (mut calls, mut residents) = (Vec::new(), Vec::new());
        for segment in &segments.segments {
            let lives_in = scratch.space(segment.name().as_str())?;
            lives_in.add(segment, Access::ReadWrite).map_err(space)?;
            residents.push(reside::start(&lives_in)?);
            calls.push(lives_in.calls().map_err(space)?);
        }
        Ok(Self {
            calls,
            _residents: residents,
        })
    }
}

impl<'a> Called<'a> {
    pub fn new(residents: &'a Residents) -> Result<Self, BenchError> {
        let callers = residents.calls.iter().map(Calls::caller);
        Ok(Self {
            callers: callers.collect::<Result<_, _>>().map_err(space)?,
            request: Vec::new(),
            reply: Vec::new(),
        })
    }
}

impl Windows for Called<'_> {
    fn update(&mut self, window: usize, updates: &[Update]) -> Result<(), BenchError> {
        encode(updates, &mut self.request);
        let called =
            self.callers[window].call_into(UPDATE, &self.request, &mut self.reply, TIMEOUT);
        called.map_err(space)
    }
}

/// The files of windows, without what a segment is.
struct Files {
    files: Vec<File>,
    words: usize,
    offset: u64,
}

impl Files {
    fn new(segments: &Segments) -> Result<Self, BenchError> {
        let open = |segment: &Segment| {
            let path: PathBuf = segment.info().map_err(space)?.data;
            let opened = File::options().read(true).write(true).open(&path);
            opened.map_err(file_failed(&path))
        };
        let files = segments.segments.iter().map(open);
        Ok(Self {
            files: files.collect::<Result<_, BenchError>>()?,
            words: segments.words,
            offset: segments.offset,
        })
    }

    /// A window, mapped by a system call and nothing else.
    fn map(&self, window: usize) -> Result<View, BenchError> {
        // SAFETY: nobody shortens the file, and nobody is in a section of the segment while this is
        // used.
        let view = unsafe { View::map(&self.files[window], self.offset, self.words * 8) };
        view.map_err(|why| BenchError::Space(format!("mmap: {why}")))
    }
}

/// The paper's MAP: one window is mapped at a time, and unmapped when another is wanted.
pub struct Remapped {
    files: Files,
    now: Option<(usize, View)>,
}

impl Remapped {
    pub fn new(segments: &Segments) -> Result<Self, BenchError> {
        Ok(Self {
            files: Files::new(segments)?,
            now: None,
        })
    }
}

impl Windows for Remapped {
    fn update(&mut self, window: usize, updates: &[Update]) -> Result<(), BenchError> {
        if let Some((now, mapped)) = &mut self.now
            && *now == window
        {
            apply(mapped.words(), updates);
            return Ok(());
        }
        // Unmapped first: the two are not there at a time.
        self.now = None;
        let mut mapped = self.files.map(window)?;
        apply(mapped.words(), updates);
        self.now = Some((window, mapped));
        Ok(())
    }
}

/// What nobody can beat: all windows mapped at once, no lock.
pub struct Bare(Vec<View>);

impl Bare {
    pub fn new(segments: &Segments) -> Result<Self, BenchError> {
        let files = Files::new(segments)?;
        let mapped = (0..files.files.len()).map(|window| files.map(window));
        Ok(Self(mapped.collect::<Result<_, _>>()?))
    }
}

impl Windows for Bare {
    #[inline]
    fn update(&mut self, window: usize, updates: &[Update]) -> Result<(), BenchError> {
        apply(self.0[window].words(), updates);
        Ok(())
    }
}
