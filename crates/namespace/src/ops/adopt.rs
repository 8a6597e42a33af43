//! Orphan objects, which belong to no file: the MDT's own check finds them and uses these
//! operations. A crash can leave such an object if the client that wrote it did not come back.
//!
//! * An object with data becomes a file in `/lost+found`, which is made if it does not exist.
//!   Owner and group are those of the root directory, and only the owner has access. ENOTDIR if
//!   `/lost+found` is not a directory. EEXIST if the name exists.
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
    /// Returns the files that [`Namespace::adopt`] changes, apart from new ones.
    ///
    /// # Errors
    /// EIO: the store cannot be read.
    pub fn adopters(&mut self) -> wire::Result<Vec<Fid>> {
        let known = self.find(ROOT, LOST_FOUND.as_bytes())?;
        Ok(std::iter::once(ROOT).chain(known.map(|entry| entry.fid)).collect())
    }

    /// Makes a file of an orphan object. `fids` are unused: one for the file, and one for
    /// `/lost+found`, should it not exist.
    ///
    /// # Errors
    /// See the module. Nothing has changed then.
    pub fn adopt(&mut self, ost: u32, object: Fid, fids: [Fid; 2], env: &mut dyn Env) -> wire::Result<Done> {
        let time = env.now();
        let adopted = self.adopt_now(&Cx { client: INTERNAL_CLIENT, now: time, env }, ost, object, fids);
        self.done(adopted, time)
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

    fn adopt_now(&mut self, cx: &Cx, ost: u32, object: Fid, [file, new_dir]: [Fid; 2]) -> wire::Result<()> {
        let root = self.dir(ROOT)?;
        let (name, layout) = (name_of_object(ost, object), one_object(file, ost, object)?);
        let cred = Cred { uid: root.uid, gid: root.gid, ..Cred::ROOT };
        let owned = |kind| Inode { uid: root.uid, gid: root.gid, ..Inode::new(kind, cx.now) };
        let new = |parent, fid| New { cred: &cred, parent, fid, mode: 0, umask: 0 };
        let dir = match self.find(ROOT, LOST_FOUND.as_bytes())? {
            Some(known) if known.kind != FileKind::Dir => return Err(Errno::ENOTDIR),
            Some(known) if self.find(known.fid, name.as_bytes())?.is_some() => return Err(Errno::EEXIST),
            Some(known) => known.fid,
            None => {
                let inode = Inode { nlink: 2, perm: DIR_PERM, ..owned(FileKind::Dir) };
                self.enter(cx, &new(ROOT, new_dir), LOST_FOUND.as_bytes(), inode)?;
                new_dir
            }
        };
        let inode = Inode { perm: FILE_PERM, layout: Some(layout.encode().into()), ..owned(FileKind::Regular) };
        self.enter(cx, &new(dir, file), name.as_bytes(), inode).map(|_: Arc<Inode>| ())
    }
}
