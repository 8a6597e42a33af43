//! The loop that copies the data of a file: in migrations, in resyncs and in the C library.

use crate::{pace::Pace, progress::Progress};

/// Bytes copied at a time: as many as one request carries.
pub const CHUNK_BYTES: usize = 4 << 20;

/// Source and targets of a copy.
pub trait Transfer {
    /// The error of a copy.
    type Error;
    /// Returns the first range of data at or after an offset; `None` if there is none.
    fn data(&mut self, at: u64) -> Result<Option<(u64, u64)>, Self::Error>;
    /// Reads from the source. 0: the source ends.
    fn read(&mut self, buffer: &mut [u8], at: u64) -> Result<usize, Self::Error>;
    /// Writes all bytes to the targets.
    fn write(&mut self, bytes: &[u8], at: u64) -> Result<(), Self::Error>;
}

/// Copies the data among the first `size` bytes, and leaves out holes. `bandwidth`: limit in bytes
/// per second. Reports [`Progress::Copied`].
///
/// If a program truncates the source meanwhile, the copy ends early and without an error. Its
/// caller learns of the change when it asks the servers to use the copy.
///
/// # Errors
/// The first error of `ends`.
pub fn copy_data<T: Transfer>(
    ends: &mut T,
    size: u64,
    bandwidth: Option<u64>,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), T::Error> {
    let (mut buffer, mut at) = (vec![0; CHUNK_BYTES], 0);
    let mut pace = Pace::new(bandwidth);
    while at < size {
        let Some((start, end)) = ends.data(at)? else { break };
        let end = end.min(size);
        if start >= end {
            break;
        }
        at = start;
        while at < end {
            let len = usize::try_from(end - at).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
            let n = ends.read(&mut buffer[..len], at)?;
            if n == 0 {
                return Ok(());
            }
            ends.write(&buffer[..n], at)?;
            at += n as u64;
            let copied = Progress::Copied { copied: at, total: size };
            progress(copied);
            pace.moved(n as u64, || progress(copied));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source with two ranges of data, of which reads return half a chunk at most.
    struct Ends {
        data: [(u64, u64); 2],
        source_end: u64,
        written: Vec<(u64, usize)>,
    }

    impl Transfer for Ends {
        type Error = ();

        fn data(&mut self, at: u64) -> Result<Option<(u64, u64)>, ()> {
            Ok(self.data.iter().find(|(_, end)| *end > at).map(|(start, end)| ((*start).max(at), *end)))
        }

        fn read(&mut self, buffer: &mut [u8], at: u64) -> Result<usize, ()> {
            Ok(buffer.len().min(CHUNK_BYTES / 2).min(self.source_end.saturating_sub(at) as usize))
        }

        fn write(&mut self, bytes: &[u8], at: u64) -> Result<(), ()> {
            self.written.push((at, bytes.len()));
            Ok(())
        }
    }

    #[test]
    fn copy_data_copies_data_and_leaves_out_holes() {
        let half = CHUNK_BYTES / 2;
        let data = [(10, 10 + CHUNK_BYTES as u64), (1 << 30, 2 << 30)];
        let mut ends = Ends { data, source_end: u64::MAX, written: Vec::new() };
        let mut reports = Vec::new();
        copy_data(&mut ends, (1 << 30) + 5, None, &mut |p| reports.push(p.bytes().0)).unwrap();
        assert_eq!(ends.written, [(10, half), (10 + half as u64, half), (1 << 30, 5)]);
        assert_eq!(reports, [10 + half as u64, 10 + CHUNK_BYTES as u64, (1 << 30) + 5]);
    }

    #[test]
    fn copy_data_ends_where_the_source_was_truncated() {
        let mut ends = Ends { data: [(0, 100), (200, 300)], source_end: 50, written: Vec::new() };
        copy_data(&mut ends, 300, None, &mut |_| {}).unwrap();
        assert_eq!(ends.written, [(0, 50)]);
    }
}
