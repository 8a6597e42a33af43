//! How quiet the machine is: a fixed computation, timed before and after each round.

use std::{hint::black_box, time::Instant};

/// Steps of the computation: some milliseconds.
const STEPS: u64 = 4_000_000;
/// Number of runs; the fastest counts, so that one interruption does not.
const RUNS: u32 = 5;
/// Spread of the times from which results are not to be trusted.
const NOISY: f64 = 0.10;

/// The times of a run's spins.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Noise {
    times: Vec<f64>,
}

impl Noise {
    /// Runs the computation and notes its time.
    pub fn spin(&mut self) {
        let one = |_| {
            let start = Instant::now();
            let mut word = black_box(1_u64);
            for step in 0..STEPS {
                word = (word ^ step).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
            }
            black_box(word);
            start.elapsed().as_secs_f64()
        };
        if let Some(fastest) = (0..RUNS).map(one).reduce(f64::min) {
            self.times.push(fastest);
        }
    }

    /// Returns how much longer the slowest spin took than the fastest one: 0.1 is 10 %.
    pub fn spread(&self) -> f64 {
        let (low, high) = crate::stats::range(&self.times);
        if self.times.is_empty() { 0.0 } else { high / low - 1.0 }
    }

    /// Returns a warning if the machine was too noisy to trust the results.
    pub fn warning(&self) -> Option<String> {
        let spread = self.spread();
        (spread > NOISY).then(|| {
            format!(
                "the machine was noisy: a fixed computation took up to {:.0} % longer in some rounds than in others; \
                 repeat the run when nothing else works here",
                spread * 100.0
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_noisy_machine_gets_a_warning() {
        assert_eq!(Noise::default().warning(), None);
        assert_eq!(Noise { times: vec![1.0, 1.09] }.warning(), None);
        assert!(Noise { times: vec![1.0, 1.5, 1.0] }.warning().unwrap().contains("up to 50 % longer"));
    }
}
