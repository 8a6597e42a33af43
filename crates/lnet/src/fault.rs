//! Delays and faults injected into outgoing frames, to imitate a distant or failing network.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use sheen_rt::Rt;

/// Faults for every outgoing frame of the process's tcp connections. The default has none.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Fault {
    /// Delay of each frame, exact to some ten microseconds. The order stays the same.
    pub delay: Duration,
    /// Probability, 0 to 1, that a frame is lost. A stream cannot lose one frame and continue, so
    /// the connection breaks.
    pub drop_probability: f64,
}

/// The current fault. Reading it is cheap if there is none.
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
    /// Returns whether this frame is to be lost.
    pub(crate) fn drops(&self, rt: &Rt) -> bool {
        // 53 bits: the resolution of an f64 in [0, 1).
        self.drop_probability > 0.0 && ((rt.random_u64() >> 11) as f64) < self.drop_probability * (1u64 << 53) as f64
    }
}
