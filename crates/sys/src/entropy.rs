//! Randomness from the kernel, and the identity of this boot.

use std::io;
use std::sync::OnceLock;

/// Fills `bytes` with random bytes from the kernel, fit for identities and hash seeds.
///
/// # Errors
/// The kernel's error if it has no random source (none is known since Linux 3.17).
pub fn random_bytes(bytes: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        let rest = &mut bytes[done..];
        // SAFETY: `rest` is a valid place for `rest.len()` bytes.
        let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match usize::try_from(got) {
            Ok(n) => done += n,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

/// The identity of this boot of this kernel: data written under another one do not refer to current
/// processes. Equal in all processes, including those in containers.
///
/// Read once from `/proc/sys/kernel/random/boot_id`. If `/proc` is not mounted, it is derived from
/// the kernel's and the host's name, and reboots go unnoticed.
pub fn boot_id() -> [u8; 16] {
    static ID: OnceLock<[u8; 16]> = OnceLock::new();
    *ID.get_or_init(|| from_proc().unwrap_or_else(from_uname))
}

#[cfg(miri)]
fn from_proc() -> Option<[u8; 16]> {
    None
}

#[cfg(not(miri))]
fn from_proc() -> Option<[u8; 16]> {
    parse_uuid(&std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?)
}

#[cfg_attr(miri, allow(dead_code))]
fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let mut id = [0u8; 16];
    let mut digits = text.trim().chars().filter(|c| *c != '-');
    for byte in &mut id {
        let high = digits.next()?.to_digit(16)?;
        let low = digits.next()?.to_digit(16)?;
        *byte = u8::try_from(high << 4 | low).ok()?;
    }
    digits.next().is_none().then_some(id)
}

#[cfg(miri)]
fn from_uname() -> [u8; 16] {
    *b"one boot of Miri"
}

#[cfg(not(miri))]
fn from_uname() -> [u8; 16] {
    // SAFETY: `utsname` is an array of character arrays, for which zeros are valid.
    let mut name: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: `name` is a valid place for one `utsname`.
    unsafe { libc::uname(&mut name) };
    // FNV-1a, twice with different bases: an identity need not be secret.
    let hash = |mut h: u64| {
        for c in name
            .release
            .iter()
            .chain(&name.version)
            .chain(&name.nodename)
        {
            h = (h ^ u64::from(c.to_ne_bytes()[0])).wrapping_mul(0x0000_0100_0000_01b3);
        }
        h
    };
    let mut id = [0u8; 16];
    id[..8].copy_from_slice(&hash(0xcbf2_9ce4_8422_2325).to_le_bytes());
    id[8..].copy_from_slice(&hash(0x8422_2325_cbf2_9ce4).to_le_bytes());
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_id_is_parsed_and_anything_else_is_not() {
        let id = parse_uuid("00112233-4455-6677-8899-aabbccddeeff\n").unwrap();
        assert_eq!(id[0], 0);
        assert_eq!(id[15], 0xff);
        assert_eq!(parse_uuid("0011"), None);
        assert_eq!(parse_uuid("00112233-4455-6677-8899-aabbccddeeff00"), None);
        assert_eq!(parse_uuid("xx112233-4455-6677-8899-aabbccddeeff"), None);
    }

    #[test]
    fn the_boot_id_is_stable_and_set() {
        assert_eq!(boot_id(), boot_id());
        assert_ne!(boot_id(), [0; 16]);
    }

    #[test]
    fn random_bytes_fill_the_whole_buffer_and_differ() {
        let (mut a, mut b) = ([0u8; 600], [0u8; 600]);
        random_bytes(&mut a).unwrap();
        random_bytes(&mut b).unwrap();
        assert_ne!(a, b);
        // A run of 32 zeros has a probability of 2^-256.
        assert!(a.windows(32).all(|w| w.iter().any(|x| *x != 0)));
    }
}
