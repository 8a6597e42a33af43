//! The inodes that a request involves: those that it names by FID, and those that its names refer
//! to. The service delays a request while clients may still cache an outdated state of one of them.

use sheen_wire::{Fid, fid, mds::Request, mirror};

use crate::{Namespace, Store};

impl<S: Store> Namespace<S> {
    /// Calls `f` with each inode that the request names at this moment, possibly twice. Left out
    /// are:
    ///
    /// * the entries that a `ReadDir` will list;
    /// * requests that reveal nothing of an inode's state;
    /// * requests by which a client releases something (`Close`).
    pub fn involved(&mut self, request: &Request, f: &mut impl FnMut(Fid)) {
        use Request::*;
        match request {
            Lookup { parent, name, .. } | Unlink { parent, name, .. } => self.with_entry(*parent, name, f),
            Create { parent, name, fid, .. }
            | OpenCreate { parent, name, fid, .. }
            | Link { parent, name, fid, .. } => {
                f(*fid);
                self.with_entry(*parent, name, f);
            }
            Rename { parent, name, new_parent, new_name, whiteout, .. } => {
                if let Some(fid) = whiteout {
                    f(**fid);
                }
                self.with_entry(*parent, name, f);
                self.with_entry(*new_parent, new_name, f);
            }
            SetXattr { fid, name, value, .. } => {
                f(*fid);
                if name == mirror::XATTR {
                    mirror::MirrorChange::decode(value).ok().and_then(|change| change.other()).into_iter().for_each(f);
                }
            }
            TmpFile { parent, fid, .. } => {
                f(*parent);
                f(*fid);
            }
            GetAttr { fid, .. }
            | SetAttr { fid, .. }
            | Access { fid, .. }
            | Open { fid, .. }
            | ReadLink { fid }
            | ReadDir { fid, .. }
            | GetXattr { fid, .. }
            | ListXattr { fid, .. }
            | RemoveXattr { fid, .. }
            | Paths { fid, .. }
            | Parents { fid }
            | LayoutIntent { fid, .. }
            | LayoutMoved { fid, .. } => f(*fid),
            TakeLayout { fid, from, .. } => {
                f(*fid);
                f(*from);
            }
            SwapLayouts { fids, .. } => fids.iter().copied().for_each(f),
            AllocSeq
            | Root { .. }
            | Close { .. }
            | StatFs
            | Sync { .. }
            | Reopen { .. }
            | Cancel
            | Enqueue(_)
            | Replay { .. }
            | AdoptLayouts { .. }
            | Relock { .. }
            | Recovered
            | OwnSequences { .. }
            | Capabilities { .. }
            | Changelog { .. }
            | ChangelogClear { .. } => {}
        }
    }

    /// Calls `f` with a directory and the inode that the name refers to. Ignores read errors: the
    /// operation reports them.
    fn with_entry(&mut self, dir: Fid, name: &[u8], f: &mut impl FnMut(Fid)) {
        f(dir);
        let found = match name {
            b"." => None,
            b".." if dir == fid::ROOT => None,
            b".." => self.tables.inode(dir).ok().flatten().and_then(|i| Some(i.links.first()?.parent)),
            _ => self.find(dir, name).ok().flatten().map(|d| d.fid),
        };
        found.into_iter().for_each(f);
    }
}
