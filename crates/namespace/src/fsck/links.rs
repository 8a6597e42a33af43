//! The names of files whose stored names do not fit what was counted: a second pass over the
//! entries, for these files only.

use rustc_hash::{FxHashMap, FxHashSet};
use sheen_wire::{Fid, FileKind, fid::ROOT};

use super::{
    found::Found,
    problem::{EntryAt, Problem},
};
use crate::{
    Store, StoreError, key,
    record::{Bucket, Inode, LINK_ENTRY_BYTES, LINKS_BYTES_MAX, Link, decode},
    table_scan::for_each_in,
    tables::read,
};

/// Returns all entries that name one of these files, in order of directory and hash.
pub(super) fn names_of(store: &impl Store, files: &FxHashSet<Fid>) -> Result<FxHashMap<Fid, Vec<EntryAt>>, StoreError> {
    let mut names: FxHashMap<Fid, Vec<EntryAt>> = FxHashMap::default();
    if files.is_empty() {
        return Ok(names);
    }
    for_each_in(store, b'e', |key, value| {
        // An entry that cannot be decoded was reported before.
        let (Some(dir), Some(hash)) = (key::orphan_fid(key), key::entry_hash(key)) else { return Ok(()) };
        let Ok(bucket) = decode::<Bucket>(key, value) else { return Ok(()) };
        for (position, entry) in bucket.iter().enumerate().filter(|(_, entry)| files.contains(&entry.fid)) {
            let at = EntryAt { dir, hash, position, name: entry.name.to_vec(), fid: entry.fid };
            names.entry(entry.fid).or_default().push(at);
        }
        Ok(())
    })?;
    Ok(names)
}

/// Compares the names of these files with those that are stored with them.
pub(super) fn compare(store: &impl Store, found: &mut Found, files: &FxHashSet<Fid>) -> Result<(), StoreError> {
    let bad: FxHashSet<(Fid, u64, usize)> = found.problems.iter().filter_map(bad_entry).collect();
    for (fid, mut names) in names_of(store, files)? {
        names.retain(|at| !bad.contains(&(at.dir, at.hash, at.position)));
        let Some(inode) = read::<Inode>(store, &key::inode(fid))? else { continue };
        if inode.kind == FileKind::Dir {
            directory(found, fid, &inode, names);
        } else {
            // A file with many names has only some of them stored with it.
            let is_name = |link: &Link| names.iter().any(|at| at.dir == link.parent && *at.name == *link.name);
            if inode.links.is_empty() || !inode.links.iter().all(is_name) {
                found.report(wrong_links(fid, names));
            }
        }
    }
    Ok(())
}

/// Of several names of a directory, the one that is stored with it remains, otherwise the first
/// one. The root has none.
fn directory(found: &mut Found, fid: Fid, inode: &Inode, names: Vec<EntryAt>) {
    let is_stored = |at: &EntryAt| inode.links.iter().any(|link| link.parent == at.dir && *link.name == *at.name);
    let first = if fid == ROOT { None } else { names.iter().find(|at| is_stored(at)).or(names.first()).cloned() };
    if let Some(first) = &first
        && (inode.links.len() != 1 || !is_stored(first))
    {
        found.report(wrong_links(fid, vec![first.clone()]));
    }
    for at in names.into_iter().filter(|at| Some(at) != first.as_ref()) {
        found.report(Problem::SecondName(at));
    }
}

/// Reports the names that should be stored with a file, as far as there is room for them.
fn wrong_links(fid: Fid, names: Vec<EntryAt>) -> Problem {
    let mut bytes = 0;
    let fits = |at: &EntryAt| {
        bytes += at.name.len() + LINK_ENTRY_BYTES;
        bytes <= LINKS_BYTES_MAX
    };
    let names = names.into_iter().take_while(fits).map(|at| (at.dir, at.name)).collect();
    Problem::WrongLinks { fid, names }
}

fn bad_entry(problem: &Problem) -> Option<(Fid, u64, usize)> {
    match problem {
        Problem::BadEntry(at, _) => Some((at.dir, at.hash, at.position)),
        _ => None,
    }
}
