//! lseek with SEEK_DATA and SEEK_HOLE.
//!
//! Offsets in an object and in the file rise together. So the next data (or hole) of the file is
//! the minimum over the objects' next ones, converted to file offsets. Each object needs one
//! request, and objects that cannot have the result need none. The end of an object counts as a
//! hole only if the file continues behind it in the same component. A range without objects is a
//! hole.

use sheen_layout::Layout;
use sheen_rt::join::join_batches;
use sheen_wire::{
    Bulk, Errno,
    ost::{ObjectAttr, Reply, Request, Seek},
};

use super::{Lov, glimpse, stripe};
use crate::failure::Result;

/// Maximum number of concurrent requests.
const SEEKS_AT_ONCE: usize = 64;

impl Lov {
    /// Returns the next data, or hole, at or after `offset`. The end of the file counts as a hole.
    ///
    /// # Errors
    /// ENXIO: `offset` is not inside the file, or no data follows.
    pub async fn seek(&self, layout: &Layout, offset: u64, what: Seek) -> Result<u64> {
        self.settle_file(layout).await;
        let objects = self.glimpse(layout).await?;
        let size = glimpse::size(layout, &objects);
        if offset >= size {
            return Err(Errno::ENXIO.into());
        }
        let missing = || layout.missing(offset, size - offset).map(|(start, _)| start.max(offset));
        let hole = if what == Seek::Hole { missing() } else { None };
        if hole == Some(offset) {
            return Ok(offset);
        }
        // In most cases the result is `offset` itself, so ask the object that contains it first.
        let here = layout.map(offset, 1).next();
        let first = match here {
            Some(here) => self.seek_stripe(layout, &objects, here.stripe, here.object_offset, what).await?,
            None => None,
        };
        if first == Some(offset) || here.is_some() && layout.stripe_count() == 1 {
            return found(first.into_iter().chain(hole).min(), size, what);
        }
        let here = here.map(|here| here.stripe);
        let others =
            (0..layout.stripe_count()).filter(|s| Some(*s) != here && layout.file_offset(*s, u64::MAX) > offset);
        let asked = others.map(|s| self.seek_stripe(layout, &objects, s, layout.object_offset(offset, s), what));
        let answers: Result<Vec<_>> = join_batches(asked.collect(), SEEKS_AT_ONCE).await.into_iter().collect();
        found(answers?.into_iter().chain([first, hole]).flatten().min(), size, what)
    }

    /// Returns the result of one stripe, starting at `from` in its object, as a file offset.
    /// `None`: there is none in its component.
    async fn seek_stripe(
        &self,
        layout: &Layout,
        objects: &[ObjectAttr],
        index: usize,
        from: u64,
        what: Seek,
    ) -> Result<Option<u64>> {
        let object = objects.get(index).ok_or(Errno::EIO)?;
        let at = if from >= object.size {
            (what == Seek::Hole).then_some(from)
        } else {
            let stripe = stripe(layout, index)?;
            let request = Request::Seek { object: stripe.object, offset: from, what };
            match self.call(stripe.ost, request, Bulk::new()).await?.0 {
                Reply::Offset(at) => at,
                _ => return Err(Errno::EPROTO.into()),
            }
        };
        // Beyond the end of the component, the file continues in other objects.
        let end = layout.file_offset(index, u64::MAX);
        Ok(at.map(|at| layout.file_offset(index, at)).filter(|at| *at < end))
    }
}

fn found(at: Option<u64>, size: u64, what: Seek) -> Result<u64> {
    match (at, what) {
        (Some(at), Seek::Hole) => Ok(at.min(size)),
        (None, Seek::Hole) => Ok(size),
        (Some(at), Seek::Data) if at < size => Ok(at),
        (_, Seek::Data) => Err(Errno::ENXIO.into()),
    }
}
