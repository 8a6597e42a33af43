//! Repairs on a running MDT. Each is an operation of the namespace: it is committed, and revokes
//! what clients cache, as any other.
//!
//! A check describes a snapshot, and clients go on. So each repair first makes sure that the
//! finding still holds, and otherwise fails with ESTALE:
//! * The records concerned prove it where they can, for example that an entry names no file.
//! * For the rest the [watch](crate::watch) proves it: no name of the file, or no entry of the
//!   directory, has changed since the snapshot.
//! * The entries of a directory that did change are counted again, if there are not too many. All
//!   repairs of one step share a budget for this ([`CountBudget`]): the MDT waits meanwhile.
//! * A number of files changes by the difference that the check found: operations since then
//!   altered the stored and the right number alike.
//!
//! Owners of objects need no proof: the MDT sends the OSTs the file's present owner.
//!
//! Repairs of one stage do not disturb each other, so they are not changes for the watch.

use std::sync::Arc;

use sheen_wire::{
    self as wire, Cred, Errno, Fid, FileKind,
    changelog::{Kind, LAST},
    fid::ROOT,
    ldlm::bits,
    mds::NAME_MAX,
    quota::Id,
};

use super::problem::{EntryAt, Problem};
use crate::{
    Done, Env, Namespace, Store,
    changelog::Changed,
    held::INTERNAL_CLIENT,
    interface::Cx,
    key,
    lost_found::DIR_PERM,
    record::{Bucket, Dentry, Inode, Name, encode},
    watch::Watch,
};

/// Maximum number of entries that are counted in one step. Reading them takes about 10 ms.
const COUNTED_MAX: u64 = 16_384;
/// Hashes of a directory that are read at once.
const BUCKETS_AT_ONCE: usize = 1024;

/// The place for a file that has no name, or for an object that has no file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The directory `/lost+found`.
    pub dir: Fid,
    /// An unused FID, for a file that is made of an object.
    pub fid: Fid,
}

/// The number of directory entries that the repairs of one step may still count. The default is
/// the maximum, 16,384.
#[derive(Debug)]
pub struct CountBudget {
    left: u64,
}

impl Default for CountBudget {
    fn default() -> CountBudget {
        CountBudget { left: COUNTED_MAX }
    }
}

impl CountBudget {
    /// Returns the error for a directory with more entries than are left, and leaves none. E2BIG: a
    /// whole budget is too small. EAGAIN: other directories have used a part of it.
    fn exceeded(&mut self) -> Errno {
        let is_whole = self.left == COUNTED_MAX;
        self.left = 0;
        if is_whole { Errno::E2BIG } else { Errno::EAGAIN }
    }
}

impl<S: Store> Namespace<S> {
    /// Notes from now on what changes, for repairs. Everything that was executed before must be
    /// durable when the snapshot for [`crate::Check::of`] is made.
    pub fn begin_watch(&mut self) {
        self.tables.watch = Some(Watch::default());
    }

    /// Notes only changes that concern these problems. To be called after the check, to save
    /// memory.
    pub fn watch_only(&mut self, problems: &[Problem]) {
        if let Some(watch) = &mut self.tables.watch {
            watch.only(problems.iter().flat_map(Problem::files).collect());
        }
    }

    /// Ends the watch. Repairs then fail with ESTALE.
    pub fn end_watch(&mut self) {
        self.tables.watch = None;
    }

    /// Repairs a problem that a check of a snapshot found while the watch was on. `place`: needed
    /// if [`Problem::needs_lost_found`]. `budget`: that of the step, for repairs that count
    /// entries.
    ///
    /// # Errors
    /// ESTALE: the finding does not hold any more, or cannot be proved. E2BIG: a lost directory has
    /// too many entries. ENOTEMPTY: the missing file is a lost directory with entries. EAGAIN: the
    /// budget does not suffice, and earlier repairs of the step have used a part of it. EOPNOTSUPP:
    /// only [`crate::Check::repair`] can repair it. Others as [`Namespace::adopt`]. Nothing has
    /// changed then.
    pub fn repair(
        &mut self,
        problem: &Problem,
        place: Option<Place>,
        budget: &mut CountBudget,
        env: &mut dyn Env,
    ) -> wire::Result<Done> {
        let now = env.now();
        match problem {
            Problem::OrphanObject { ost, object, bytes: 0 } => return self.discard(*ost, *object, now),
            Problem::OrphanObject { ost, object, .. } => {
                let Place { dir, fid } = place.ok_or(Errno::EINVAL)?;
                return self.adopt(*ost, *object, dir, fid, env);
            }
            Problem::InconsistentOwner { file, .. } => {
                let logged = self.send_owner(*file);
                return self.done(logged, now);
            }
            _ => {}
        }
        let watch = self.tables.watch.take().ok_or(Errno::ESTALE)?;
        let cx = Cx { client: INTERNAL_CLIENT, now, env };
        let repaired = self.repair_watched(&cx, problem, place, &watch, budget);
        self.tables.watch = Some(watch);
        self.done(repaired, now)
    }

    fn repair_watched(
        &mut self,
        cx: &Cx,
        problem: &Problem,
        place: Option<Place>,
        watch: &Watch,
        budget: &mut CountBudget,
    ) -> wire::Result<()> {
        let unchanged = |fid: Fid| if watch.has_changed(fid) { Err(Errno::ESTALE) } else { Ok(()) };
        match problem {
            Problem::NoDirectory(fid) => self.make_again(cx, *fid, budget),
            Problem::Dangling(at) => self.remove_dangling(cx, at),
            Problem::WrongType(at, _) => self.correct_type(at),
            Problem::SecondName(at) => {
                unchanged(at.fid)?;
                self.take_entry(at)?;
                self.record(cx, &Cred::ROOT, &Changed::entry(Kind::Unlnk, at.fid, at.dir, &at.name));
                Ok(())
            }
            Problem::NoName(fid, _) => {
                unchanged(*fid)?;
                self.link_lost(cx, *fid, place.ok_or(Errno::EINVAL)?.dir)
            }
            Problem::WrongLinks { fid, names } => {
                unchanged(*fid)?;
                self.correct(*fid, bits::LOOKUP | bits::UPDATE, |inode| inode.set_links(names))
            }
            Problem::LinkCount { fid, counted, .. } => {
                let counted = self.recounted(watch, *fid, budget)?.map_or(*counted, |(_, subdirs)| 2 + subdirs);
                self.correct(*fid, bits::UPDATE, |inode| inode.nlink = counted)
            }
            Problem::EntryCount { fid, counted, .. } => {
                let counted = self.recounted(watch, *fid, budget)?.map_or(*counted, |(entries, _)| entries);
                self.correct(*fid, bits::UPDATE, |inode| inode.entries = counted)
            }
            Problem::XattrBytes { fid, .. } => {
                let bytes = self.tables.xattrs(*fid)?.bytes() as u32;
                self.correct(*fid, bits::XATTR, |inode| inode.xattr_bytes = bytes)
            }
            Problem::XattrsOfNoFile(fid) => {
                self.must_be_missing(*fid)?;
                self.tables.put_xattrs(*fid, None);
                Ok(())
            }
            Problem::WrongOrphan(fid) => {
                unchanged(*fid)?;
                self.take_off_orphans(*fid)
            }
            Problem::FileCount { stored, counted } => self.correct_files((*stored, *counted), watch),
            Problem::QuotaUsage { id, stored, counted } => self.correct_usage(cx, *id, (*stored, *counted), watch),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    /// Lets the MDT send the owner of a file to the OSTs of its objects.
    fn send_owner(&mut self, fid: Fid) -> wire::Result<()> {
        self.present(fid)?;
        self.tables.touch(0);
        self.tables.log_owner(fid);
        Ok(())
    }

    /// Returns a file: ESTALE if it is deleted.
    fn present(&mut self, fid: Fid) -> wire::Result<Arc<Inode>> {
        self.tables.inode(fid)?.ok_or(Errno::ESTALE)
    }

    fn must_be_missing(&mut self, fid: Fid) -> wire::Result<()> {
        if self.tables.inode(fid)?.is_some() { Err(Errno::ESTALE) } else { Ok(()) }
    }

    /// Changes an inode, and lets requests for these bits of it wait until that is durable. ESTALE
    /// if the inode is right already.
    fn correct(&mut self, fid: Fid, bits: u64, change: impl FnOnce(&mut Inode)) -> wire::Result<()> {
        let old = self.present(fid)?;
        let mut inode = Inode::clone(&*old);
        change(&mut inode);
        if inode == *old {
            return Err(Errno::ESTALE);
        }
        self.tables.put_inode(fid, inode);
        self.tables.invalidate(fid, bits);
        Ok(())
    }

    /// Returns the numbers of entries and subdirectories, if the directory has changed since the
    /// snapshot. `None`: what the check counted is right.
    fn recounted(&mut self, watch: &Watch, fid: Fid, budget: &mut CountBudget) -> wire::Result<Option<(u64, u32)>> {
        if !watch.has_changed(fid) {
            return Ok(None);
        }
        let inode = self.present(fid)?;
        if !inode.is_dir() || inode.nlink == 0 {
            return Err(Errno::ESTALE);
        }
        match self.count_entries(fid, budget) {
            Err(Errno::E2BIG) => Err(Errno::ESTALE),
            counted => counted.map(Some),
        }
    }

    /// Counts the entries and the subdirectories of a directory, and takes the entries from the
    /// budget. Fails as [`CountBudget::exceeded`].
    fn count_entries(&mut self, dir: Fid, budget: &mut CountBudget) -> wire::Result<(u64, u32)> {
        if budget.left == 0 {
            return Err(budget.exceeded());
        }
        let (mut entries, mut subdirs, mut from) = (0, 0, 0);
        loop {
            let buckets = self.tables.buckets(dir, from, BUCKETS_AT_ONCE)?;
            for entry in buckets.iter().flat_map(|(_, bucket)| bucket.iter()) {
                entries += 1;
                subdirs += u32::from(entry.kind == FileKind::Dir);
            }
            if entries > budget.left {
                return Err(budget.exceeded());
            }
            match buckets.last().and_then(|(hash, _)| hash.checked_add(1)) {
                Some(next) if buckets.len() == BUCKETS_AT_ONCE => from = next,
                _ => {
                    budget.left -= entries;
                    return Ok((entries, subdirs));
                }
            }
        }
    }

    /// Makes a directory that has entries already. It has no name.
    fn make_again(&mut self, cx: &Cx, fid: Fid, budget: &mut CountBudget) -> wire::Result<()> {
        self.must_be_missing(fid)?;
        let (entries, subdirs) = self.count_entries(fid, budget)?;
        if entries == 0 {
            return Err(Errno::ESTALE);
        }
        let root = self.dir(ROOT)?;
        let (uid, gid, nlink) = (root.uid, root.gid, 2 + subdirs);
        let inode = Inode { nlink, perm: DIR_PERM, uid, gid, entries, ..Inode::new(FileKind::Dir, cx.now) };
        self.tables.put_inode(fid, inode);
        self.counters.files += 1;
        self.tables.invalidate(fid, bits::LOOKUP | bits::UPDATE);
        Ok(())
    }

    fn remove_dangling(&mut self, cx: &Cx, at: &EntryAt) -> wire::Result<()> {
        self.must_be_missing(at.fid)?;
        if !self.tables.buckets(at.fid, 0, 1)?.is_empty() {
            // The directory can be made again, and then has this name.
            return Err(Errno::ENOTEMPTY);
        }
        let kind = if self.take_entry(at)? == FileKind::Dir { Kind::Rmdir } else { Kind::Unlnk };
        let removed = Changed { flags: LAST, ..Changed::entry(kind, at.fid, at.dir, &at.name) };
        self.record(cx, &Cred::ROOT, &removed);
        Ok(())
    }

    /// Removes an entry, and returns its type. The directory's numbers stay: the next check finds
    /// whether they counted the entry.
    fn take_entry(&mut self, at: &EntryAt) -> wire::Result<FileKind> {
        let bucket = self.tables.bucket(at.dir, at.hash)?.ok_or(Errno::ESTALE)?;
        let is_it = |entry: &&Dentry| entry.fid == at.fid && *entry.name == *at.name;
        let kind = bucket.iter().find(is_it).ok_or(Errno::ESTALE)?.kind;
        let mut rest: Vec<Dentry> = bucket.iter().filter(|entry| !is_it(entry)).cloned().collect();
        let bucket = (!rest.is_empty()).then(|| Bucket { first: rest.remove(0), rest });
        self.tables.put_bucket(at.dir, at.hash, bucket);
        Ok(kind)
    }

    fn correct_type(&mut self, at: &EntryAt) -> wire::Result<()> {
        let kind = self.present(at.fid)?.kind;
        let entry = self.find(at.dir, &at.name)?.filter(|entry| entry.fid == at.fid && entry.kind != kind);
        entry.ok_or(Errno::ESTALE)?;
        self.change_entry(at.dir, &at.name, at.fid, kind)
    }

    /// Gives a file a name in the directory for lost files.
    fn link_lost(&mut self, cx: &Cx, fid: Fid, dir: Fid) -> wire::Result<()> {
        let inode = self.present(fid)?;
        if self.dir(dir)?.nlink == 0 {
            return Err(Errno::ENOENT);
        }
        let mut name = fid.to_string().trim_matches(['[', ']']).to_owned();
        while self.find(dir, name.as_bytes())?.is_some() {
            name.push('~');
        }
        if name.len() > NAME_MAX {
            return Err(Errno::EEXIST);
        }
        let link = Name::new(name.as_bytes());
        self.add_entry(dir, link.clone(), fid, inode.kind)?;
        self.touch_dir(dir, cx.now, 1, i64::from(inode.is_dir()))?;
        self.edit(fid, |inode| {
            inode.links.clear();
            inode.add_link(dir, link);
            inode.nlink = inode.nlink.max(1);
            inode.linkable = false;
            inode.ctime = cx.now;
        })?;
        self.record(cx, &Cred::ROOT, &Changed::entry(Kind::Hlink, fid, dir, name.as_bytes()));
        Ok(())
    }

    /// Takes a file off the list of those to be deleted. A file without links has no names either,
    /// or its number of links is a problem of its own.
    fn take_off_orphans(&mut self, fid: Fid) -> wire::Result<()> {
        if self.tables.inode(fid)?.is_some_and(|inode| inode.nlink == 0) {
            return Err(Errno::ESTALE);
        }
        self.tables.put_raw(key::orphan(fid), None);
        Ok(())
    }

    fn correct_files(&mut self, (stored, counted): (u64, u64), watch: &Watch) -> wire::Result<()> {
        let files = corrected(self.counters.files, stored, counted).filter(|_| !watch.was_below_zero(None));
        self.counters.files = files.ok_or(Errno::ESTALE)?;
        let record = encode(&self.counters, Vec::new());
        let record = self.tables.fail(record)?;
        self.tables.put_raw(key::COUNTERS.to_vec(), Some(record));
        Ok(())
    }

    fn correct_usage(&mut self, cx: &Cx, id: Id, (stored, counted): (u64, u64), watch: &Watch) -> wire::Result<()> {
        let used = corrected(self.tables.quotas.used(id), stored, counted);
        let used = used.filter(|_| !watch.was_below_zero(Some(id))).ok_or(Errno::ESTALE)?;
        let record = (used > 0).then(|| encode(&used, Vec::new())).transpose();
        let record = self.tables.fail(record)?;
        self.tables.quotas.correct(id, used, cx.now);
        self.tables.put_raw(key::quota(key::USAGE, id), record);
        Ok(())
    }
}

/// Returns a number that was `stored` in the snapshot and should have been `counted`, as it should
/// be now. `None`: below 0.
fn corrected(now: u64, stored: u64, counted: u64) -> Option<u64> {
    u64::try_from(i128::from(now) + i128::from(counted) - i128::from(stored)).ok()
}
