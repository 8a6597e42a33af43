//! SEEK_DATA and SEEK_HOLE.
//!
//! Offsets in an object and in the file rise together, so the file's next data (or hole) is the
//! least of the objects' next ones, each carried over to the file: one question per object, and
//! none to objects that cannot have an answer. An object's end counts as a hole only where the file
//! goes on behind it, in its component. What has no objects is a hole.

use sheen_layout::Layout;
use sheen_wire::{
    Bulk, Errno, Result,
    ost::{ObjectAttr, Reply, Request, Seek},
};

use super::{Lov, glimpse, stripe};
use crate::join::join_batches;

/// Objects asked at the same time.
const SEEKS_AT_ONCE: usize = 64;

impl Lov {
    /// The next data, or hole, at or after `offset`; the end of the file is a hole.
    ///
    /// # Errors
    /// ENXIO: `offset` is not inside the file, or no data follows it.
    pub async fn seek(&self, layout: &Layout, offset: u64, what: Seek) -> Result<u64> {
        self.settle_file(layout).await;
        let objects = self.glimpse(layout).await?;
        let size = glimpse::size(layout, &objects);
        if offset >= size {
            return Err(Errno::ENXIO);
        }
        let missing = || layout.missing(offset, size - offset).map(|(start, _)| start.max(offset));
        let hole = if what == Seek::Hole { missing() } else { None };
        if hole == Some(offset) {
            return Ok(offset);
        }
        // Most often the answer is where the question is.
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

    /// The answer of one stripe, from `from` in its object, as an offset in the file; `None`: there
    /// is none in its component.
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
                _ => return Err(Errno::EPROTO),
            }
        };
        // Behind the component's end the file goes on in others.
        let end = layout.file_offset(index, u64::MAX);
        Ok(at.map(|at| layout.file_offset(index, at)).filter(|at| *at < end))
    }
}

fn found(at: Option<u64>, size: u64, what: Seek) -> Result<u64> {
    match (at, what) {
        (Some(at), Seek::Hole) => Ok(at.min(size)),
        (None, Seek::Hole) => Ok(size),
        (Some(at), Seek::Data) if at < size => Ok(at),
        (_, Seek::Data) => Err(Errno::ENXIO),
    }
}
