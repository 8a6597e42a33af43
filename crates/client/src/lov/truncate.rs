//! Setting a file's size by setting those of its objects.
//!
//! Extending a file creates no object except the one with the new last byte; the caller ensures
//! that this byte has an object. So the objects' sizes are requested first, unless the file has one
//! stripe or becomes empty.
//!
//! A truncate of several objects is atomic for writes and truncates: it first locks all objects, and
//! releases those of an OST when that OST has executed its part ([`InUse`]). If other clients
//! revoke the locks again and again, it goes on without. A concurrent stat locks nothing. The object
//! with the new last byte is changed before the others, so this stat sees a size between the old
//! one and the new one.

use sheen_layout::Layout;
use sheen_wire::{
    Bulk, Errno,
    ost::{ObjectAttr, Request},
};

use super::{
    Lov,
    follow::{after, together},
    in_use::InUse,
    split::by_ost,
};
use crate::{failure::Result, join::join_all};

impl Lov {
    /// Sets the file's size to `size` bytes.
    ///
    /// # Errors
    /// EFBIG: `size` exceeds the layout's maximum file size.
    pub async fn truncate(&self, layout: &Layout, size: u64) -> Result<()> {
        if size > layout.max_file_size() {
            return Err(Errno::EFBIG.into());
        }
        let _truncating = self.objects.truncating(layout.fid());
        let _changing = self.ends.changing(layout);
        let held = match layout.stripe_count() {
            1 => None,
            _ => self.lock_objects(layout).await?,
        };
        let held = held.unwrap_or_default();
        self.settle_file(layout).await;
        let targets: Vec<(usize, u64)> = if size == 0 || layout.stripe_count() == 1 {
            (0..layout.stripe_count()).map(|s| (s, layout.object_size(size, s))).collect()
        } else {
            changes(layout, size, &self.glimpse(layout).await?)
        };
        let last = last_stripe(layout, size);
        let (first, others): (Vec<_>, Vec<_>) = targets.into_iter().partition(|(stripe, _)| last == Some(*stripe));
        let osts = |targets: &[(usize, u64)]| by_ost(layout, targets.iter().map(|t| t.0));
        held.begin(osts(&first)?.into_iter().chain(osts(&others)?).map(|(ost, _)| ost));
        self.resize(layout, &first, &held).await?;
        after(!first.is_empty(), self.resize(layout, &others, &held).await)
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
