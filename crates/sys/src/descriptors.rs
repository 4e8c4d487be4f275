//! Passes file descriptors from one process to another over a unix socket.
//!
//! The open file itself is passed: a listening socket keeps listening meanwhile, and a connection
//! that arrives waits in its queue for the next process to accept.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

/// The maximum number of descriptors in one message.
pub const MOST_AT_ONCE: usize = 64;

/// Space for a message's descriptors, aligned as the kernel requires.
#[repr(C, align(8))]
struct Control([u8; CONTROL]);

// SAFETY: only computes a size.
const CONTROL: usize =
    unsafe { libc::CMSG_SPACE((MOST_AT_ONCE * size_of::<RawFd>()) as u32) } as usize;

/// Sends `bytes`, at least one, and the descriptors with them, at most [`MOST_AT_ONCE`]. The
/// receiver then has its own descriptors for the same open files.
///
/// # Errors
/// `InvalidInput` for no bytes or too many descriptors; errors of the system.
pub fn send(
    stream: &UnixStream,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    if bytes.is_empty() || descriptors.len() > MOST_AT_ONCE {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut control = Control([0; CONTROL]);
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: `msghdr` consists of integers and pointers, for which zeros are valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    if !descriptors.is_empty() {
        let len = size_of_val(descriptors) as u32;
        message.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: both compute sizes, which fit `control`: there are at most `MOST_AT_ONCE`.
        let (space, exact) = unsafe { (libc::CMSG_SPACE(len), libc::CMSG_LEN(len)) };
        message.msg_controllen = space as _;
        // SAFETY: the message has space for this header and its data. `BorrowedFd` is represented
        // as a `RawFd`, but the copy converts explicitly.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = exact as _;
            let data = libc::CMSG_DATA(header).cast::<RawFd>();
            for (i, descriptor) in descriptors.iter().enumerate() {
                data.add(i).write_unaligned(descriptor.as_raw_fd());
            }
        }
    }
    loop {
        // SAFETY: the message points to `part`, `bytes` and `control`, which are alive.
        let sent = unsafe { libc::sendmsg(stream.as_raw_fd(), &message, libc::MSG_NOSIGNAL) };
        match usize::try_from(sent) {
            Ok(sent) => return Ok(sent),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

/// Receives bytes into `buffer`, and the descriptors that came with them, which are closed on
/// `exec`. No bytes means that the other side has closed.
///
/// # Errors
/// `InvalidData` if more than [`MOST_AT_ONCE`] descriptors came; errors of the system.
pub fn receive(stream: &UnixStream, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut control = Control([0; CONTROL]);
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: as in `send`.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = CONTROL as _;
    let received = loop {
        // SAFETY: the message points to `part`, `buffer` and `control`, which are alive.
        let received =
            unsafe { libc::recvmsg(stream.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC) };
        match usize::try_from(received) {
            Ok(received) => break received,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    };
    let mut descriptors = Vec::new();
    // SAFETY: the kernel has filled the message; its headers are iterated as it prescribes, and
    // each descriptor is new and has no other owner.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let bytes = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(header).cast::<RawFd>();
                for i in 0..bytes / size_of::<RawFd>() {
                    descriptors.push(OwnedFd::from_raw_fd(data.add(i).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(&message, header);
        }
    }
    if message.msg_flags & libc::MSG_CTRUNC != 0 {
        // The descriptors that came are closed here.
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok((received, descriptors))
}

/// The process and the user at the other end, as the kernel recorded them when it connected.
///
/// # Errors
/// Errors of the system.
pub fn peer(stream: &UnixStream) -> io::Result<(u32, u32)> {
    let mut found = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `found` has space for the requested value.
    let asked = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            std::ptr::from_mut(&mut found).cast(),
            &mut len,
        )
    };
    if asked != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((u32::try_from(found.pid).unwrap_or(0), found.uid))
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    #[test]
    fn files_are_passed_with_the_bytes_that_describe_them() {
        let (here, there) = UnixStream::pair().unwrap();
        let (mut end, mut other) = UnixStream::pair().unwrap();
        let nothing = File::open("/dev/null").unwrap();
        let handed = [end.as_fd(), nothing.as_fd()];
        assert_eq!(send(&here, b"two", &handed).unwrap(), 3);
        assert_eq!(send(&here, b"none", &[]).unwrap(), 4);
        let mut buffer = [0; 3];
        let (bytes, descriptors) = receive(&there, &mut buffer).unwrap();
        assert_eq!((bytes, &buffer[..], descriptors.len()), (3, &b"two"[..], 2));
        let mut received = UnixStream::from(descriptors.into_iter().next().unwrap());
        received.write_all(b"x").unwrap();
        end.write_all(b"y").unwrap();
        let mut both = [0; 2];
        other.read_exact(&mut both).unwrap();
        assert_eq!(&both, b"xy");
        let mut buffer = [0; 16];
        let (bytes, descriptors) = receive(&there, &mut buffer).unwrap();
        assert_eq!((&buffer[..bytes], descriptors.len()), (&b"none"[..], 0));
        drop(here);
        assert_eq!(receive(&there, &mut buffer).unwrap().0, 0);
        let refused = send(&there, b"", &[]).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        let (pid, user) = peer(&there).unwrap();
        assert_eq!((pid, user), (std::process::id(), crate::files::user()));
    }
}
