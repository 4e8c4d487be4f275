//! A file system of a type that other machines share; the test itself implements it.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

/// A mount like that of `sshfs` over a directory, until dropped. It is empty, and nothing can be
/// created in it.
pub struct NetworkMount(String);

/// The kernel's requests (`FUSE_*` in `linux/fuse.h`), and the error codes for requests that are
/// not supported.
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const INIT: u32 = 26;
const BATCH_FORGET: u32 = 42;
const NOT_FOUND: i32 = -2;
const NOT_SUPPORTED: i32 = -38;

impl NetworkMount {
    /// Makes the directory and mounts a file system; `None` if that is not possible here.
    pub fn over(directory: &str) -> Option<Self> {
        std::fs::create_dir(directory).unwrap();
        let device = File::options().read(true).write(true).open("/dev/fuse");
        let mount = |device: &File| {
            let mut mount = Command::new("mount");
            // Without the helper program that `mount` would start.
            mount.args(["-i", "-t", "fuse.sshfs"]);
            mount.args(["-o", "fd=0,rootmode=40000,user_id=0,group_id=0"]);
            mount.args(["none", directory]);
            let device = device.try_clone().unwrap();
            let output = mount.stdin(Stdio::from(device)).output();
            output.is_ok_and(|output| output.status.success())
        };
        match device {
            Ok(device) if mount(&device) => {
                std::thread::spawn(move || answer(device));
                Some(Self(directory.to_owned()))
            }
            _ => {
                eprintln!("skipped: no file system of a program can be mounted here");
                None
            }
        }
    }
}

impl Drop for NetworkMount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Answers requests until the file system is unmounted.
fn answer(mut device: File) {
    // The version, and the maximum number of bytes of a write.
    let mut version = [0u32; 16];
    (version[0], version[1], version[5]) = (7, 31, 4096);
    // An empty directory: its cache time of a second, its inode number, type, links and block size.
    let mut root = [0u32; 26];
    (root[0], root[4], root[19], root[20], root[24]) = (1, 1, 0o40755, 2, 4096);
    let mut request = vec![0; 256 << 10];
    while let Ok(40..) = device.read(&mut request) {
        let operation = u32::from_le_bytes([request[4], request[5], request[6], request[7]]);
        let (error, words): (i32, &[u32]) = match operation {
            FORGET | BATCH_FORGET => continue,
            INIT => (0, &version),
            GETATTR => (0, &root),
            LOOKUP => (NOT_FOUND, &[]),
            _ => (NOT_SUPPORTED, &[]),
        };
        let mut reply = Vec::from((16 + 4 * words.len() as u32).to_le_bytes());
        reply.extend_from_slice(&error.to_le_bytes());
        // The request's number.
        reply.extend_from_slice(&request[8..16]);
        reply.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        if device.write_all(&reply).is_err() {
            return;
        }
    }
}
