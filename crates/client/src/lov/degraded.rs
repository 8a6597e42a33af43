//! Operations on files while one of their OSTs is disconnected (its connection is lost or was never
//! established) or inactive (`osc.*.active=0`).

use std::{future::poll_fn, pin::pin, sync::Arc, task::Poll, time::Duration};

use sheen_layout::Layout;
use sheen_wire::Errno;

use super::Lov;
use crate::{failure::Failure, osc::Osc};

/// Interval between checks whether an OST that does not answer is disconnected by now.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Whether the error may result from a disconnected OST, rather than from the request.
pub fn is_absence(failure: &Failure) -> bool {
    matches!(failure.errno(), Some(Errno::ENOTCONN | Errno::ETIMEDOUT | Errno::ESHUTDOWN | Errno::EIO))
}

/// A test whether an OST is unavailable.
type IsUnavailable = fn(&Osc) -> bool;

impl Lov {
    /// Whether the attributes of the file's objects are known to be unavailable now.
    pub fn is_unavailable(&self, layout: &Layout) -> bool {
        self.lacks(layout, Osc::is_unavailable)
    }

    /// Runs `work`, which sends requests for objects of these files. Aborts it and returns `None`
    /// when an OST of one of the files is unavailable.
    pub async fn unless_unavailable<T>(&self, layouts: &[Arc<Layout>], work: impl Future<Output = T>) -> Option<T> {
        self.unless(|is_unavailable| layouts.iter().any(|layout| self.lacks(layout, is_unavailable)), work).await
    }

    /// Runs `work` like [`Lov::unless_unavailable`], for requests to one OST.
    pub async fn unless_ost_unavailable<T>(&self, ost: u32, work: impl Future<Output = T>) -> Option<T> {
        self.unless(|is_unavailable| self.get(ost).is_some_and(|ost| is_unavailable(&ost.osc)), work).await
    }

    async fn unless<T>(&self, any: impl Fn(IsUnavailable) -> bool, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        // Work that needs no OST, or only one in this process, completes at once, without a check.
        if let Poll::Ready(answer) = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await {
            return Some(answer);
        }
        let mut unavailable = any(Osc::is_unavailable);
        while !unavailable {
            if let Ok(answer) = self.rt.timeout(LOOK_EVERY, work.as_mut()).await {
                return Some(answer);
            }
            // A first connection attempt would have succeeded by now, so a missing connection
            // counts as unavailable.
            unavailable = any(|osc| osc.state().is_err());
        }
        None
    }

    /// Whether an unavailable OST holds a part of the file. For a mirrored file: whether each fresh
    /// mirror has a part on an unavailable OST.
    fn lacks(&self, layout: &Layout, is_unavailable: IsUnavailable) -> bool {
        let lacks =
            |l: &Layout| l.stripes().iter().any(|s| self.get(s.ost).is_some_and(|ost| is_unavailable(&ost.osc)));
        if layout.is_mirrored() { layout.fresh_mirrors().iter().all(|m| lacks(m)) } else { lacks(layout) }
    }
}
