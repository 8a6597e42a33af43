//! Splicing of file pages to the kernel without a copy in this process: file → pipe → `/dev/fuse`,
//! by splice(2).
//!
//! Invariants:
//!
//! * A pipe that is stored for reuse is empty. Any failure while a pipe contains bytes closes it.
//! * Nothing here waits for space in a pipe: a message that does not fit as a whole is not started.

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
};

use rustix::{
    io::Errno as Os,
    pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice},
};

use crate::pool::PAGE_BYTES;

/// Requested pipe size in bytes: the maximum for ordinary users (default of
/// `/proc/sys/fs/pipe-max-size`).
const PIPE_BYTES: usize = 1 << 20;
/// Requested pipe size in bytes with one more page, because the reply's header occupies a page of
/// the pipe.
const PIPE_BYTES_WITH_HEADER: usize = PIPE_BYTES + PAGE_BYTES;

/// A range of a file, to be sent by splicing.
#[derive(Clone, Copy, Debug)]
pub struct FileRun<'a> {
    /// The file, open for reading.
    pub file: BorrowedFd<'a>,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: usize,
}

impl FileRun<'_> {
    /// Returns the number of pages that the range touches. Each one occupies a slot of the pipe.
    fn pages(&self) -> usize {
        let skipped = (self.offset % PAGE_BYTES as u64) as usize;
        self.len.saturating_add(skipped).div_ceil(PAGE_BYTES)
    }
}

/// A pipe with both ends in this process.
#[derive(Debug)]
pub(crate) struct Pipe {
    out: OwnedFd,
    into: OwnedFd,
    /// Capacity in pages.
    pages: usize,
}

impl Pipe {
    /// Opens an empty pipe for a header and 1 MiB of data, or for one page less. Fails if the user
    /// already has too many large pipes (`/proc/sys/fs/pipe-user-pages-soft`).
    pub(crate) fn open() -> io::Result<Pipe> {
        let (out, into) = pipe_with(PipeFlags::CLOEXEC)?;
        let bytes =
            fcntl_setpipe_size(&into, PIPE_BYTES_WITH_HEADER).or_else(|_| fcntl_setpipe_size(&into, PIPE_BYTES))?;
        Ok(Pipe { out, into, pages: bytes / PAGE_BYTES })
    }

    /// Whether a header and the runs fit.
    pub(crate) fn holds(&self, runs: &[FileRun<'_>]) -> bool {
        runs.iter().fold(1, |sum: usize, run| sum.saturating_add(run.pages())) <= self.pages
    }

    /// Puts a header and the runs into the pipe. The caller has checked with `holds` that they fit.
    /// Returns false if bytes are missing, because a file is shorter than expected.
    pub(crate) fn fill(&self, header: &[u8], runs: &[FileRun<'_>]) -> io::Result<bool> {
        if rustix::io::write(&self.into, header)? != header.len() {
            return Ok(false);
        }
        for run in runs {
            let (mut offset, mut left) = (run.offset, run.len);
            while left > 0 {
                match splice(run.file, Some(&mut offset), &self.into, None, left, SpliceFlags::NONBLOCK) {
                    Ok(0) => return Ok(false),
                    Ok(n) => left = left.saturating_sub(n),
                    Err(Os::INTR) => {}
                    Err(e) => return Err(e.into()),
                }
            }
        }
        Ok(true)
    }

    /// Moves the pipe's `len` bytes to `device` as one message. Returns whether the device accepted
    /// all of them.
    pub(crate) fn empty_into(&self, device: BorrowedFd<'_>, len: usize) -> rustix::io::Result<bool> {
        // Not SpliceFlags::MOVE: it would remove the pages from their file.
        Ok(splice(&self.out, None, device, None, len, SpliceFlags::empty())? == len)
    }
}

/// Returns the maximum number of bytes, a power of two, that [`crate::Reply::files`] can send in
/// one reply from page-aligned offsets. Returns 0 if no pipe is available.
pub fn files_bytes_max() -> usize {
    let places = Pipe::open().map_or(0, |pipe| pipe.pages.saturating_sub(1));
    let pages = places.checked_ilog2().map_or(0, |log| 1_usize << log);
    pages * PAGE_BYTES
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::fd::AsFd};

    use super::*;

    #[test]
    fn file_run_counts_the_pages_it_touches() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let run = |offset, len| FileRun { file: file.as_fd(), offset, len }.pages();
        assert_eq!((run(0, 4096), run(1, 4096), run(4095, 1), run(4095, 2), run(5, 0)), (1, 2, 1, 2, 1));
        let pipe = Pipe::open().unwrap();
        let all = pipe.pages * PAGE_BYTES;
        assert!(!pipe.holds(&[FileRun { file: file.as_fd(), offset: 0, len: all }]), "no room for the header");
        assert!(pipe.holds(&[FileRun { file: file.as_fd(), offset: 0, len: all - PAGE_BYTES }]));
        assert!(files_bytes_max().is_power_of_two() && files_bytes_max() < all);
    }

    #[test]
    fn pipe_fill_detects_a_short_file() {
        let path = std::env::temp_dir().join(format!("sheen-fuse-pipe-{}", std::process::id()));
        let mut file = std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all(&[7; 10_000]).unwrap();
        let run = |len| FileRun { file: file.as_fd(), offset: 1, len };
        assert!(!Pipe::open().unwrap().fill(b"head", &[run(5000), run(10_000)]).unwrap());
        let pipe = Pipe::open().unwrap();
        assert!(pipe.fill(b"head", &[run(5000), run(9_999)]).unwrap());
        let mut got = vec![0; 20_000];
        let n = rustix::io::read(&pipe.out, &mut got).unwrap();
        assert_eq!(&got[..n], [&b"head"[..], &[7; 14_999]].concat());
    }
}
