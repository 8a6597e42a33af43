//! The modelled disk of an OST ([`DiskModel`]): requests wait for it before they are answered.
//!
//! Without a model, which is the default, a request costs one look at a flag.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;
use sheen_objects::runs;
use sheen_rt::{Instant, Rt};
use sheen_wire::ost::Part;

use crate::{disk_model::DiskModel, disk_spec::DiskSpec};

/// The modelled disk of an OST, if it has one.
pub struct Disk {
    rt: Rt,
    is_modelled: AtomicBool,
    model: Mutex<Option<DiskModel>>,
}

impl Disk {
    /// Creates a disk of these properties. `None`: no model.
    pub fn new(rt: &Rt, spec: Option<DiskSpec>) -> Disk {
        let disk = Disk { rt: rt.clone(), is_modelled: AtomicBool::new(false), model: Mutex::default() };
        disk.set(spec);
        disk
    }

    /// Replaces the model. Requests that wait already are not changed.
    pub fn set(&self, spec: Option<DiskSpec>) {
        let mut model = self.model.lock();
        *model = spec.map(DiskModel::new);
        self.is_modelled.store(model.is_some(), Relaxed);
    }

    /// Returns the properties, if there is a model.
    pub fn spec(&self) -> Option<DiskSpec> {
        self.model.lock().as_ref().map(|model| *model.spec())
    }

    /// Returns when a write of these parts may be answered. `None`: now.
    pub fn write(&self, parts: &[Part]) -> Option<Instant> {
        self.ask(|model, now| runs(parts).map(|run| model.write(now, run.object, run.offset, run.len as u64)).max())
    }

    /// Returns when a read of these parts may be answered. `lens` bytes of each exist. `None`: now.
    pub fn read(&self, parts: &[Part], lens: &[u32]) -> Option<Instant> {
        self.ask(|model, now| {
            let read = |(part, len): (&Part, &u32)| model.read(now, part.object, part.offset, u64::from(*len));
            parts.iter().zip(lens).filter(|(_, len)| **len > 0).map(read).max()
        })
    }

    /// Returns when all that was written is on the disk. `None`: now.
    pub fn sync(&self) -> Option<Instant> {
        self.ask(|model, now| Some(model.sync(now)))
    }

    /// Waits for an answer of the methods above.
    pub async fn wait(&self, until: Option<Instant>) {
        if let Some(until) = until {
            Box::pin(self.rt.sleep_exactly(until.since(self.rt.now()))).await;
        }
    }

    fn ask(&self, ask: impl FnOnce(&mut DiskModel, Instant) -> Option<Instant>) -> Option<Instant> {
        if !self.is_modelled.load(Relaxed) {
            return None;
        }
        let now = self.rt.now();
        ask(self.model.lock().as_mut()?, now).filter(|until| *until > now)
    }
}
