//! What can be known of a file, and done, while an OST that has a part of it is away: lost its
//! connection, never had one, or is out of use (`osc.*.active=0`).

use std::{future::poll_fn, pin::pin, sync::Arc, task::Poll, time::Duration};

use sheen_layout::Layout;
use sheen_wire::Errno;

use super::Lov;
use crate::osc::Osc;

/// How often it is looked whether an OST that does not answer is away by now.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Whether it may be the OST's absence that made something fail, and not what was asked.
pub fn is_absence(errno: Errno) -> bool {
    matches!(errno, Errno::ENOTCONN | Errno::ETIMEDOUT | Errno::ESHUTDOWN | Errno::EIO)
}

/// Says of an OST whether it is gone.
type IsGone = fn(&Osc) -> bool;

impl Lov {
    /// Whether it is known that what a file's objects say cannot be had now.
    pub fn is_away(&self, layout: &Layout) -> bool {
        self.lacks(layout, Osc::is_away)
    }

    /// Does `work`, which asks for objects of these files. `None`: it is given up, for an OST of
    /// one of them is away.
    pub async fn unless_away<T>(&self, layouts: &[Arc<Layout>], work: impl Future<Output = T>) -> Option<T> {
        self.unless(|is_gone| layouts.iter().any(|layout| self.lacks(layout, is_gone)), work).await
    }

    /// The same for work that asks one OST.
    pub async fn unless_ost_away<T>(&self, ost: u32, work: impl Future<Output = T>) -> Option<T> {
        self.unless(|is_gone| self.get(ost).is_some_and(|osc| is_gone(&osc)), work).await
    }

    async fn unless<T>(&self, any: impl Fn(IsGone) -> bool, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        // What needs no OST, or one of this process, is done at once and costs no look.
        if let Poll::Ready(answer) = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await {
            return Some(answer);
        }
        let mut gone = any(Osc::is_away);
        while !gone {
            if let Ok(answer) = self.rt.timeout(LOOK_EVERY, work.as_mut()).await {
                return Some(answer);
            }
            // One that was looked for for the first time would be there by now.
            gone = any(|osc| osc.state().is_err());
        }
        None
    }

    /// Whether such an OST has a part of a file; of one with mirrors that are up to date, a part of
    /// each of them.
    fn lacks(&self, layout: &Layout, is_gone: IsGone) -> bool {
        let lacks = |l: &Layout| l.stripes().iter().any(|s| self.get(s.ost).is_some_and(|osc| is_gone(&osc)));
        if layout.is_mirrored() { layout.fresh_mirrors().iter().all(|m| lacks(m)) } else { lacks(layout) }
    }
}
