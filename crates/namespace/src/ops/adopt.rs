//! Orphan objects, which belong to no file: the MDT's own check finds them and uses these
//! operations. A crash can leave such an object if the client that wrote it did not come back.
//!
//! * An object with data becomes a file in `/lost+found`. Owner and group are those of the root
//!   directory, and only the owner has access. EEXIST if the name exists.
//! * An empty object is destroyed.
//!
//! The caller knows that the object is an orphan, and passes each object once.

use std::sync::Arc;

use sheen_wire::{self as wire, Cred, Errno, Fid, FileKind, Time, fid::ROOT};

use super::nodes::New;
use crate::{
    Done, Env, Namespace, Store,
    held::INTERNAL_CLIENT,
    interface::Cx,
    lost_found::{DIR_PERM, FILE_PERM, LOST_FOUND, name_of_object, one_object},
    record::Inode,
};

impl<S: Store> Namespace<S> {
    /// Returns the directory `/lost+found`; `None` if it does not exist.
    ///
    /// # Errors
    /// ENOTDIR: that name is another file's. EIO: the store cannot be read.
    pub fn lost_found(&mut self) -> wire::Result<Option<Fid>> {
        match self.find(ROOT, LOST_FOUND.as_bytes())? {
            Some(known) if known.kind != FileKind::Dir => Err(Errno::ENOTDIR),
            known => Ok(known.map(|entry| entry.fid)),
        }
    }

    /// Makes the directory `/lost+found`. `fid` is unused.
    ///
    /// # Errors
    /// EEXIST, and those of the store.
    pub fn make_lost_found(&mut self, fid: Fid, env: &mut dyn Env) -> wire::Result<Done> {
        let now = env.now();
        let cx = Cx { client: INTERNAL_CLIENT, now, env };
        let made = self.make_owned(&cx, ROOT, LOST_FOUND, fid, Inode { nlink: 2, perm: DIR_PERM, ..dir(now) });
        self.done(made, now)
    }

    /// Makes a file of an orphan object, in the directory `dir`. `fid` is unused.
    ///
    /// # Errors
    /// ENOENT: the directory was removed. Others see the module. Nothing has changed then.
    pub fn adopt(&mut self, ost: u32, object: Fid, dir: Fid, fid: Fid, env: &mut dyn Env) -> wire::Result<Done> {
        let now = env.now();
        let cx = Cx { client: INTERNAL_CLIENT, now, env };
        let layout = one_object(fid, ost, object)?;
        let inode =
            Inode { perm: FILE_PERM, layout: Some(layout.encode().into()), ..Inode::new(FileKind::Regular, now) };
        let adopted = self.make_owned(&cx, dir, &name_of_object(ost, object), fid, inode);
        if adopted.is_ok() {
            // The OST knows the object as one of another file, or of none.
            self.tables.log_owner(fid);
        }
        self.done(adopted, now)
    }

    /// Lets the MDT destroy an orphan object, which is empty.
    ///
    /// # Errors
    /// EINVAL: no layout can have this object.
    pub fn discard(&mut self, ost: u32, object: Fid, now: Time) -> wire::Result<Done> {
        let layout = one_object(ROOT, ost, object)?;
        let logged = self.log_destroy(&layout.encode().into());
        self.done(logged, now)
    }

    /// Makes a file that belongs to the owner of the root directory.
    fn make_owned(&mut self, cx: &Cx, parent: Fid, name: &str, fid: Fid, inode: Inode) -> wire::Result<()> {
        let (root, dir) = (self.dir(ROOT)?, self.dir(parent)?);
        if dir.nlink == 0 {
            return Err(Errno::ENOENT);
        }
        if self.find(parent, name.as_bytes())?.is_some() {
            return Err(Errno::EEXIST);
        }
        self.check_new_fid(fid)?;
        let cred = Cred { uid: root.uid, gid: root.gid, ..Cred::ROOT };
        let new = New { cred: &cred, parent, fid, mode: 0, umask: 0 };
        let inode = Inode { uid: root.uid, gid: root.gid, ..inode };
        self.enter(cx, &new, name.as_bytes(), inode).map(|_: Arc<Inode>| ())
    }
}

fn dir(now: Time) -> Inode {
    Inode::new(FileKind::Dir, now)
}
