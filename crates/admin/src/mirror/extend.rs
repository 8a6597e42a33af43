//! Adding mirrors to a file.
//!
//! A new mirror is stale at first and is resynced like any other, so concurrent writes are not
//! lost. If the resync fails, the mirror is removed again.

use std::{fs::File, os::unix::fs::FileExt, path::Path};

use sheen_layout::Layout;
use sheen_wire::{Result, mirror::MirrorChange};

use super::{
    mirrored_file::{MirroredFile, NamedFile},
    resync::{Resync, declare, resync},
};
use crate::{file_system::FileSystem, os_errno, progress::Progress};

/// Bytes compared at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// A request to add mirrors.
#[derive(Clone, Copy, Debug)]
pub struct Extend<'a> {
    /// The request to the MDT: [`MirrorChange::Extend`] or [`MirrorChange::Merge`].
    pub change: &'a MirrorChange,
    /// The added mirrors are known to hold the same data and are not copied to.
    pub has_same_data: bool,
    /// Bandwidth limit in bytes per second.
    pub bandwidth: Option<u64>,
}

/// Adds mirrors to a file and resyncs them.
///
/// # Errors
/// As [`resync`]. The added mirrors are removed again.
pub fn extend(
    fs: &dyn FileSystem,
    path: &Path,
    request: &Extend<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<()> {
    let file = NamedFile { fs, path };
    let before = file.layout().map(|layout| ids(&layout)).unwrap_or_default();
    file.change(request.change)?;
    let added: Vec<u16> = ids(&file.layout()?).into_iter().filter(|id| !before.contains(id)).collect();
    let done = if request.has_same_data {
        declare(fs, path, &added)
    } else {
        resync(fs, path, &Resync { source: None, mirrors: &added, bandwidth: request.bandwidth }, progress)
    };
    if done.is_err() {
        for mirror in added {
            let _ = file.change(&MirrorChange::Split { mirror, into: None });
        }
    }
    done
}

/// Returns the ids of a file's mirrors, as they will be when the file is mirrored.
fn ids(layout: &Layout) -> Vec<u16> {
    layout.mirror_ids().into_iter().map(|id| id.max(1)).collect()
}

/// Whether two files hold the same data.
///
/// # Errors
/// The errno of a failed system call.
pub fn is_same(one: &Path, other: &Path) -> Result<bool> {
    let (one, other) = (File::open(one).map_err(os_errno)?, File::open(other).map_err(os_errno)?);
    let len = |file: &File| file.metadata().map(|m| m.len()).map_err(os_errno);
    let size = len(&one)?;
    if size != len(&other)? {
        return Ok(false);
    }
    let (mut a, mut b) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    let mut at = 0;
    while at < size {
        let n = usize::try_from(size - at).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        one.read_exact_at(&mut a[..n], at).map_err(os_errno)?;
        other.read_exact_at(&mut b[..n], at).map_err(os_errno)?;
        if a[..n] != b[..n] {
            return Ok(false);
        }
        at += n as u64;
    }
    Ok(true)
}
