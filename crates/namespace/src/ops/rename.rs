//! renameat2: moves a name. Replaces an existing target (default), refuses to replace it
//! (NOREPLACE), swaps both (EXCHANGE), or leaves a whiteout (WHITEOUT).
//!
//! In this order:
//!
//! * EINVAL for unknown flags, EXCHANGE with another flag, WHITEOUT without a FID for the whiteout
//!   or the reverse.
//! * EBUSY for `.` and `..`; ENOENT if the source is missing (with EXCHANGE: either); EEXIST with
//!   NOREPLACE if the target exists.
//! * EINVAL if the source is an ancestor of the target (with EXCHANGE: either of the other).
//! * Success without a change if both names refer to the same file.
//! * EACCES without write and search permission on both parents. EPERM by the sticky bit of either
//!   parent, for the source and a replaced target. Not with EXCHANGE: ENOTDIR for a directory over
//!   another file, EISDIR for the reverse.
//! * EACCES without write permission on a directory that moves to another parent, because its `..`
//!   changes.
//! * EXDEV for a directory, or an exchange, into another project ([`super::xattr_project`]).
//! * ENOTEMPTY for a directory over one that has entries.
//!
//! A whiteout is a character device 0:0 without permissions; EDQUOT as for any new file. If the
//! source's name refers to the whiteout FID in the request, the request is a resend: its first
//! execution survived a crash, its reply did not. It succeeds. As in [`super::create`], records of
//! requests come first.
//!
//! Sets mtime and ctime of both parents, and ctime of all files involved. A replaced file loses a
//! name as with unlink. Except in an exchange, the source gets the project id of a target directory
//! with the inheritance flag. Atomic: the target name exists all the time.

use std::sync::Arc;

use sheen_wire::{
    self as wire, Cred, Errno, Fid, FileKind,
    changelog::{self, Kind},
    fid,
    mds::{
        Reply,
        rename::{EXCHANGE, NOREPLACE, WHITEOUT},
    },
};

use super::{
    names::{is_dots, may_add, may_remove},
    nodes::{New, new_inode},
    xattr_project::check_boundary,
};
use crate::{
    Namespace, Store,
    access::{self, WRITE},
    changelog::Changed,
    interface::Cx,
    record::{Dentry, Inode, Name},
};

/// Maximum number of directories above a file; bounds the walk up in a damaged store.
const DEPTH_MAX: usize = 1 << 20;

/// A name in a directory.
#[derive(Clone, Copy)]
pub(crate) struct End<'a> {
    pub dir: Fid,
    pub name: &'a [u8],
}

impl<S: Store> Namespace<S> {
    pub(crate) fn rename(
        &mut self,
        cx: &mut Cx,
        cred: &Cred,
        from: End,
        to: End,
        flags: u32,
        whiteout: Option<Fid>,
    ) -> wire::Result<Reply> {
        let exchange = flags & EXCHANGE != 0;
        let unknown = flags & !(NOREPLACE | EXCHANGE | WHITEOUT) != 0;
        let contradicts = exchange && flags != EXCHANGE;
        if unknown || contradicts || whiteout.is_some() != (flags & WHITEOUT != 0) {
            return Err(Errno::EINVAL);
        }
        let (from_dir, source) = self.walk(cred, from.dir, from.name)?;
        let (to_dir, target) = self.walk(cred, to.dir, to.name)?;
        if is_dots(from.name) || is_dots(to.name) {
            return Err(Errno::EBUSY);
        }
        let source = source.ok_or(Errno::ENOENT)?;
        if whiteout == Some(source.fid) {
            return Ok(Reply::Ok);
        }
        match &target {
            Some(_) if flags & NOREPLACE != 0 => return Err(Errno::EEXIST),
            None if exchange => return Err(Errno::ENOENT),
            _ => {}
        }
        let inode = self.live(source.fid)?;
        let target = match target {
            Some(t) => Some((self.live(t.fid)?, t)),
            None => None,
        };
        if inode.is_dir() && from.dir != to.dir && self.is_below(to.dir, source.fid)? {
            return Err(Errno::EINVAL);
        }
        if let Some((t, dentry)) = &target
            && t.is_dir()
            && from.dir != to.dir
            && self.is_below(from.dir, dentry.fid)?
        {
            return Err(if exchange { Errno::EINVAL } else { Errno::ENOTEMPTY });
        }
        if target.as_ref().is_some_and(|(_, t)| t.fid == source.fid) {
            return Ok(Reply::Ok);
        }
        let moves = from.dir != to.dir;
        may_remove(&from_dir, &inode, inode.is_dir(), cred)?;
        match &target {
            None => may_add(&to_dir, cred)?,
            Some((t, _)) => may_remove(&to_dir, t, if exchange { t.is_dir() } else { inode.is_dir() }, cred)?,
        }
        for dir in [Some(&inode), target.as_ref().map(|(t, _)| t).filter(|_| exchange)].into_iter().flatten() {
            if moves && dir.is_dir() {
                access::check(dir, cred, WRITE)?;
            }
        }
        if exchange || inode.is_dir() {
            check_boundary(&to_dir, &inode)?;
        }
        if let Some((t, _)) = target.as_ref().filter(|_| exchange) {
            check_boundary(&from_dir, t)?;
        }
        let replaced = target.as_ref().map(|(t, dentry)| (dentry.fid, t.is_dir() || t.nlink <= 1));
        let moved = source.fid;
        match target {
            Some(target) if exchange => self.exchange(cx, from, to, (inode, source), target)?,
            Some((t, _)) if t.entries > 0 => return Err(Errno::ENOTEMPTY),
            target => {
                let left = whiteout.map(|fid| self.whiteout(cx, cred, fid, from.dir, &from_dir)).transpose()?;
                self.replace(cx, from, to, &source, target.map(|(_, t)| t), left)?;
            }
        }
        match replaced {
            Some((other, _)) if exchange => {
                self.record(cx, cred, &renamed(moved, from, to, None));
                self.record(cx, cred, &renamed(other, to, from, None));
            }
            replaced => self.record(cx, cred, &renamed(moved, from, to, replaced)),
        }
        if let Some(fid) = whiteout {
            self.record(cx, cred, &Changed::entry(Kind::Mknod, fid, from.dir, from.name));
        }
        Ok(Reply::Ok)
    }

    /// Returns the whiteout for a name in `parent`. Changes nothing.
    fn whiteout(&mut self, cx: &Cx, cred: &Cred, fid: Fid, parent: Fid, dir: &Inode) -> wire::Result<(Fid, Inode)> {
        self.check_new_fid(fid)?;
        let inode = new_inode(cx, &New { cred, parent, fid, mode: 0, umask: 0 }, dir, FileKind::Char)?;
        self.check_quota(cx, &inode)?;
        Ok((fid, inode))
    }

    /// Whether `dir` is `above` or lies below it.
    fn is_below(&mut self, dir: Fid, above: Fid) -> wire::Result<bool> {
        let mut at = dir;
        for _ in 0..DEPTH_MAX {
            if at == above {
                return Ok(true);
            }
            if at == fid::ROOT {
                return Ok(false);
            }
            match self.live(at)?.links.first() {
                Some(link) => at = link.parent,
                None => return Ok(false),
            }
        }
        Err(Errno::ELOOP)
    }

    /// Moves the source to the target's name. `left`: the whiteout that takes the source's place.
    fn replace(
        &mut self,
        cx: &Cx,
        from: End,
        to: End,
        source: &Dentry,
        target: Option<Dentry>,
        left: Option<(Fid, Inode)>,
    ) -> wire::Result<()> {
        let subdir = i64::from(source.kind == FileKind::Dir);
        let name = Name::new(to.name);
        let into = self.live(to.dir)?.project;
        match &target {
            Some(target) => {
                self.change_entry(to.dir, to.name, source.fid, source.kind)?;
                // Directories replace only directories, so the number of subdirectories stays.
                self.touch_dir(to.dir, cx.now, 0, 0)?;
                self.keep_replaced(cx, target.fid)?;
                self.drop_name(cx, target.fid, to.dir, to.name)?;
            }
            None => {
                self.add_entry(to.dir, name.clone(), source.fid, source.kind)?;
                self.touch_dir(to.dir, cx.now, 1, subdir)?;
            }
        }
        // Last, because adding an entry can fail (a full bucket), and then nothing may have
        // changed.
        match left {
            None => {
                self.remove_entry(from.dir, from.name)?;
                self.touch_dir(from.dir, cx.now, -1, -subdir)?;
            }
            Some((fid, mut whiteout)) => {
                self.change_entry(from.dir, from.name, fid, whiteout.kind)?;
                self.touch_dir(from.dir, cx.now, 0, -subdir)?;
                whiteout.add_link(from.dir, Name::new(from.name));
                self.tables.put_inode(fid, whiteout);
                self.counters.files += 1;
            }
        }
        self.edit(source.fid, |i| {
            i.remove_link(from.dir, from.name);
            i.add_link(to.dir, name);
            if into.inherits {
                i.project.id = into.id;
            }
            i.ctime = cx.now;
        })
    }

    fn exchange(
        &mut self,
        cx: &Cx,
        from: End,
        to: End,
        (source, s): (Arc<Inode>, Dentry),
        (target, t): (Arc<Inode>, Dentry),
    ) -> wire::Result<()> {
        self.change_entry(from.dir, from.name, t.fid, t.kind)?;
        self.change_entry(to.dir, to.name, s.fid, s.kind)?;
        let subdirs = i64::from(source.is_dir()) - i64::from(target.is_dir());
        self.touch_dir(from.dir, cx.now, 0, -subdirs)?;
        self.touch_dir(to.dir, cx.now, 0, subdirs)?;
        for (fid, old, new) in [(s.fid, from, to), (t.fid, to, from)] {
            self.edit(fid, |i| {
                i.remove_link(old.dir, old.name);
                i.add_link(new.dir, Name::new(new.name));
                i.ctime = cx.now;
            })?;
        }
        Ok(())
    }
}

/// Returns the change of a renamed file. `replaced`: the file that lost its name, and whether it
/// was the last one.
fn renamed<'a>(fid: Fid, from: End<'a>, to: End<'a>, replaced: Option<(Fid, bool)>) -> Changed<'a> {
    let (target, last) = replaced.unwrap_or((Fid::ZERO, false));
    let flags = if last { changelog::LAST } else { 0 };
    let source = Some((fid, from.dir, from.name));
    Changed { flags, source, ..Changed::entry(Kind::Renme, target, to.dir, to.name) }
}
