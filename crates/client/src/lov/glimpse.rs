//! Sizes, space and times of a file's objects (Lustre's glimpse), and what they make of the file's
//! attributes.

use sheen_layout::Layout;
use sheen_wire::{
    Attr, Bulk, Errno, Fid, Result,
    ldlm::Cookie,
    ost::{ObjectAttr, PARTS_MAX, Reply, Request},
};

use super::{Lov, cached::with_kept};
use crate::join::join_all;

/// A file to be looked at.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// Where its data is.
    pub layout: &'a Layout,
    /// Whether its objects are to be locked, so that what they are may be kept.
    pub lock: bool,
}

/// What the OSTs say of a file.
#[derive(Debug)]
pub struct Seen {
    /// By stripe.
    pub objects: Vec<ObjectAttr>,
    /// The locks under which this was so, if there is one on each object. They need not be there
    /// any more.
    pub locks: Option<Vec<Cookie>>,
}

/// An object to be asked for.
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
    /// What the OSTs say of the file's objects, by stripe.
    pub async fn glimpse(&self, layout: &Layout) -> Result<Vec<ObjectAttr>> {
        if let [only] = layout.stripes() {
            let kept = self.kept_attrs(layout).into_iter().next().flatten();
            let attrs = self.object_attrs(only.ost, vec![only.object]).await?;
            return Ok(attrs.into_iter().map(|attr| with_kept(attr, kept)).collect());
        }
        let mut seen = self.look(&[Look { layout, lock: false }]).await;
        seen.pop().unwrap_or(Err(Errno::EIO)).map(|seen| seen.objects)
    }

    /// The file's size in bytes.
    pub async fn size(&self, layout: &Layout) -> Result<u64> {
        Ok(size(layout, &self.glimpse(layout).await?))
    }

    /// What the OSTs say of several files, with as few requests as they allow. A file whose objects
    /// cannot be asked gets the error of its own.
    pub async fn look(&self, files: &[Look<'_>]) -> Vec<Result<Seen>> {
        let mut seen: Vec<Result<Seen>> = Vec::with_capacity(files.len());
        let mut wanted: Vec<Wanted> = Vec::new();
        let mut kept: Vec<Vec<Option<ObjectAttr>>> = Vec::with_capacity(files.len());
        for (file, Look { layout, lock }) in files.iter().enumerate() {
            let locks = self.all_locked(layout);
            kept.push(self.kept_attrs(layout));
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
            seen.push(Ok(Seen { objects: vec![ObjectAttr::default(); layout.stripe_count()], locks }));
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
                Err(errno) => group.iter().for_each(|w| seen[w.file] = Err(errno)),
            }
        }
        for (seen, kept) in seen.iter_mut().zip(kept).filter(|(_, kept)| !kept.is_empty()) {
            let objects = seen.iter_mut().flat_map(|seen| seen.objects.iter_mut());
            objects.zip(kept).for_each(|(attr, kept)| *attr = with_kept(*attr, kept));
        }
        seen
    }

    /// Asks one OST for objects that are all to be locked or all not; answers the lock's handle and
    /// what the object is.
    async fn ask(&self, group: &[Wanted]) -> Result<Vec<(Option<Cookie>, ObjectAttr)>> {
        let Some(first) = group.first() else { return Ok(Vec::new()) };
        if first.lock {
            let objects: Vec<(Fid, Fid)> = group.iter().map(|w| (w.owner, w.object)).collect();
            let got = self.try_lock(first.ost, &objects).await?;
            // Not kept in use while other OSTs are waited for.
            return Ok(got.into_iter().map(|(lock, attr)| (lock.map(|lock| lock.cookie()), attr)).collect());
        }
        let attrs = self.object_attrs(first.ost, group.iter().map(|w| w.object).collect()).await?;
        Ok(attrs.into_iter().map(|attr| (None, attr)).collect())
    }

    pub(super) async fn object_attrs(&self, ost: u32, objects: Vec<Fid>) -> Result<Vec<ObjectAttr>> {
        let count = objects.len();
        match self.call(ost, Request::Attrs { objects }, Bulk::new()).await?.0 {
            Reply::Attrs(attrs) if attrs.len() == count => Ok(attrs),
            _ => Err(Errno::EPROTO),
        }
    }
}

/// Puts an answer where it belongs.
fn note(seen: &mut Result<Seen>, wanted: &Wanted, (lock, attr): (Option<Cookie>, ObjectAttr)) {
    let Ok(seen) = seen else { return };
    seen.objects[wanted.stripe] = attr;
    if wanted.lock {
        match (lock, &mut seen.locks) {
            (Some(lock), Some(locks)) => locks[wanted.stripe] = lock,
            _ => seen.locks = None,
        }
    }
}

/// The file size that the objects' sizes amount to.
pub fn size(layout: &Layout, objects: &[ObjectAttr]) -> u64 {
    objects.iter().enumerate().map(|(stripe, o)| layout.file_size(stripe, o.size)).max().unwrap_or(0)
}

/// Puts the objects' size, space and times into the attributes that the MDT gave.
///
/// Content changes at the OSTs, attributes at the MDT, each stamped by its own clock. A write after
/// the MDT's mtime was set (by creation, truncate or utimensat) is newer than [`Attr::mtime_set`]
/// and shows; a utimensat after a write made `mtime_set` the newer one and sticks. Changes of names
/// and other attributes touch neither. So the times that a file shows follow from what is stored
/// alone, and do not move by themselves.
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
