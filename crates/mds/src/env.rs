//! Environment of the namespace's operations: the time, the file system's defaults, OSTs for new
//! objects.
//!
//! Shortly after a start the MDT does not know yet which OSTs and pools exist. When the connection
//! to an OST has just broken, the MDT does not know whether it comes back. After it was idle, it
//! does not know for a moment which OSTs are degraded or full. An operation that fails for such a
//! reason is refused with [`MdtEnv::wait`] set, and retried when more is known. If the MDT does not
//! learn it in time, the client repeats the request ([`Errno::OSTS_DISCONNECTED`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use sheen_layout::{Asked, Component, Count, Holds, Ost, Placer, Spec, Wanted, WantedLayout, resolve_asked, room_each};
use sheen_namespace::{ClientId, Env, LayoutRequest, Permitted};
use sheen_rpc::Export;
use sheen_rt::{Instant, operation};
use sheen_wire::{Errno, Fid, JobId, Result, StatFs, Time};

use crate::dom;
use crate::mdt::Mdt;
use crate::space::space;
use crate::state::osts::{PoolOsts, SETTLE};

/// Environment of one operation.
pub(crate) struct MdtEnv<'a> {
    pub mdt: &'a Mdt,
    pub placer: &'a mut Placer,
    pub now: Instant,
    /// How long ago the request arrived, if its time is that of its arrival; else 0.
    pub waited: Duration,
    /// The client of the request; `None`: the MDT itself.
    pub client: Option<&'a Export>,
    /// A layout was refused, or objects could not be placed as requested. A retry may succeed when
    /// more is known of the OSTs.
    pub wait: bool,
}

impl Env for MdtEnv<'_> {
    fn now(&self) -> Time {
        self.mdt.rt.wall().micros_ago(self.waited.as_micros() as u64)
    }

    fn nid(&self) -> Bytes {
        self.client.map(|client| client.nid().to_string().into()).unwrap_or_default()
    }

    fn job(&self) -> JobId {
        operation::job()
    }

    fn is_short(&self) -> bool {
        self.mdt.reserve.is_short()
    }

    fn check(&mut self, asked: &Asked) -> Result<()> {
        let checked = match asked {
            Asked::Plain(spec) => self.check_spec(spec),
            Asked::Composite(template) => template.components.iter().try_for_each(|c| {
                if c.is_on_mdt() && !self.mdt.config.holds_data {
                    return Err(Errno::EOPNOTSUPP);
                }
                self.check_spec(&c.spec)
            }),
        };
        if checked == Err(Errno::EINVAL) {
            self.know_osts()?;
        }
        self.wait |= checked.is_err() && self.is_starting() && !self.mdt.osts.settled();
        checked
    }

    fn resolve(&mut self, request: &LayoutRequest) -> Result<WantedLayout> {
        let (dir, root) = (request.dir.as_ref(), request.root.as_ref());
        let is_composite =
            [Some(&request.own), dir, root].into_iter().flatten().any(|asked| asked.composite().is_some());
        let mdt_bytes_max = if is_composite { dom::bytes_max(self.mdt) } else { 0 };
        let mut layout = resolve_asked(&request.own, dir, root, &self.mdt.tunables.defaults(), mdt_bytes_max);
        match &mut layout {
            WantedLayout::Plain(wanted) => self.settle_pool(request.own.plain(), wanted)?,
            WantedLayout::Composite(components) => {
                for (i, component) in components.iter_mut().enumerate() {
                    let own = request.own.composite().and_then(|t| t.components.get(i)).map(|c| &c.spec);
                    if let Holds::Objects(wanted) | Holds::Extension(_, wanted) = &mut component.holds {
                        self.settle_pool(own, wanted)?;
                    }
                }
            }
        }
        Ok(layout)
    }

    fn place(&mut self, wanted: &Wanted) -> Result<Vec<u32>> {
        self.know_osts()?;
        let (tunables, osts) = (&self.mdt.tunables, &self.mdt.osts);
        if !osts.are_seen(self.now) {
            self.wait = true;
            return Err(Errno::ENOSPC);
        }
        let starting = self.is_starting();
        let mut wanted = wanted.clone();
        tunables.place(&mut wanted);
        let (pool, view) = self.view(&wanted);
        if let Some(pool) = &pool {
            // The first OST may have been removed from the pool since, or may never have been in
            // it.
            wanted.start = wanted.start.filter(|index| pool.has(*index));
        }
        if is_short(&wanted, &view) && (osts.reconnecting() || (starting && !osts.all_have_answered())) {
            self.wait = true;
            return Err(Errno::ENOSPC);
        }
        let limits = tunables.limits();
        let placed = match &pool {
            Some(pool) => pool.placer.lock().place(&wanted, &view, &limits),
            None => self.placer.place(&wanted, &view, &limits),
        };
        self.wait |= placed.is_err() && (osts.reconnecting() || (starting && !osts.settled()));
        if placed.is_err() && !self.wait && osts.all_are_disconnected(&view) {
            return Err(Errno::OSTS_DISCONNECTED);
        }
        Ok(placed?)
    }

    fn has_room(&self, component: &Component, bytes: u64) -> bool {
        let limits = self.mdt.tunables.limits();
        if component.is_instantiated() {
            let view = self.mdt.osts.view();
            let each = bytes.div_ceil(component.stripes.len().max(1) as u64);
            let mut needed = BTreeMap::<u32, u64>::new();
            for stripe in &component.stripes {
                let needed = needed.entry(stripe.ost).or_insert(limits.free_bytes_min);
                *needed = needed.saturating_add(each);
            }
            let has_room = |(index, bytes): (&u32, &u64)| {
                view.iter().any(|ost| ost.index == *index && ost.active && ost.free_bytes > *bytes)
            };
            return needed.iter().all(has_room);
        }
        let pool = component.pool.as_ref().and_then(|name| self.mdt.osts.pool(name.as_str()));
        let view = self.mdt.osts.view();
        let eligible = view.iter().filter(|ost| pool.as_ref().is_none_or(|pool| pool.has(ost.index)));
        let stripes = match Count::from_raw(component.stripe_count) {
            Some(Count::Stripes(n)) => usize::from(n).max(1),
            _ => view.len(),
        };
        room_each(eligible, stripes, bytes, &limits).is_some()
    }

    fn project_changers(&self) -> Permitted {
        Permitted::from_gid(self.mdt.tunables.chprojid_gid.load(Relaxed))
    }

    fn directory_stripers(&self) -> Permitted {
        Permitted::from_gid(self.mdt.tunables.remote_dir_gid.load(Relaxed))
    }

    fn extended(&mut self, component: &Component, bytes: u64) {
        self.mdt.osts.take(component, bytes, self.now);
    }

    fn is_up(&self, ost: u32) -> bool {
        self.mdt.osts.connected(ost).is_some()
    }

    fn locks(&self, fid: Fid) -> Vec<(ClientId, u64)> {
        self.mdt.locks.of_clients(fid)
    }

    fn statfs(&self, files: u64) -> StatFs {
        space(self.mdt, files)
    }

    fn may_be_open(&self, fid: Fid) -> bool {
        self.mdt.locks.may_be_open(fid)
    }
}

impl MdtEnv<'_> {
    fn is_starting(&self) -> bool {
        self.now.since(self.mdt.recovery.ended_at()) < SETTLE
    }

    /// Checks that the MDT knows which OSTs and pools exist, from the MGS or from its copy of the
    /// configuration.
    ///
    /// # Errors
    /// Otherwise the request is to be repeated: here shortly after a start, later by the client.
    fn know_osts(&mut self) -> Result<()> {
        if self.mdt.osts.known() {
            return Ok(());
        }
        let is_starting = self.is_starting();
        self.wait |= is_starting;
        Err(if is_starting { Errno::ENOSPC } else { Errno::OSTS_DISCONNECTED })
    }

    fn check_spec(&self, spec: &Spec) -> Result<()> {
        let osts = &self.mdt.osts;
        let view = match &spec.pool {
            Some(name) => Arc::new(osts.pool(name.as_str()).ok_or(Errno::EINVAL)?.of(&osts.view())),
            None => osts.view(),
        };
        let exists = |index: &u32| view.binary_search_by_key(index, |o| o.index).is_ok();
        if spec.start.iter().chain(&spec.osts).all(exists) { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// Checks the pool. One that the user named (`own`) must exist and have OSTs (EINVAL).
    ///
    /// An inherited pool is optional, because a default layout may outlive its pool. The file is
    /// then created on any OSTs and names no pool, as in Lustre. The same happens if the request
    /// names exact OSTs outside the pool. A first OST outside the pool leads out of the pool only
    /// if the user named that OST.
    fn settle_pool(&mut self, own: Option<&Spec>, wanted: &mut Wanted) -> Result<()> {
        let Some(name) = &wanted.pool else { return Ok(()) };
        self.know_osts()?;
        let inherited = own.is_none_or(|spec| spec.pool.is_none());
        let pool = match self.mdt.osts.pool(name.as_str()) {
            None if !inherited => return Err(Errno::EINVAL),
            pool => pool,
        };
        let has = |index: &u32| pool.as_ref().is_some_and(|pool| pool.has(*index));
        if own.is_none_or(|spec| spec.start.is_none()) && pool.is_some() {
            wanted.start = wanted.start.filter(has);
        }
        if inherited && (pool.is_none() || !wanted.start.iter().chain(&wanted.osts).all(has)) {
            wanted.pool = None;
        }
        Ok(())
    }

    /// Returns the OSTs to choose from: those of the pool, or all of them if there is no pool (any
    /// more).
    fn view(&self, wanted: &Wanted) -> (Option<Arc<PoolOsts>>, Arc<Vec<Ost>>) {
        let all = self.mdt.osts.view();
        let pool = wanted.pool.as_ref().and_then(|name| self.mdt.osts.pool(name.as_str()));
        let view = pool.as_ref().map_or_else(|| all.clone(), |pool| Arc::new(pool.of(&all)));
        (pool, view)
    }
}

/// Returns whether a file would get more stripes, its first OST, or fewer degraded OSTs, if all
/// OSTs were active.
fn is_short(wanted: &Wanted, osts: &[Ost]) -> bool {
    if wanted.start.is_some_and(|index| osts.iter().any(|o| o.index == index && !o.active)) {
        return true;
    }
    let distinct = match wanted.count {
        _ if !wanted.osts.is_empty() => return false,
        Count::Stripes(_) if wanted.overstripe => return false,
        Count::Stripes(n) => osts.len().min(usize::from(n)),
        Count::All | Count::PerOst(_) => osts.len(),
    };
    osts.iter().filter(|o| o.active && !o.degraded).count() < distinct
}
