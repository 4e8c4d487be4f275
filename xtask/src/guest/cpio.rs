//! An initial file system for Linux: an archive of cpio's "newc" format.

use std::path::Path;

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const FILE: u32 = 0o100_644;

/// An archive to which files are added. Directories on the way to a file are made where missing.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    directories: Vec<String>,
}

impl Archive {
    /// Adds a directory.
    pub fn directory(&mut self, path: &str) {
        self.enter(path.trim_start_matches('/'));
    }

    /// Adds a file that can be run.
    pub fn program(&mut self, path: &str, content: &[u8]) {
        self.add(path, PROGRAM, content);
    }

    /// Adds a file.
    pub fn file(&mut self, path: &str, content: &[u8]) {
        self.add(path, FILE, content);
    }

    /// The whole archive.
    pub fn end(mut self) -> Vec<u8> {
        self.member("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn add(&mut self, path: &str, mode: u32, content: &[u8]) {
        let path = path.trim_start_matches('/');
        if let Some(parent) = Path::new(path).parent().and_then(Path::to_str) {
            self.enter(parent);
        }
        self.member(path, mode, content);
    }

    fn enter(&mut self, path: &str) {
        let slashes = path.match_indices('/').map(|(at, _)| at);
        for end in slashes.chain([path.len()]) {
            let directory = &path[..end];
            if !directory.is_empty() && !self.directories.iter().any(|made| made == directory) {
                self.directories.push(directory.to_owned());
                self.member(directory, DIRECTORY, &[]);
            }
        }
    }

    /// Header, name and content, each padded to four bytes.
    fn member(&mut self, name: &str, mode: u32, content: &[u8]) {
        // Inode, mode, user, group, links, time, size, device (2), special device (2), length of
        // the name, checksum. Inodes matter to hard links only, and there are none.
        let (size, named) = (content.len() as u32, name.len() as u32 + 1);
        let fields = [0, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, named, 0];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").into_bytes());
        }
        self.bytes.extend(name.bytes().chain([0]));
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        let whole = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(whole, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_aligned_and_directories_come_first_and_once() {
        let mut archive = Archive::default();
        archive.program("/lib/x86/libc.so", b"12345");
        archive.file("lib/y", b"");
        let bytes = archive.end();
        assert_eq!(bytes.len() % 4, 0);
        let (mut at, mut names) = (0, Vec::new());
        while at < bytes.len() {
            assert_eq!(&bytes[at..at + 6], b"070701");
            let field = |n: usize| {
                let digits = &bytes[at + 6 + 8 * n..at + 14 + 8 * n];
                usize::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap()
            };
            let (size, named) = (field(6), field(11));
            let name = &bytes[at + 110..at + 110 + named - 1];
            names.push(String::from_utf8(name.to_vec()).unwrap());
            at = (at + 110 + named).next_multiple_of(4) + size.next_multiple_of(4);
        }
        let expected = ["lib", "lib/x86", "lib/x86/libc.so", "lib/y", "TRAILER!!!"];
        assert_eq!(names, expected);
    }
}
