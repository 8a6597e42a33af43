//! The modelled disk of an OST ([`DiskModel`]): requests wait for it before they are answered.
//!
//! Without a model, which is the default, a request costs one look at a flag.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;
use sheen_objects::runs;
use sheen_rt::{Instant, Rt};
use sheen_wire::ost::Part;
use tokio::sync::Notify;

use crate::{disk_model::DiskModel, disk_spec::DiskSpec};

/// The modelled disk of an OST, if it has one.
pub struct Disk {
    rt: Rt,
    is_modelled: AtomicBool,
    model: Mutex<Option<DiskModel>>,
    /// Notified when the model is replaced.
    replaced: Notify,
}

impl Disk {
    /// Creates a disk of these properties. `None`: no model.
    pub fn new(rt: &Rt, spec: Option<DiskSpec>) -> Disk {
        let disk = Disk {
            rt: rt.clone(),
            is_modelled: AtomicBool::new(false),
            model: Mutex::default(),
            replaced: Notify::new(),
        };
        disk.set(spec);
        disk
    }

    /// Replaces the model. Requests that wait are answered.
    pub fn set(&self, spec: Option<DiskSpec>) {
        let mut model = self.model.lock();
        *model = spec.map(DiskModel::new);
        self.is_modelled.store(model.is_some(), Relaxed);
        self.replaced.notify_waiters();
    }

    /// Returns the properties, if there is a model.
    pub fn spec(&self) -> Option<DiskSpec> {
        self.model.lock().as_ref().map(|model| *model.spec())
    }

    /// Returns when a write of these parts may be answered. `None`: now.
    pub fn write(&self, parts: &[Part]) -> Option<Instant> {
        self.ask(|model, now| runs(parts).map(|run| model.write(now, run.object, run.offset, run.len as u64)).max())
    }

    /// Whether there is a model.
    pub fn is_modelled(&self) -> bool {
        self.is_modelled.load(Relaxed)
    }

    /// Returns when these parts of objects of these sizes may be read. `None`: now.
    pub fn read(&self, parts: &[Part], sizes: &[u64]) -> Option<Instant> {
        let there = |(part, size): (&Part, &u64)| (*part, u64::from(part.len).min(size.saturating_sub(part.offset)));
        self.ask(|model, now| {
            let read = |(part, len): (Part, u64)| model.read(now, part.object, part.offset, len);
            parts.iter().zip(sizes).map(there).filter(|(_, len)| *len > 0).map(read).max()
        })
    }

    /// Returns when all that was written is on the disk. `None`: now.
    pub fn sync(&self) -> Option<Instant> {
        self.ask(|model, now| Some(model.sync(now)))
    }

    /// Waits for an answer of the methods above.
    pub async fn wait(&self, until: Option<Instant>) {
        if let Some(until) = until {
            let replaced = self.replaced.notified();
            if !self.is_modelled() {
                return;
            }
            let slept = Box::pin(self.rt.sleep_exactly(until.since(self.rt.now())));
            tokio::select! { biased; () = replaced => {}, () = slept => {} }
        }
    }

    fn ask(&self, ask: impl FnOnce(&mut DiskModel, Instant) -> Option<Instant>) -> Option<Instant> {
        if !self.is_modelled() {
            return None;
        }
        let now = self.rt.now();
        ask(self.model.lock().as_mut()?, now).filter(|until| *until > now)
    }
}
