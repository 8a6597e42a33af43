//! Selection of the mirror to read.
//!
//! Any fresh mirror will do. Mirrors with the PREF_RD flag come first, if all their OSTs are
//! connected; otherwise any mirror whose OSTs are connected. Among several candidates, each client
//! uses its own random number to spread the load. If an OST disconnects during a read, another
//! mirror is read instead. No state is needed for this, because the import knows that its
//! connection is lost.

use std::{pin::pin, sync::Arc, time::Duration};

use sheen_layout::{Layout, flags};
use sheen_wire::Errno;

use super::{Lov, is_absence};
use crate::failure::Result;

/// Interval between checks whether the OSTs of the mirror being read are connected. If two checks
/// in a row fail, another mirror is read; a connection that only broke is restored by then.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often mirrors that were disconnected may be tried again during one read. Such a connection
/// may only have been slow.
const RETURNS_MAX: usize = 4;

/// The mirrors that one read has tried.
struct Tried {
    /// Mirror ids; the last one is being read.
    ids: Vec<u16>,
    /// Remaining number of repeated attempts.
    returns: usize,
}

impl Lov {
    /// Returns the mirror to read a file from; the layout itself if the file is not mirrored.
    pub fn readable(&self, layout: &Arc<Layout>) -> Arc<Layout> {
        if !layout.is_mirrored() {
            return layout.clone();
        }
        self.readable_but(layout, &[]).unwrap_or_else(|| layout.clone())
    }

    /// Returns the mirror to read like [`Lov::readable`], except those in `tried`. `None`: no other
    /// mirror has all its OSTs connected.
    fn readable_but(&self, layout: &Layout, tried: &[u16]) -> Option<Arc<Layout>> {
        let fresh = layout.fresh_mirrors();
        let up = |m: &&&Arc<Layout>| !tried.contains(&m.mirror_id()) && self.is_up(m);
        let up: Vec<&&Arc<Layout>> = fresh.iter().filter(up).collect();
        let preferred = up.iter().filter(|m| m.is_preferred(flags::PREF_RD)).count();
        let among = if preferred > 0 { &up[..preferred] } else { &up[..] };
        let at = self.spread.checked_rem(among.len())?;
        among.get(at).map(|m| Arc::clone(m))
    }

    /// Whether all OSTs of the layout are active and connected, as far as is known.
    fn is_up(&self, layout: &Layout) -> bool {
        layout.stripes().iter().all(|s| self.get(s.ost).is_some_and(|ost| ost.osc.state().is_ok()))
    }

    /// Runs `work` with the layout to read. If OSTs of this mirror are disconnected, repeats `work`
    /// with another mirror.
    ///
    /// # Errors
    /// The error of `work`; with several mirrors, that of the last one tried.
    pub async fn by_any<T, F: Future<Output = Result<T>>>(
        &self,
        layout: &Arc<Layout>,
        mut work: impl FnMut(Arc<Layout>) -> F,
    ) -> Result<T> {
        if !layout.is_mirrored() {
            return work(layout.clone()).await;
        }
        let mut now = self.readable(layout);
        let mut tried = Tried { ids: vec![now.mirror_id()], returns: RETURNS_MAX };
        loop {
            let answer = self.while_up(layout, &tried, &now, work(now.clone())).await;
            match answer {
                Err(failure) if is_absence(&failure) => match self.another(layout, &tried) {
                    Some(next) => now = next,
                    None => return Err(failure),
                },
                answer => return answer,
            }
            if tried.ids.contains(&now.mirror_id()) {
                tried.returns -= 1;
                tried.ids.clear();
            }
            tried.ids.push(now.mirror_id());
        }
    }

    /// Returns a mirror other than the one being read: one that was not tried yet, or one that is
    /// connected again.
    fn another(&self, layout: &Layout, tried: &Tried) -> Option<Arc<Layout>> {
        let last = tried.ids.last().filter(|_| tried.returns > 0);
        self.readable_but(layout, &tried.ids).or_else(|| self.readable_but(layout, &[*last?]))
    }

    /// Runs `work`, but returns ENOTCONN as soon as an OST of the mirror is disconnected and
    /// another mirror is available.
    async fn while_up<T>(
        &self,
        layout: &Layout,
        tried: &Tried,
        now: &Layout,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let mut work = pin!(work);
        let mut was_up = true;
        loop {
            if let Ok(answer) = self.rt.timeout(LOOK_EVERY, work.as_mut()).await {
                return answer;
            }
            let is_up = self.is_up(now);
            if !is_up && !was_up && self.another(layout, tried).is_some() {
                tracing::info!("{}: mirror {} is disconnected: reading another one", layout.fid(), now.mirror_id());
                return Err(Errno::ENOTCONN.into());
            }
            was_up = is_up;
        }
    }
}
