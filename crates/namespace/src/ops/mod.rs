//! The operations, one per file; each file begins with the operation's contract. Shared code is in
//! [`names`] (directory entries), [`nodes`] (creation and deletion of files) and [`striping`]
//! (layouts).

mod access;
mod adopt;
mod alloc_seq;
mod close;
mod create;
mod getattr;
mod layout_intent;
mod link;
mod lookup;
mod names;
mod nodes;
mod open;
mod open_create;
mod paths;
mod readdir;
mod readlink;
mod rename;
mod reopen;
mod setattr;
mod statfs;
mod striping;
mod swap_layouts;
mod sync;
mod take_layout;
mod tmpfile;
mod unlink;
mod xattr;
mod xattr_acl;
mod xattr_comp;
mod xattr_lmv;
mod xattr_lov;
mod xattr_mirror;
mod xattr_project;
mod xattr_quota;

pub use access::Reach;
pub(crate) use create::removed_entry;
pub(crate) use names::{COOKIE_INDEX_BITS, is_dots};
pub(crate) use nodes::{New, entry};
pub use take_layout::Taking;

use sheen_wire::{
    Errno,
    mds::{Reply, Request},
};

use crate::{Namespace, Store, error::OpResult, interface::Cx};

/// Executes a request. A failed one leaves nothing in the changelog.
pub(crate) fn execute<S: Store>(ns: &mut Namespace<S>, cx: &mut Cx, request: &Request) -> OpResult<Reply> {
    let mark = ns.changelog.mark();
    let result = dispatch(ns, cx, request);
    if result.is_err() {
        ns.changelog.undo(mark);
    }
    result
}

/// Passes a request to its operation.
fn dispatch<S: Store>(ns: &mut Namespace<S>, cx: &mut Cx, request: &Request) -> OpResult<Reply> {
    use Request::*;
    let reply = match request {
        AllocSeq => ns.alloc_seq()?,
        Lookup { cred, parent, name } => ns.lookup(cred, *parent, name)?,
        GetAttr { fid, layout_known } => ns.getattr(*fid, *layout_known)?,
        SetAttr { cred, fid, set, handle } => ns.setattr(cx, cred, *fid, set, *handle)?,
        Access { cred, fid, mask } => ns.access(cred, *fid, *mask)?,
        Create { cred, parent, name, fid, node, mode, umask } => {
            ns.create(cx, &nodes::New { cred, parent: *parent, fid: *fid, mode: *mode, umask: *umask }, name, node)?
        }
        Open { cred, fid, flags } => ns.open_fid(cx, cred, *fid, *flags)?,
        OpenCreate { cred, parent, name, fid, flags, mode, umask } => {
            let new = nodes::New { cred, parent: *parent, fid: *fid, mode: *mode, umask: *umask };
            ns.open_create(cx, &new, name, *flags)?
        }
        TmpFile { cred, parent, fid, flags, mode, umask } => {
            let new = nodes::New { cred, parent: *parent, fid: *fid, mode: *mode, umask: *umask };
            ns.tmpfile(cx, &new, *flags)?
        }
        Close { files } => ns.close(cx, files)?,
        Unlink { cred, parent, name, dir } => ns.unlink(cx, cred, *parent, name, *dir)?,
        Rename { cred, parent, name, new_parent, new_name, flags, whiteout } => {
            let (from, to) = (rename::End { dir: *parent, name }, rename::End { dir: *new_parent, name: new_name });
            ns.rename(cx, cred, from, to, *flags, whiteout.as_deref().copied())?
        }
        Link { cred, fid, parent, name } => ns.link(cx, cred, *fid, *parent, name)?,
        ReadLink { fid } => ns.readlink(*fid)?,
        ReadDir { fid, cookie, max_bytes, attrs } => ns.readdir(*fid, *cookie, *max_bytes, *attrs)?,
        GetXattr { cred, fid, name } => ns.getxattr(cx, cred, *fid, name)?,
        SetXattr { cred, fid, name, value, flags } => ns.setxattr(cx, cred, *fid, name, Some(value), *flags)?,
        ListXattr { cred, fid } => ns.listxattr(cred, *fid)?,
        RemoveXattr { cred, fid, name } => ns.setxattr(cx, cred, *fid, name, None, 0)?,
        StatFs => ns.statfs(cx)?,
        Sync { fid } => ns.sync(*fid)?,
        Paths { cred, fid } => ns.paths(cred, *fid)?,
        Parents { fid } => ns.parents(*fid)?,
        Reopen { files, first, last } => ns.reopen(cx, files, *first, *last)?,
        LayoutIntent { fid, start, end, opener } => ns.layout_intent(cx, *fid, (*start, *end), *opener)?,
        TakeLayout { mtime, .. } => ns.take_layout(cx, request, *mtime)?,
        LayoutMoved { fid, .. } => ns.getattr(*fid, false)?,
        SwapLayouts { .. } => ns.swap_layouts(cx, request)?,
        // The service handles locks, recovery, capabilities and readers of the changelog.
        Cancel
        | Enqueue(_)
        | Replay { .. }
        | AdoptLayouts { .. }
        | Relock { .. }
        | Recovered
        | OwnSequences { .. }
        | Root { .. }
        | Capabilities { .. }
        | Changelog { .. }
        | ChangelogClear { .. } => {
            return Err(Errno::EOPNOTSUPP.into());
        }
    };
    Ok(reply)
}
