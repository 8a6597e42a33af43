//! Sizes, space and times of a file's objects (Lustre's glimpse), and what they make of the file's attributes.

use sheen_layout::Layout;
use sheen_wire::{
    Attr, Bulk, Errno, Fid, Result,
    ost::{ObjectAttr, PARTS_MAX, Reply, Request},
};

use super::{Lov, split::by_ost};
use crate::join::join_all;

impl Lov {
    /// What the OSTs say of the file's objects, by stripe.
    pub async fn glimpse(&self, layout: &Layout) -> Result<Vec<ObjectAttr>> {
        if let [only] = layout.stripes() {
            return self.object_attrs(only.ost, vec![only.object]).await;
        }
        let groups = by_ost(layout, 0..layout.stripe_count())?;
        let calls = groups.into_iter().map(|(ost, stripes)| async move {
            let objects = stripes.iter().map(|s| layout.stripes()[*s].object).collect();
            Ok::<_, Errno>((self.object_attrs(ost, objects).await?, stripes))
        });
        let mut attrs = vec![ObjectAttr::default(); layout.stripe_count()];
        for answer in join_all(calls).await {
            let (found, stripes) = answer?;
            stripes.into_iter().zip(found).for_each(|(stripe, attr)| attrs[stripe] = attr);
        }
        Ok(attrs)
    }

    /// The file's size in bytes.
    pub async fn size(&self, layout: &Layout) -> Result<u64> {
        Ok(size(layout, &self.glimpse(layout).await?))
    }

    /// Merges the objects' attributes into those of several files, with as few requests as the OSTs allow. A file whose
    /// objects cannot be asked gets the error of its own.
    pub async fn glimpse_files(&self, files: &mut [(Attr, &Layout)]) -> Vec<Result<()>> {
        let mut wanted: Vec<(u32, usize, usize, Fid)> = Vec::new(); // (OST, file, stripe, object)
        for (file, (_, layout)) in files.iter().enumerate() {
            let stripes = layout.stripes().iter().enumerate();
            wanted.extend(stripes.map(|(stripe, s)| (s.ost, file, stripe, s.object)));
        }
        wanted.sort_unstable_by_key(|(ost, file, stripe, _)| (*ost, *file, *stripe));
        let groups = wanted.chunk_by(|a, b| a.0 == b.0).flat_map(|same| same.chunks(PARTS_MAX));
        let calls = groups.map(|group| async move {
            let objects = group.iter().map(|w| w.3).collect();
            (group, self.object_attrs(group[0].0, objects).await)
        });
        let mut objects: Vec<Vec<ObjectAttr>> =
            files.iter().map(|(_, l)| vec![ObjectAttr::default(); l.stripe_count()]).collect();
        let mut results = vec![Ok(()); files.len()];
        for (group, answer) in join_all(calls).await {
            match answer {
                Ok(attrs) => group.iter().zip(attrs).for_each(|(w, attr)| objects[w.1][w.2] = attr),
                Err(errno) => group.iter().for_each(|w| results[w.1] = Err(errno)),
            }
        }
        files.iter_mut().zip(&objects).for_each(|((attr, layout), objects)| merge(attr, layout, objects));
        results
    }

    async fn object_attrs(&self, ost: u32, objects: Vec<Fid>) -> Result<Vec<ObjectAttr>> {
        let count = objects.len();
        match self.call(ost, Request::Attrs { objects }, Bulk::new()).await?.0 {
            Reply::Attrs(attrs) if attrs.len() == count => Ok(attrs),
            _ => Err(Errno::EPROTO),
        }
    }
}

/// The file size that the objects' sizes amount to.
pub fn size(layout: &Layout, objects: &[ObjectAttr]) -> u64 {
    objects.iter().enumerate().map(|(stripe, o)| layout.file_size(stripe, o.size)).max().unwrap_or(0)
}

/// Puts the objects' size, space and times into the attributes that the MDT gave.
///
/// Content changes at the OSTs, attributes at the MDT, each stamped by its own clock. A write after the MDT's mtime was set (by
/// creation, truncate or utimensat) is newer than [`Attr::mtime_set`] and shows; a utimensat after a write made `mtime_set` the
/// newer one and sticks. Changes of names and other attributes touch neither. So the times that a file shows follow from what is
/// stored alone, and do not move by themselves.
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
