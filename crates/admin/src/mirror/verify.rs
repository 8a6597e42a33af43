//! Verification that the mirrors of a file hold the same data.
//!
//! A file is compared in chunks. Within a chunk, no component of any mirror ends. For each chunk, a
//! checksum of every mirror is calculated. Checksums of stale mirrors are reported, but not
//! compared.

use std::{collections::BTreeSet, os::unix::fs::FileExt, path::Path};

use sheen_layout::Layout;
use sheen_wire::{Errno, Result};

use super::crc::Crc;
use crate::{file_system::FileSystem, os_errno};

/// Bytes read at a time.
const CHUNK_BYTES: usize = 4 << 20;

/// A chunk of a file, with the checksums of its mirrors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// First byte.
    pub start: u64,
    /// Byte after the last, as in the layout.
    pub end: u64,
    /// Byte after the last that was read: `end`, or the size of the file.
    pub end_of_data: u64,
    /// Ids and checksums (CRC-32) of the mirrors that are up to date.
    pub fresh: Vec<(u16, u32)>,
    /// Ids and checksums of stale mirrors.
    pub stale: Vec<(u16, u32)>,
}

impl Chunk {
    /// Whether mirrors that are up to date differ.
    pub fn differs(&self) -> bool {
        self.fresh.windows(2).any(|pair| pair[0].1 != pair[1].1)
    }

    fn verdict(&self) -> Result<()> {
        match (self.stale.is_empty(), self.differs()) {
            (false, _) => Err(Errno::ESTALE),
            (true, true) => Err(Errno::EUCLEAN),
            (true, false) => Ok(()),
        }
    }
}

/// Verifies a file of this layout. `only`: the ids of the mirrors to compare; none: all. Passes
/// each chunk to `report`.
///
/// # Errors
/// The first failure. ESTALE: a mirror is stale. EUCLEAN: mirrors differ. Otherwise the errno of a
/// failed read, which ends the verification.
pub fn verify(
    fs: &dyn FileSystem,
    path: &Path,
    layout: &Layout,
    only: &[u16],
    report: &mut dyn FnMut(&Chunk),
) -> Result<()> {
    let mut verdict = Ok(());
    for (start, end) in ranges(layout) {
        let found = read(fs, path, layout, only, (start, end)).and_then(|chunk| {
            let Some(chunk) = chunk else { return Ok(()) };
            report(&chunk);
            chunk.verdict()
        });
        verdict = verdict.and(found);
        if !matches!(verdict, Ok(()) | Err(Errno::ESTALE | Errno::EUCLEAN)) {
            break;
        }
    }
    verdict
}

/// Returns ranges within which no component of any mirror ends.
fn ranges(layout: &Layout) -> Vec<(u64, u64)> {
    let ends: BTreeSet<u64> = layout.components().iter().flat_map(|c| [c.start, c.end]).collect();
    let ends: Vec<u64> = ends.into_iter().collect();
    ends.windows(2).map(|w| (w[0], w[1])).collect()
}

/// Returns the checksums of a range; `None` if the file ends before it.
fn read(
    fs: &dyn FileSystem,
    path: &Path,
    layout: &Layout,
    only: &[u16],
    (start, end): (u64, u64),
) -> Result<Option<Chunk>> {
    let size = fs.size(path)?;
    if start >= size && start > 0 {
        return Ok(None);
    }
    let mut chunk = Chunk { start, end, end_of_data: end.min(size), fresh: Vec::new(), stale: Vec::new() };
    for mirror in layout.mirrors().iter().filter(|m| only.is_empty() || only.contains(&m.mirror_id())) {
        let id = mirror.mirror_id();
        let sum = checksum(fs, path, id, (start, chunk.end_of_data))?;
        if mirror.is_fresh() { &mut chunk.fresh } else { &mut chunk.stale }.push((id, sum));
    }
    Ok(Some(chunk))
}

/// Returns the checksum of a range of a mirror. Bytes that the mirror lacks at its end are left
/// out.
fn checksum(fs: &dyn FileSystem, path: &Path, id: u16, (start, end): (u64, u64)) -> Result<u32> {
    let file = fs.mirror(path, id, false)?;
    let mut buffer = vec![0; CHUNK_BYTES];
    let (mut crc, mut at) = (Crc::default(), start);
    while at < end {
        let len = usize::try_from(end - at).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        let n = file.read_at(&mut buffer[..len], at).map_err(os_errno)?;
        if n == 0 {
            break;
        }
        crc.add(&buffer[..n]);
        at += n as u64;
    }
    Ok(crc.value())
}
