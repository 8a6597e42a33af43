//! Delays and faults put into outgoing frames, to show how a distant or failing network behaves.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use sheen_rt::Rt;

/// What happens to every outgoing frame of the process's tcp connections. The default is nothing.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Fault {
    /// How much later each frame is sent. The order is kept. (Timers have the run-time's
    /// resolution, about 1 ms.)
    pub delay: Duration,
    /// Probability, 0 to 1, that a frame is lost. A stream cannot lose one frame and go on, so the
    /// connection breaks.
    pub drop_probability: f64,
}

/// The fault in force, cheap to ask where there is none.
#[derive(Default)]
pub(crate) struct Faults {
    active: AtomicBool,
    fault: Mutex<Fault>,
}

impl Faults {
    pub(crate) fn set(&self, fault: Fault) {
        *self.fault.lock() = fault;
        self.active.store(fault != Fault::default(), Ordering::Release);
    }

    pub(crate) fn get(&self) -> Fault {
        if self.active.load(Ordering::Acquire) { *self.fault.lock() } else { Fault::default() }
    }
}

impl Fault {
    /// Whether this frame is to be lost.
    pub(crate) fn drops(&self, rt: &Rt) -> bool {
        // 53 bits are what an f64 in [0, 1) can tell apart.
        self.drop_probability > 0.0 && ((rt.random_u64() >> 11) as f64) < self.drop_probability * (1u64 << 53) as f64
    }
}
