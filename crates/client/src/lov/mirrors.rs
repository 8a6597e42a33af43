//! Which mirror of a file is read.
//!
//! Any fresh one will do: those that readers prefer come first, then those whose OSTs can all be
//! reached; among several, clients spread by a number of their own. Where an OST goes away while it
//! is asked, another mirror is asked instead; the import, which knows that its connection is lost,
//! is what remembers it.

use std::{pin::pin, sync::Arc, time::Duration};

use sheen_layout::{Layout, flags};
use sheen_wire::{Errno, Result};

use super::{Lov, is_absence};

/// How often it is looked whether the OSTs of a mirror that is being read can still be reached. Two
/// looks in a row that say no make another mirror be read: a connection that was only broken is
/// back by then.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often one that was found away may be asked again, for it may be back: its connection was
/// only slow to come.
const RETURNS_MAX: usize = 4;

/// Mirrors that were asked for one read.
struct Tried {
    /// The last of them is being asked.
    ids: Vec<u16>,
    /// How often one may be asked again.
    returns: usize,
}

impl Lov {
    /// The mirror to read a file from; the layout itself where there is only one.
    pub fn readable(&self, layout: &Arc<Layout>) -> Arc<Layout> {
        if !layout.is_mirrored() {
            return layout.clone();
        }
        self.readable_but(layout, &[]).unwrap_or_else(|| layout.clone())
    }

    /// The same, of those that were not `tried`. `None`: there is none whose OSTs can be reached.
    fn readable_but(&self, layout: &Layout, tried: &[u16]) -> Option<Arc<Layout>> {
        let fresh = layout.fresh_mirrors();
        let up = |m: &&&Arc<Layout>| !tried.contains(&m.mirror_id()) && self.is_up(m);
        let up: Vec<&&Arc<Layout>> = fresh.iter().filter(up).collect();
        let preferred = up.iter().filter(|m| m.is_preferred(flags::PREF_RD)).count();
        let among = if preferred > 0 { &up[..preferred] } else { &up[..] };
        let at = self.spread.checked_rem(among.len())?;
        among.get(at).map(|m| Arc::clone(m))
    }

    /// Whether all OSTs that have something of this can be reached, as far as is known.
    fn is_up(&self, layout: &Layout) -> bool {
        layout.stripes().iter().all(|s| self.get(s.ost).is_some_and(|osc| osc.state().is_ok()))
    }

    /// Reads something of a file, from another mirror where the OSTs of the first are away: `work`
    /// with the layout to read by.
    ///
    /// # Errors
    /// What `work` answers; of several mirrors, the last one's.
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
                Err(errno) if is_absence(errno) => match self.another(layout, &tried) {
                    Some(next) => now = next,
                    None => return Err(errno),
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

    /// Another mirror than the one that is being asked: one that was not asked yet, or that can be
    /// reached again.
    fn another(&self, layout: &Layout, tried: &Tried) -> Option<Arc<Layout>> {
        let last = tried.ids.last().filter(|_| tried.returns > 0);
        self.readable_but(layout, &tried.ids).or_else(|| self.readable_but(layout, &[*last?]))
    }

    /// Does it; ENOTCONN as soon as an OST of the mirror is away and there is another mirror that
    /// is not.
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
                tracing::info!("{}: mirror {} is away, another one is read", layout.fid(), now.mirror_id());
                return Err(Errno::ENOTCONN);
            }
            was_up = is_up;
        }
    }
}
