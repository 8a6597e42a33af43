//! SEEK_DATA and SEEK_HOLE.
//!
//! Offsets in an object and in the file rise together, so the file's next data (or hole) is the least of the objects' next ones,
//! each carried over to the file: one question per object, and none to objects that cannot have an answer. An object's end counts
//! as a hole only where the file goes on behind it.

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
        // Most often the answer is where the question is.
        let here = layout.map(offset, 1).next().ok_or(Errno::EIO)?;
        let first = self.seek_stripe(layout, &objects, here.stripe, here.object_offset, what).await?;
        if first == Some(offset) || layout.stripe_count() == 1 {
            return found(first, size, what);
        }
        let others = (0..layout.stripe_count()).filter(|s| *s != here.stripe);
        let asked = others.map(|s| self.seek_stripe(layout, &objects, s, layout.object_size(offset, s), what));
        let answers: Result<Vec<_>> = join_batches(asked.collect(), SEEKS_AT_ONCE).await.into_iter().collect();
        found(answers?.into_iter().chain([first]).flatten().min(), size, what)
    }

    /// The answer of one stripe, from `from` in its object, as an offset in the file.
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
        Ok(at.map(|at| layout.file_offset(index, at)))
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
