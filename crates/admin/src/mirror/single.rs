//! Single mirrors of an open file.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::{
    fs::{SeekFrom, seek},
    io::Errno as Os,
};
use sheen_wire::Result;

use crate::{open_file::use_mirror, os_errno};

/// Runs `what` while an open file is bound to one of its mirrors. Afterwards it is bound to none.
///
/// # Errors
/// As [`use_mirror`], and the error of `what`.
pub fn as_mirror<T>(file: BorrowedFd<'_>, id: u16, what: impl FnOnce() -> Result<T>) -> Result<T> {
    use_mirror(file, id)?;
    let done = what();
    let cleared = use_mirror(file, 0);
    done.and_then(|done| cleared.map(|()| done))
}

/// Returns the first range of data at or after `at`; `None` if there is none. Moves the offset of
/// the file, as lseek(2) does.
///
/// # Errors
/// The errno of lseek(2).
pub fn next_data(file: impl AsFd, at: u64) -> Result<Option<(u64, u64)>> {
    let start = seek(&file, SeekFrom::Data(at));
    match start.and_then(|start| Ok((start, seek(&file, SeekFrom::Hole(start))?))) {
        Ok(range) => Ok(Some(range)),
        // Also if a program truncates the file between the two calls.
        Err(Os::NXIO) => Ok(None),
        Err(e) => Err(os_errno(e)),
    }
}

/// Reads from a mirror until the buffer is full or the file ends.
///
/// # Errors
/// As [`as_mirror`], and the errno of pread(2).
pub fn read(file: BorrowedFd<'_>, id: u16, buffer: &mut [u8], at: u64) -> Result<usize> {
    as_mirror(file, id, || {
        let mut done = 0;
        while let Some(room) = buffer.get_mut(done..).filter(|room| !room.is_empty()) {
            match rustix::io::pread(file, room, at + done as u64).map_err(os_errno)? {
                0 => break,
                n => done += n,
            }
        }
        Ok(done)
    })
}

#[cfg(test)]
mod tests {
    use rustix::fs::MemfdFlags;

    use super::*;

    #[test]
    fn mirror_data_seek_finds_data_between_holes() {
        let file = rustix::fs::memfd_create(c"holes", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 1 << 20).unwrap();
        assert_eq!(rustix::io::pwrite(&file, &[1; 4096], 1 << 19), Ok(4096));
        let (start, end) = next_data(&file, 0).unwrap().unwrap();
        assert!(start <= 1 << 19 && end >= (1 << 19) + 4096);
        assert_eq!(next_data(&file, end), Ok(None));
        assert_eq!(next_data(&file, 1 << 21), Ok(None), "behind the end");
    }
}
