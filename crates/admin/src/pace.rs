//! Bandwidth limit of a copy.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Interval of progress reports while a copy waits because of its bandwidth limit.
const TICK: Duration = Duration::from_millis(100);

/// Limits a copy to a bandwidth.
#[derive(Debug)]
pub struct Pace {
    /// Bandwidth limit in bytes per second.
    bandwidth: Option<u64>,
    began: Instant,
    moved: u64,
}

impl Pace {
    /// Starts the clock at the beginning of a copy.
    pub fn new(bandwidth: Option<u64>) -> Pace {
        Pace { bandwidth, began: Instant::now(), moved: 0 }
    }

    /// Counts `bytes` more as copied. If the copy is too fast, waits and calls `tick` every `TICK`
    /// meanwhile.
    pub fn moved(&mut self, bytes: u64, mut tick: impl FnMut()) {
        self.moved += bytes;
        let Some(bandwidth) = self.bandwidth else { return };
        let due = Duration::from_secs_f64(self.moved as f64 / bandwidth as f64);
        while let Some(left) = due.checked_sub(self.began.elapsed()).filter(|left| !left.is_zero()) {
            thread::sleep(left.min(TICK));
            tick();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const MB: u64 = 1 << 20;

    #[test]
    fn pace_delays_fast_copy_and_ticks_meanwhile() {
        let mut pace = Pace::new(Some(10 * MB));
        pace.moved(2 * MB, || {});
        assert!(pace.began.elapsed() >= Duration::from_millis(200));
        // A copy that waits for hours ticks again and again. Its thread is abandoned.
        let (tick, ticks) = mpsc::channel();
        thread::spawn(move || Pace::new(Some(MB)).moved(u64::MAX / 2, || _ = tick.send(())));
        (0..2).for_each(|_| ticks.recv().unwrap());
        let mut free = Pace::new(None);
        free.moved(u64::MAX / 2, || panic!("it does not wait"));
    }
}
