//! A check of a whole store.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::{FxHashMap, FxHashSet};
use sheen_layout::MDT_OST;
use sheen_wire::{Fid, FileKind, Time, fid::ROOT, ost::StoredObject, quota::Id, seq::ost_seq};

use super::{
    found::{File, Found, Usage},
    links,
    object::Expected,
    problem::Problem,
    repair,
    scan::Scan,
};
use crate::{Batch, Store, StoreError, key, record::Inode, tables::read};

/// Directories between a file and the root that are named in a path.
const DEPTH_MAX: usize = 256;

/// The result of a check. Needs up to 200 bytes of memory for each file, and 100 for each object.
pub struct Check {
    found: Found,
}

impl std::fmt::Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Check({:?})", self.found.problems)
    }
}

impl Check {
    /// Reads the whole store. `progress` is called now and then with the number of records that
    /// were read, and the approximate number of all records.
    ///
    /// # Errors
    /// The store cannot be read, has no superblock or counters, or a later release wrote it.
    pub fn of(store: &impl Store, progress: &mut dyn FnMut(u64, u64)) -> Result<Check, StoreError> {
        let mut scan = Scan::new(store, progress)?;
        scan.run()?;
        scan.object_ids();
        let mut check = Check { found: scan.found };
        check.files(store)?;
        check.loops(store)?;
        check.sort();
        Ok(check)
    }

    /// Checks an object that an OST has, which does not run: whether it belongs to a file, and what
    /// is stored of it.
    pub fn object(&mut self, ost: u32, object: Fid, stored: &StoredObject) {
        if self.is_orphan(ost, object) {
            self.report(Problem::OrphanObject { ost, object, bytes: stored.size });
        } else if let Some(expected) = self.expected(ost, object) {
            expected.problems(ost, object, stored).for_each(|problem| self.report(problem));
        }
    }

    /// Adds a problem of an object.
    pub fn report(&mut self, problem: Problem) {
        self.found.report(problem);
    }

    /// Returns what should be stored of an object. `None`: no file has it.
    pub fn expected(&self, ost: u32, object: Fid) -> Option<Expected> {
        let of = self.found.objects.get(&(ost, object))?;
        let file = self.found.files.get(&of.file).filter(|_| !self.found.owner_log.contains(&of.file));
        Some(Expected { file: of.file, owner: file.map(|file| file.owner), end: of.end })
    }

    /// Returns whether an object belongs to no file, and nothing is going to destroy it.
    pub fn is_orphan(&self, ost: u32, object: Fid) -> bool {
        let at = (ost, object);
        let is_ours = object.seq == ost_seq(self.found.mdt, ost);
        is_ours && !self.found.objects.contains_key(&at) && !self.found.is_doomed(at)
    }

    /// Returns whether an object had been given to a file at the time of the check.
    pub fn was_used(&self, ost: u32, object: Fid) -> bool {
        self.found.ids.get(&ost).is_some_and(|ids| object.oid <= ids.last)
    }

    /// Returns whether the objects of all files are known. Otherwise an object that seems to be an
    /// orphan may belong to a file whose records are damaged. To be called before objects are
    /// checked.
    pub fn knows_all_objects(&self) -> bool {
        self.found.more == 0 && !self.found.problems.iter().any(Problem::hides_objects)
    }

    /// Returns whether all names of files are known. Otherwise a repair on a running MDT that
    /// counts names could lose a file whose name a lookup still finds. (A repair on a stopped MDT
    /// removes such entries first.)
    pub fn knows_all_names(&self) -> bool {
        !self.found.problems.iter().any(Problem::hides_names)
    }

    /// Returns the problems, at most 100,000 of them.
    pub fn problems(&self) -> &[Problem] {
        &self.found.problems
    }

    /// Returns the problems that the next repair solves: those of the first stage that has any.
    pub fn next_repairs(&self) -> Vec<&Problem> {
        let repairable = || self.found.problems.iter().filter(|problem| problem.repair().is_some());
        let first = repairable().map(Problem::stage).min();
        repairable().filter(|problem| Some(problem.stage()) == first).collect()
    }

    /// Returns the positions in [`Check::problems`] of those that a running MDT can repair, by
    /// [`Problem::stage`].
    pub fn online_stages(&self) -> BTreeMap<u8, Vec<usize>> {
        let mut stages: BTreeMap<u8, Vec<usize>> = BTreeMap::new();
        for (n, problem) in self.found.problems.iter().enumerate().filter(|(_, p)| p.is_repaired_online()) {
            stages.entry(problem.stage()).or_default().push(n);
        }
        stages
    }

    /// Whether a running MDT may repair anything: all problems are known, and none makes other
    /// findings doubtful. To be called before objects are checked. (For objects see
    /// [`Check::knows_all_objects`], for names [`Check::knows_all_names`].)
    pub fn permits_online_repairs(&self) -> bool {
        self.found.more == 0 && !self.found.problems.iter().any(Problem::bars_online_repairs)
    }

    /// Returns the number of all problems.
    pub fn problem_count(&self) -> u64 {
        self.found.problems.len() as u64 + self.found.more
    }

    /// Returns the number of files.
    pub fn files_count(&self) -> u64 {
        self.found.files.len() as u64
    }

    /// Returns the number of objects that files have.
    pub fn objects_count(&self) -> u64 {
        self.found.objects.len() as u64
    }

    /// Returns the indices of the OSTs that have objects of files.
    pub fn osts(&self) -> BTreeSet<u32> {
        self.found.objects.keys().map(|(ost, _)| *ost).filter(|ost| *ost != MDT_OST).collect()
    }

    /// Returns a path of a file, as its stored names tell it; `None` if it has none.
    pub fn path(store: &impl Store, file: Fid) -> Option<String> {
        let (mut path, mut fid) = (String::new(), file);
        for _ in 0..DEPTH_MAX {
            if fid == ROOT {
                return Some(if path.is_empty() { "/".to_owned() } else { path });
            }
            let inode: Inode = read(store, &key::inode(fid)).ok().flatten()?;
            let link = inode.links.first()?;
            path = format!("/{}{path}", String::from_utf8_lossy(&link.name));
            fid = link.parent;
        }
        None
    }

    /// Returns the changes that repair the problems of [`Check::next_repairs`], and how many these
    /// are. `None`: there is nothing that can be repaired. Commit the batch and check again. `now`
    /// becomes the time of the changes.
    ///
    /// # Errors
    /// The store cannot be read. There are no FIDs left for new files.
    pub fn repair(&self, store: &impl Store, now: Time) -> Result<Option<(Batch, usize)>, StoreError> {
        let problems = self.next_repairs();
        if problems.is_empty() {
            return Ok(None);
        }
        let batch = repair::batch(store, &self.found, &problems, now)?;
        Ok(Some((batch, problems.len())))
    }

    fn sort(&mut self) {
        self.found.problems.sort_by_key(|problem| (problem.stage(), problem.fid(), problem.name()));
    }

    /// Compares the numbers of each file with what was found.
    fn files(&mut self, store: &impl Store) -> Result<(), StoreError> {
        let mut problems = Vec::new();
        let mut unequal = FxHashSet::default();
        for (&fid, file) in &self.found.files {
            numbers(fid, file, &mut problems);
            let has_names = file.names > 0;
            let is_one = file.kind != FileKind::Dir || (fid != ROOT && file.names == 1);
            if has_names && (!is_one || file.links != file.names || file.links_sum != file.names_sum) {
                unequal.insert(fid);
            }
        }
        let (stored, counted) = (self.found.counters.files, self.found.files.len() as u64);
        if stored != counted {
            problems.push(Problem::FileCount { stored, counted });
        }
        if self.found.counts_files {
            usage(&self.found, &mut problems);
        }
        let has_root = self.found.files.contains_key(&ROOT);
        if !has_root && !self.found.problems.contains(&Problem::NoDirectory(ROOT)) {
            problems.push(Problem::NoDirectory(ROOT));
        }
        problems.into_iter().for_each(|problem| self.found.report(problem));
        links::compare(store, &mut self.found, &unequal)
    }

    /// Finds directories below themselves: following the parents from them never ends.
    fn loops(&mut self, store: &impl Store) -> Result<(), StoreError> {
        // The walk that reached each directory.
        let mut walks: FxHashMap<Fid, u32> = FxHashMap::default();
        let mut looped = FxHashSet::default();
        let dirs = self.found.files.iter().filter(|(_, file)| file.kind == FileKind::Dir);
        for (walk, (&fid, _)) in dirs.enumerate() {
            let (walk, mut at) = (walk as u32, fid);
            while let Some(dir) = self.found.files.get(&at).filter(|dir| dir.names > 0 && at != ROOT) {
                match walks.insert(at, walk) {
                    None => at = dir.parent,
                    Some(earlier) => {
                        if earlier == walk {
                            looped.insert(at);
                        }
                        break;
                    }
                }
            }
        }
        for names in links::names_of(store, &looped)?.into_values() {
            names.into_iter().take(1).for_each(|at| self.found.report(Problem::Loop(at)));
        }
        Ok(())
    }
}

/// Compares the numbers of files by owner.
fn usage(found: &Found, problems: &mut Vec<Problem>) {
    let ids: BTreeSet<Id> = found.usage.keys().chain(found.usage_found.keys()).copied().collect();
    for id in ids {
        let of = |usage: &Usage| usage.get(&id).copied().unwrap_or_default();
        let (stored, counted) = (of(&found.usage), of(&found.usage_found));
        if stored != counted {
            problems.push(Problem::QuotaUsage { id, stored, counted });
        }
    }
}

/// Compares the numbers of one file.
fn numbers(fid: Fid, file: &File, problems: &mut Vec<Problem>) {
    let is_dir = file.kind == FileKind::Dir;
    let is_named = file.names > 0 || fid == ROOT;
    let counted = if is_dir { 2 + file.subdirs } else { file.names };
    // A deleted file that is still open has neither names nor links.
    let is_orphan = file.is_orphan && file.nlink == 0 && file.entries_found == 0;
    if !is_named && !is_orphan {
        problems.push(Problem::NoName(fid, file.kind));
    } else if is_named && file.nlink != counted {
        problems.push(Problem::LinkCount { fid, stored: file.nlink, counted });
    }
    if is_dir && file.entries != file.entries_found {
        problems.push(Problem::EntryCount { fid, stored: file.entries, counted: file.entries_found });
    }
    if file.xattr_bytes != file.xattr_bytes_found {
        let (stored, counted) = (file.xattr_bytes, file.xattr_bytes_found);
        problems.push(Problem::XattrBytes { fid, stored, counted });
    }
}
