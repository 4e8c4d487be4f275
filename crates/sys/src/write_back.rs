//! Writing cache lines back to memory, which makes stores to persistent memory durable.

/// An instruction that writes a cache line back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteBack {
    /// Waits for each line, and evicts it from the cache. Every x86-64 CPU has it.
    Clflush,
    /// Evicts the line; several lines are written concurrently.
    Clflushopt,
    /// Keeps the line in the cache.
    Clwb,
}

impl WriteBack {
    /// The instructions of this CPU, the best one last; none on other machines.
    #[must_use]
    pub fn available() -> Vec<Self> {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            let features = std::arch::x86_64::__cpuid_count(7, 0).ebx;
            let optional = [(23, Self::Clflushopt), (24, Self::Clwb)];
            let optional = optional
                .into_iter()
                .filter(|(bit, _)| features >> bit & 1 == 1);
            std::iter::once(Self::Clflush)
                .chain(optional.map(|(_, instruction)| instruction))
                .collect()
        }
        #[cfg(any(not(target_arch = "x86_64"), miri))]
        Vec::new()
    }

    /// Its name in the manuals.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Clflush => "CLFLUSH",
            Self::Clflushopt => "CLFLUSHOPT",
            Self::Clwb => "CLWB",
        }
    }

    /// Begins to write the lines of `bytes` back. It must be one of [`available`](Self::available);
    /// does nothing on a machine that has none.
    pub fn write_back(self, bytes: &[u8]) {
        // SAFETY: the bytes are mapped.
        unsafe { self.write_back_at(bytes.as_ptr(), bytes.len()) }
    }

    /// As [`write_back`](Self::write_back), for memory that other threads may store to.
    ///
    /// # Safety
    /// The `len` bytes from `first` must be mapped.
    pub(crate) unsafe fn write_back_at(self, first: *const u8, len: usize) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if len > 0 {
            for line in (first as usize & !63..first as usize + len).step_by(64) {
                // SAFETY: the line contains a byte that is mapped, by the caller's promise; the
                // instruction changes no memory. If the CPU lacks it, it traps, which is not
                // undefined behaviour.
                unsafe {
                    match self {
                        Self::Clflush => {
                            std::arch::asm!("clflush [{}]", in(reg) line, options(nostack));
                        }
                        Self::Clflushopt => {
                            std::arch::asm!("clflushopt [{}]", in(reg) line, options(nostack));
                        }
                        Self::Clwb => {
                            std::arch::asm!("clwb [{}]", in(reg) line, options(nostack));
                        }
                    }
                }
            }
        }
        #[cfg(any(not(target_arch = "x86_64"), miri))]
        let _ = (first, len);
    }

    /// Waits for the lines whose writing has begun.
    pub fn fence() {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a fence touches no memory.
        unsafe {
            std::arch::asm!("sfence", options(nostack));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::WriteBack;

    #[test]
    fn written_back_lines_keep_their_bytes() {
        let bytes: Vec<u8> = (0..=255).collect();
        for instruction in WriteBack::available() {
            instruction.write_back(&bytes[3..200]);
            instruction.write_back(&[]);
            WriteBack::fence();
            assert!(bytes.iter().copied().eq(0..=255), "{}", instruction.name());
        }
    }
}
