//! Layouts of directories, as extended attributes ([`sheen_layout::lmv`] has the bytes).
//!
//! * `lustre.lmv`: location of the entries as `lmv_user_md` with every stripe, for any directory.
//!   Setting it: an `lmv_user_md` with the requested parameters.
//! * `trusted.lmv`: the same as stored, `lmv_mds_md_v1`; ENODATA if the directory is not striped.
//!   Setting it: likewise.
//! * `lustre.dmv`: the default in force for subdirectories, `lmv_user_md`. Setting it sets the
//!   directory's own default.
//! * `trusted.dmv`: the default that was set on the directory, or that it inherited. Setting it:
//!   likewise.
//!
//! Rules:
//!
//! * ENOTDIR for a file that is not a directory. EPERM unless the caller is the superuser, or an
//!   owner whom Lustre's `enable_remote_dir_gid` permits it ([`crate::Env::directory_stripers`]):
//!   also for a default, and for one stripe, as in Lustre. ENODEV for an MDT that does not exist.
//!   EINVAL for an invalid hash type or count, or a list where none is allowed, as
//!   `LmvError::errno`.
//! * A requested layout replaces everything that the parent's default gave, including the inherited
//!   default, as `lfs mkdir` does in Lustre. EEXIST once there are entries.
//! * A value that describes stripes instead of requesting some is accepted and ignored, so that
//!   archives can be restored: its objects belong to another directory. Removal is ignored, too.
//! * A default that requests nothing deletes the present one, with no error if there is none.
//! * A new directory gets the stripes that the default in force requests.
//! * It also gets a copy of the default that is stored with its parent, with one level of
//!   inheritance less, if levels are left.
//! * The root's default is not copied. It is in force in each directory that has no other default,
//!   with one level less for each level of depth.
//!
//! There is one MDT. A directory is therefore striped only if several stripes on one MDT are
//! requested. Each stripe is then the directory itself: its layout has the directory's own FID for
//! all stripes. So every entry lies in the object that the layout names. Hash and count are stored
//! for a future in which single stripes can move to other MDTs.

use bytes::Bytes;
use sheen_layout::lmv::{self, HashType, INHERIT_MAX, LmvMds, LmvUser};
use sheen_wire::{self as wire, Cred, Errno, Fid, fid};

use crate::{
    Namespace, Store,
    interface::Cx,
    record::{Inode, Xattrs},
};

const DMV: &[u8] = b"trusted.dmv";
const LMV: &[u8] = b"trusted.lmv";
/// Number of MDTs over which directories are spread.
const MDTS: u32 = 1;

impl<S: Store> Namespace<S> {
    /// Returns the value of `lustre.lmv`. A stored layout that cannot be decoded any more counts as
    /// none.
    pub(crate) fn lmv(&mut self, fid: Fid, inode: &Inode) -> wire::Result<Option<Bytes>> {
        if !inode.is_dir() {
            return Ok(None);
        }
        let mdt = self.config.mdt_index;
        let stored = self.stored(fid, inode, LMV)?.and_then(|value| LmvMds::decode(&value).ok());
        let shown = stored.map_or_else(|| LmvUser::plain(mdt), |lmv| lmv.to_user(|_| mdt));
        Ok(Some(shown.encode().into()))
    }

    /// Returns the value of `lustre.dmv`.
    pub(crate) fn dmv(&mut self, fid: Fid, inode: &Inode) -> wire::Result<Option<Bytes>> {
        if !inode.is_dir() {
            return Ok(None);
        }
        let default = match self.own_default(fid, inode)? {
            Some(own) => Some(own),
            None => {
                let root = self.live(fid::ROOT)?;
                let of_root = self.own_default(fid::ROOT, &root)?.unwrap_or_else(LmvUser::root_default);
                self.inherited_from_root(&of_root, fid)?
            }
        };
        Ok(default.map(|d| d.encode().into()))
    }

    /// Sets the layout. The caller has checked the owner.
    pub(crate) fn set_lmv(
        &mut self,
        cx: &Cx,
        cred: &Cred,
        fid: Fid,
        inode: &Inode,
        value: Option<&[u8]>,
    ) -> wire::Result<()> {
        if !inode.is_dir() {
            return Err(Errno::ENOTDIR);
        }
        let Some(value) = value else { return Ok(()) };
        if lmv::magic_of(value)? == lmv::MAGIC_V1 {
            return Ok(());
        }
        self.check_permitted(cx.env.directory_stripers(), cred)?;
        let ask = LmvUser::decode(value)?;
        ask.check(&[self.config.mdt_index])?;
        if inode.entries > 0 {
            return Err(Errno::EEXIST);
        }
        // Steps that can fail come first.
        let layout = self.layout_for(&ask, fid);
        self.put_stored(cx, fid, LMV, layout.as_deref())?;
        self.put_stored(cx, fid, DMV, None)
    }

    /// Sets the default. The caller has checked the owner.
    pub(crate) fn set_dmv(
        &mut self,
        cx: &Cx,
        cred: &Cred,
        fid: Fid,
        inode: &Inode,
        value: Option<&[u8]>,
        flags: u32,
    ) -> wire::Result<()> {
        if !inode.is_dir() {
            return Err(Errno::ENOTDIR);
        }
        self.check_permitted(cx.env.directory_stripers(), cred)?;
        let Some(value) = value else { return self.set_plain(cx, fid, DMV, None, flags) };
        let default = LmvUser::decode(value)?;
        default.check_default(&[self.config.mdt_index])?;
        if default.deletes_default() {
            return self.put_stored(cx, fid, DMV, None);
        }
        self.set_plain(cx, fid, DMV, Some(value), flags)
    }

    /// Returns the xattrs of a new directory `fid` in `parent`, sorted by name. Changes nothing.
    pub(crate) fn inherit_lmv(&mut self, parent: Fid, dir: &Inode, fid: Fid) -> wire::Result<Option<Xattrs>> {
        let own = self.own_default(parent, dir)?;
        let handed_on = own.as_ref().filter(|_| parent != fid::ROOT).and_then(|d| d.inherited(1));
        let in_force = match own {
            Some(own) => Some(own),
            None => {
                let root = self.live(fid::ROOT)?;
                // The parent's depth matters only for a default that stripes.
                match self.own_default(fid::ROOT, &root)?.filter(|d| d.stripes_on(MDTS) > 1) {
                    Some(of_root) => self.inherited_from_root(&of_root, parent)?,
                    None => None,
                }
            }
        };
        let layout = in_force.and_then(|d| self.layout_for(&d, fid));
        let both = [(DMV, handed_on.map(|d| d.encode())), (LMV, layout)];
        let record = both.into_iter().filter_map(|(name, value)| Some((Bytes::from_static(name), Bytes::from(value?))));
        let xattrs = Xattrs(record.collect());
        Ok((!xattrs.0.is_empty()).then_some(xattrs))
    }

    /// Returns the layout to store for a directory with this request: none if it is not striped.
    fn layout_for(&self, ask: &LmvUser, fid: Fid) -> Option<Vec<u8>> {
        let count = ask.stripes_on(MDTS) as usize;
        let hash = ask.hash.or_default().with(HashType::OVERSTRIPED);
        (count > 1).then(|| LmvMds::new(self.config.mdt_index, hash, vec![fid; count]).encode())
    }

    /// Returns the root's default as in force in the directory `fid`; none in a removed directory.
    fn inherited_from_root(&mut self, of_root: &LmvUser, fid: Fid) -> wire::Result<Option<LmvUser>> {
        let (mut depth, mut at) = (0, fid);
        // Beyond this depth the result does not change any more.
        while at != fid::ROOT && depth <= u32::from(INHERIT_MAX) {
            let Some(inode) = self.tables.inode(at)? else { return Ok(None) };
            let Some(link) = inode.links.first() else { return Ok(None) };
            (depth, at) = (depth + 1, link.parent);
        }
        Ok(of_root.inherited(depth))
    }

    /// Returns the default stored with a directory. A default that cannot be decoded any more
    /// counts as none.
    fn own_default(&mut self, fid: Fid, inode: &Inode) -> wire::Result<Option<LmvUser>> {
        let value = self.stored(fid, inode, DMV)?;
        Ok(value.and_then(|v| LmvUser::decode(&v).ok()).filter(|d| d.magic == lmv::MAGIC_USER))
    }

    fn stored(&mut self, fid: Fid, inode: &Inode, name: &[u8]) -> wire::Result<Option<Bytes>> {
        if inode.xattr_bytes == 0 {
            return Ok(None);
        }
        let xattrs = self.tables.xattrs(fid)?;
        Ok(xattrs.position(name).ok().and_then(|i| xattrs.0.get(i)).map(|(_, value)| value.clone()))
    }

    /// Sets a stored attribute or, without a value, removes it if it exists.
    fn put_stored(&mut self, cx: &Cx, fid: Fid, name: &[u8], value: Option<&[u8]>) -> wire::Result<()> {
        match self.set_plain(cx, fid, name, value, 0) {
            Err(Errno::ENODATA) if value.is_none() => Ok(()),
            done => done,
        }
    }
}
