//! Sizes, space and times of a file's objects (Lustre's glimpse), and their merge into the file's
//! attributes.

use sheen_layout::Layout;
use sheen_rt::join::join_all;
use sheen_wire::{
    Attr, Bulk, Errno, Fid,
    ldlm::Cookie,
    ost::{ObjectAttr, PARTS_MAX, Reply, Request},
};

use super::{Lov, cached::with_dirty};
use crate::failure::Result;

/// A file whose objects are to be glimpsed.
#[derive(Clone, Copy, Debug)]
pub struct FileGlimpse<'a> {
    /// Layout of the file.
    pub layout: &'a Layout,
    /// Whether to lock the objects, so that the result may be cached.
    pub lock: bool,
}

/// The OSTs' attributes of a file's objects.
#[derive(Debug)]
pub struct GlimpseReply {
    /// Attributes by stripe.
    pub objects: Vec<ObjectAttr>,
    /// Handles of the locks under which the attributes were read, if each object was locked. The
    /// locks may have been lost since.
    pub locks: Option<Vec<Cookie>>,
}

/// An object to be glimpsed.
#[derive(Clone, Copy)]
struct Wanted {
    ost: u32,
    lock: bool,
    file: usize,
    stripe: usize,
    owner: Fid,
    object: Fid,
}

impl Lov {
    /// Requests the attributes of the file's objects, by stripe.
    pub async fn glimpse(&self, layout: &Layout) -> Result<Vec<ObjectAttr>> {
        if let [only] = layout.stripes() {
            let dirty = self.dirty_attrs(layout).into_iter().next().flatten();
            let attrs = self.object_attrs(only.ost, vec![only.object]).await?;
            return Ok(attrs.into_iter().map(|attr| with_dirty(attr, dirty)).collect());
        }
        let mut seen = self.glimpse_files(&[FileGlimpse { layout, lock: false }]).await;
        seen.pop().unwrap_or(Err(Errno::EIO.into())).map(|seen| seen.objects)
    }

    /// Requests the file's size in bytes.
    pub async fn size(&self, layout: &Layout) -> Result<u64> {
        Ok(size(layout, &self.glimpse(layout).await?))
    }

    /// Requests the attributes of several files' objects, with as few requests as the OSTs allow.
    /// If the request for a file's object fails, the result of that file is the error.
    pub async fn glimpse_files(&self, files: &[FileGlimpse<'_>]) -> Vec<Result<GlimpseReply>> {
        let mut seen: Vec<Result<GlimpseReply>> = Vec::with_capacity(files.len());
        let mut wanted: Vec<Wanted> = Vec::new();
        let mut dirty: Vec<Vec<Option<ObjectAttr>>> = Vec::with_capacity(files.len());
        for (file, FileGlimpse { layout, lock }) in files.iter().enumerate() {
            let locks = self.all_locked(layout);
            dirty.push(self.dirty_attrs(layout));
            let (lock, owner) = (*lock && locks.is_none(), layout.fid());
            let stripes = layout.stripes().iter().enumerate();
            wanted.extend(stripes.map(|(stripe, s)| Wanted {
                ost: s.ost,
                lock,
                file,
                stripe,
                owner,
                object: s.object,
            }));
            let locks = if lock { Some(vec![Cookie::NONE; layout.stripe_count()]) } else { locks };
            seen.push(Ok(GlimpseReply { objects: vec![ObjectAttr::default(); layout.stripe_count()], locks }));
        }
        wanted.sort_unstable_by_key(|w| (w.ost, w.lock, w.file, w.stripe));
        let groups: Vec<&[Wanted]> = wanted
            .chunk_by(|a, b| (a.ost, a.lock) == (b.ost, b.lock))
            .flat_map(|same| same.chunks(PARTS_MAX))
            .collect();
        let answers = match &groups[..] {
            [only] => vec![self.ask(only).await],
            _ => join_all(groups.iter().map(|group| self.ask(group))).await,
        };
        for (group, answer) in groups.iter().zip(answers) {
            match answer {
                Ok(answer) => group.iter().zip(answer).for_each(|(w, answer)| note(&mut seen[w.file], w, answer)),
                Err(failure) => group.iter().for_each(|w| seen[w.file] = Err(failure.clone())),
            }
        }
        for (seen, dirty) in seen.iter_mut().zip(dirty).filter(|(_, dirty)| !dirty.is_empty()) {
            let objects = seen.iter_mut().flat_map(|seen| seen.objects.iter_mut());
            objects.zip(dirty).for_each(|(attr, dirty)| *attr = with_dirty(*attr, dirty));
        }
        seen
    }

    /// Requests the attributes of objects on one OST, which are either all to be locked or all not.
    /// Returns the handle of each lock and the attributes.
    async fn ask(&self, group: &[Wanted]) -> Result<Vec<(Option<Cookie>, ObjectAttr)>> {
        let Some(first) = group.first() else { return Ok(Vec::new()) };
        if first.lock {
            let objects: Vec<(Fid, Fid)> = group.iter().map(|w| (w.owner, w.object)).collect();
            let got = self.try_lock(first.ost, &objects).await?;
            // Do not leave the locks in use while other OSTs are waited for.
            return Ok(got.into_iter().map(|(lock, attr)| (lock.map(|lock| lock.cookie()), attr)).collect());
        }
        let attrs = self.object_attrs(first.ost, group.iter().map(|w| w.object).collect()).await?;
        Ok(attrs.into_iter().map(|attr| (None, attr)).collect())
    }

    pub(super) async fn object_attrs(&self, ost: u32, objects: Vec<Fid>) -> Result<Vec<ObjectAttr>> {
        let count = objects.len();
        match self.call(ost, Request::Attrs { objects }, Bulk::new()).await?.0 {
            Reply::Attrs(attrs) if attrs.len() == count => Ok(attrs),
            _ => Err(Errno::EPROTO.into()),
        }
    }
}

/// Stores the result of one object.
fn note(seen: &mut Result<GlimpseReply>, wanted: &Wanted, (lock, attr): (Option<Cookie>, ObjectAttr)) {
    let Ok(seen) = seen else { return };
    seen.objects[wanted.stripe] = attr;
    if wanted.lock {
        match (lock, &mut seen.locks) {
            (Some(lock), Some(locks)) => locks[wanted.stripe] = lock,
            _ => seen.locks = None,
        }
    }
}

/// Returns the file size that follows from the objects' sizes.
pub fn size(layout: &Layout, objects: &[ObjectAttr]) -> u64 {
    objects.iter().enumerate().map(|(stripe, o)| layout.file_size(stripe, o.size)).max().unwrap_or(0)
}

/// Merges the objects' size, space and times into the attributes that the MDT returned.
///
/// The OSTs stamp changes of data, and the MDT stamps changes of attributes, each with its own
/// clock. If a write follows the last setting of the mtime at the MDT (create, truncate or
/// utimensat), its time is newer than [`Attr::mtime_set`] and is shown. If a utimensat follows a
/// write, `mtime_set` is newer and is shown. Changes of names and of other attributes affect
/// neither. So the times of a file depend only on stored values, and do not change without an
/// operation.
pub fn merge(attr: &mut Attr, layout: &Layout, objects: &[ObjectAttr]) {
    attr.size = size(layout, objects);
    attr.blocks = objects.iter().fold(0, |sum: u64, o| sum.saturating_add(o.blocks));
    if let Some(written) = objects.iter().filter_map(|o| o.mtime).max() {
        if written > attr.mtime_set {
            attr.mtime = written;
        }
        attr.ctime = attr.ctime.max(written);
    }
}
