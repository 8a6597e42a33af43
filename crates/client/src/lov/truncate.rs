//! Setting a file's size by setting those of its objects.
//!
//! Extending a file creates no object except the one with the new last byte; the caller ensures
//! that this byte has an object. So the objects' sizes are requested first, unless the file has one
//! stripe or becomes empty.
//!
//! A truncate of several objects is atomic for writes and truncates of other clients. It first
//! locks all objects, and releases those of an OST when that OST has executed its part. If others
//! revoke the locks again and again, it goes on without. It also releases them if an OST does not
//! answer for [`PATIENCE`]. Otherwise the other OSTs would evict this client.
//!
//! A concurrent stat locks nothing. The object with the new last byte is changed before the others,
//! so this stat sees a size between the old one and the new one.

use std::pin::pin;

use sheen_layout::Layout;
use sheen_rt::join::join_all;
use sheen_wire::{
    Bulk, Errno,
    ost::{ObjectAttr, Request},
};

use super::{
    Lov,
    enqueue::PATIENCE,
    follow::{after, together},
    in_use::InUse,
    split::by_ost,
};
use crate::failure::Result;

impl Lov {
    /// Sets the file's size to `size` bytes.
    ///
    /// # Errors
    /// EFBIG: `size` exceeds the layout's maximum file size.
    pub async fn truncate(&self, layout: &Layout, size: u64) -> Result<()> {
        check_size(layout, size)?;
        let _truncating = self.objects.truncating(layout.fid());
        let _changing = self.ends.changing(layout);
        let held = match layout.stripe_count() {
            1 => {
                self.settle_file(layout).await;
                None
            }
            _ => self.lock_objects(layout).await?,
        };
        let held = held.unwrap_or_default();
        let targets = self.targets(layout, size, &held).await?;
        let last = last_stripe(layout, size);
        let (first, others): (Vec<_>, Vec<_>) = targets.into_iter().partition(|(stripe, _)| last == Some(*stripe));
        let firsts = osts(layout, &first)?;
        held.begin(firsts.iter().copied().chain(osts(layout, &others)?));
        let mut resize = pin!(self.resize(layout, &first, &held));
        match self.rt.timeout(PATIENCE, resize.as_mut()).await {
            Ok(done) => done?,
            Err(_) => {
                held.release_all_but(&firsts);
                resize.await?;
            }
        }
        after(!first.is_empty(), self.resize(layout, &others, &held).await)
    }

    /// As [`Lov::truncate`], of a mirror whose objects are locked by `held`, and all at once:
    /// nobody reads the mirror. An OST that does not answer has its own locks in use alone.
    ///
    /// # Errors
    /// EBUSY: an OST did not answer in time, and nothing was changed. As [`Lov::truncate`].
    pub async fn truncate_locked(&self, layout: &Layout, size: u64, held: &InUse) -> Result<()> {
        check_size(layout, size)?;
        let _truncating = self.objects.truncating(layout.fid());
        let _changing = self.ends.changing(layout);
        let Ok(targets) = self.rt.timeout(PATIENCE, self.targets(layout, size, held)).await else {
            return Err(Errno::EBUSY.into());
        };
        let targets = targets?;
        held.begin(osts(layout, &targets)?.into_iter());
        self.resize(layout, &targets, held).await
    }

    /// Returns the stripes whose objects must change, with their new sizes. Releases the locks if
    /// an OST does not answer for long.
    async fn targets(&self, layout: &Layout, size: u64, held: &InUse) -> Result<Vec<(usize, u64)>> {
        if size == 0 || layout.stripe_count() == 1 {
            return Ok((0..layout.stripe_count()).map(|s| (s, layout.object_size(size, s))).collect());
        }
        let mut now = pin!(self.glimpse(layout));
        let now = match self.rt.timeout(PATIENCE, now.as_mut()).await {
            Ok(now) => now?,
            Err(_) => {
                held.release_all_but(&[]);
                now.await?
            }
        };
        Ok(changes(layout, size, &now))
    }

    /// Sets the sizes of stripes' objects, which are locked by `held`.
    async fn resize(&self, layout: &Layout, targets: &[(usize, u64)], held: &InUse) -> Result<()> {
        let (file, groups) = (layout.fid(), by_ost(layout, targets.iter().map(|t| t.0))?);
        let calls = groups.into_iter().map(|(ost, positions)| {
            let resize = |p: &usize| (layout.stripes()[targets[*p].0].object, targets[*p].1);
            let objects = positions.iter().map(resize).collect();
            async move {
                let done = self.change(file, ost, Request::Truncate { file, objects }, Bulk::new()).await;
                if done.is_ok() {
                    held.done(ost);
                }
                done
            }
        });
        together(join_all(calls).await)
    }
}

fn check_size(layout: &Layout, size: u64) -> Result<()> {
    if size > layout.max_file_size() { Err(Errno::EFBIG.into()) } else { Ok(()) }
}

/// Returns the index of the OST of each request that [`Lov::resize`] sends.
fn osts(layout: &Layout, targets: &[(usize, u64)]) -> Result<Vec<u32>> {
    Ok(by_ost(layout, targets.iter().map(|t| t.0))?.into_iter().map(|(ost, _)| ost).collect())
}

/// Returns the stripe that holds the last of `size` bytes.
fn last_stripe(layout: &Layout, size: u64) -> Option<usize> {
    layout.map(size.checked_sub(1)?, 1).next().map(|c| c.stripe)
}

/// Returns the stripes whose objects must change, with their new sizes, so that the file has `size`
/// bytes (not 0). Objects that reach too far are cut. The one with the last byte is extended to it.
fn changes(layout: &Layout, size: u64, now: &[ObjectAttr]) -> Vec<(usize, u64)> {
    let last = last_stripe(layout, size);
    let wanted = |(stripe, object): (usize, &ObjectAttr)| {
        let target = layout.object_size(size, stripe);
        let cut = object.size > target;
        let extend = object.size < target && last == Some(stripe);
        (cut || extend).then_some((stripe, target))
    };
    now.iter().enumerate().filter_map(wanted).collect()
}
