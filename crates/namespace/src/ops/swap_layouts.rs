//! SwapLayouts: two files exchange their objects (Lustre's swap of layouts).
//!
//! * Both are regular files with layouts (EINVAL; also for a file and itself) that the caller may
//!   write (EACCES). Both have the same user and group (EPERM, as in Lustre): the space that each
//!   of them pays for does not change owners.
//! * Afterwards each has the other's layout, in the next generation of both. Its objects have new
//!   names, because under the old names they are sealed. Components without objects stay so. Pools,
//!   stripe sizes and components go with the layout.
//! * If one file is mirrored, all its mirrors are exchanged, as fresh as they are. No client but
//!   the caller may then have either file open, and the caller only once ([`Namespace::is_in_use`];
//!   EBUSY). Otherwise a writer that finds a new layout of a mirrored file would repeat its write
//!   in it.
//! * The modification times stay: the caller passes them, as with `TakeLayout`, within the same
//!   bounds. Sets ctime of both. Clears set-user-id, set-group-id and file capabilities as a write
//!   does, because the content changes.
//! * ERANGE when a plain layout's 65,535 generations are used up; EAGAIN when a layout has changed
//!   since [`Namespace::begin_swap`].
//!
//! The objects get their new names between [`Namespace::begin_swap`] and the request's execution,
//! and a crash may come at any time. The new names are therefore added to the unlink log in the
//! same batch as their reservation. The exchange removes them from the log in the same batch as all
//! its changes. Names that no layout has are thus destroyed, whether or not the exchange succeeds.
//! While the exchange is in progress, its entries in the log are skipped.
//!
//! Executing an exchange twice would undo it. So the store remembers the last exchanges
//! ([`crate::relayouts::DONE_MAX`]) by a random number that the caller draws for each, for requests
//! that are resent after a restart.

use std::collections::BTreeMap;

use bytes::Bytes;
use sheen_layout::{Layout, MDT_OST, Stripe};
use sheen_wire::{
    self as wire, Errno, Fid, FileKind,
    changelog::Kind,
    mds::{Reply, Request},
};

use crate::{
    ClientId, Namespace, Store,
    access::{self, WRITE, is_owner, is_root, without_privilege},
    changelog::Changed,
    error::OpResult,
    held::INTERNAL_CLIENT,
    interface::Cx,
    key,
    relayouts::{BegunSwap, Renamed, drawn_version},
};

impl<S: Store> Namespace<S> {
    /// Begins a [`Request::SwapLayouts`]: reserves a new name for each object. All objects must
    /// have their new names before the request is executed. `None`: the exchange was done before.
    /// Unless this fails, [`Namespace::end_swap`] must follow, whether the request succeeds or not.
    ///
    /// # Errors
    /// Those of the request; EINVAL for another kind of request; [`crate::OpError::CommitFirst`].
    pub fn begin_swap(&mut self, request: &Request) -> OpResult<Option<Vec<Renamed>>> {
        let Request::SwapLayouts { fids, nonce, .. } = request else { return Err(Errno::EINVAL.into()) };
        if self.swaps.done.contains(nonce) {
            return Ok(None);
        }
        let begun = self.reserve_names(request);
        self.tables.end();
        let (begun, names) = begun?;
        self.swaps.begun.insert(*fids, begun);
        Ok(Some(names))
    }

    fn reserve_names(&mut self, request: &Request) -> OpResult<(BegunSwap, Vec<Renamed>)> {
        let (fids, stored, layouts) = self.both_to_swap(request)?;
        let next = layouts.iter().map(Layout::generation).max().unwrap_or(0).checked_add(1).ok_or(Errno::ERANGE)?;
        let stripes: Vec<Stripe> = layouts.iter().flat_map(Layout::all_objects).collect();
        let (on_mdt, on_osts): (Vec<Stripe>, Vec<Stripe>) = stripes.iter().partition(|s| s.ost == MDT_OST);
        // Steps that can fail come before those that cannot be undone.
        layouts[1].adopted(fids[0], next)?;
        layouts[0].adopted(fids[1], next)?;
        let osts: Vec<u32> = on_osts.iter().map(|s| s.ost).collect();
        let objects = self.objects.take(&osts)?;
        let mut names: BTreeMap<Fid, Fid> = on_osts.iter().map(|s| s.object).zip(objects).collect();
        // An object on the MDT is named after its file, so it gets the name of the other file.
        let version = drawn_version(self.counters.destroy);
        for (n, layout) in layouts.iter().enumerate() {
            let mine = layout.all_objects().filter(|s| s.ost == MDT_OST);
            names.extend(mine.map(|s| (s.object, Fid { ver: version, ..fids[1 - n] })));
        }
        let on_mdt = on_mdt.iter().filter_map(|s| names.get(&s.object).copied()).collect();
        let swapped = |from: &Layout, to| {
            let taken = from.adopted(to, next)?.on_mdt_as(version).renamed(&names);
            Ok::<Bytes, Errno>(taken.encode().into())
        };
        let swapped = [swapped(&layouts[1], fids[0])?, swapped(&layouts[0], fids[1])?];
        let mut logged = [0; 2];
        for (layout, number) in swapped.iter().zip(&mut logged) {
            self.log_destroy(layout)?;
            *number = self.counters.destroy;
        }
        let renamed = |s: &Stripe| Some(Renamed { ost: s.ost, old: s.object, new: *names.get(&s.object)? });
        let names = stripes.iter().filter_map(renamed).collect();
        Ok((BegunSwap { stored, swapped, logged, on_mdt }, names))
    }

    /// Ends an exchange. The reserved names belong to the files now, or will be destroyed.
    pub fn end_swap(&mut self, request: &Request) {
        if let Request::SwapLayouts { fids, .. } = request {
            self.swaps.begun.remove(fids);
        }
    }

    /// Returns the layouts of the two files, if they may be exchanged.
    fn both_to_swap(&mut self, request: &Request) -> wire::Result<([Fid; 2], [Bytes; 2], [Layout; 2])> {
        let Request::SwapLayouts { cred, fids, .. } = request else { return Err(Errno::EINVAL) };
        let inodes = [self.live(fids[0])?, self.live(fids[1])?];
        if fids[0] == fids[1] || inodes.iter().any(|i| i.kind != FileKind::Regular) {
            return Err(Errno::EINVAL);
        }
        inodes.iter().try_for_each(|i| access::check(i, cred, WRITE))?;
        if (inodes[0].uid, inodes[0].gid) != (inodes[1].uid, inodes[1].gid) {
            return Err(Errno::EPERM);
        }
        let stored = |n: usize| inodes[n].layout.clone().ok_or(Errno::EINVAL);
        let stored = [stored(0)?, stored(1)?];
        let layouts = [Layout::decode(&stored[0])?, Layout::decode(&stored[1])?];
        Ok((*fids, stored, layouts))
    }

    /// Whether one of two files that exchange their layouts is mirrored. Then no other client may
    /// use either file ([`Namespace::is_in_use`]).
    ///
    /// # Errors
    /// ENOENT; EIO: a layout cannot be read.
    pub fn is_any_mirrored(&mut self, fids: &[Fid; 2]) -> wire::Result<bool> {
        let one = self.layout(fids[0])?;
        let other = self.layout(fids[1])?;
        Ok(one.iter().chain(&other).any(Layout::is_mirrored))
    }

    /// Whether a client other than `but` is known to have the file open, or `but` more than once.
    pub fn is_in_use(&self, fid: Fid, but: ClientId) -> bool {
        self.handles.is_open_elsewhere(fid, but, INTERNAL_CLIENT)
    }

    pub(crate) fn swap_layouts(&mut self, cx: &Cx, request: &Request) -> wire::Result<Reply> {
        let Request::SwapLayouts { cred, mtimes, nonce, .. } = request else { return Err(Errno::EINVAL) };
        let (fids, stored, _) = self.both_to_swap(request)?;
        let begun = self.swaps.begun.get(&fids).cloned().ok_or(Errno::EPROTO)?;
        if stored != begun.stored {
            return Err(Errno::EAGAIN);
        }
        for fid in fids {
            if !is_root(cred) {
                self.drop_capability(fid)?;
            }
        }
        for (n, fid) in fids.into_iter().enumerate() {
            let file = self.live(fid)?;
            let perm = if is_owner(cred, &file) { file.perm } else { without_privilege(&file, cred)? };
            self.log_destroy(&stored[n])?;
            self.tables.put_raw(key::destroy(begun.logged[n]), None);
            self.edit(fid, |i| {
                (i.layout, i.perm) = (Some(begun.swapped[n].clone()), perm);
                i.mtime = mtimes[n].clamp(i.mtime, cx.now.max(i.mtime));
                // So that the modification times of the other file's objects do not show.
                (i.mtime_set, i.ctime) = (cx.now, cx.now);
            })?;
            self.tables.log_owner(fid);
            self.record(cx, cred, &Changed::file(Kind::Lyout, fid));
        }
        self.swaps.note(&mut self.tables, *nonce)?;
        Ok(Reply::Ok)
    }
}
