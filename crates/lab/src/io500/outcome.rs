//! Results of the IO500.
//!
//! * The score of bandwidth is the geometric mean of IOR's four phases in GiB/s.
//! * The score of metadata is the geometric mean of the other eight phases, in thousands of
//!   operations per second.
//! * The total score is the geometric mean of both.

use crate::io500::phase::Phase;

/// Seconds that the rules require of each write phase.
pub const OFFICIAL_SECONDS: f64 = 300.0;

/// Result of a phase.
#[derive(Clone, PartialEq, Debug)]
pub struct PhaseResult {
    /// The phase.
    pub phase: Phase,
    /// Result in [`Phase::unit`].
    pub score: f64,
    /// Seconds of the whole phase, with the start of its tasks.
    pub seconds: f64,
    /// Why the rules of the IO500 do not accept the phase.
    pub fault: Option<String>,
}

impl PhaseResult {
    /// Applies the rules to a result. `stonewall` is in seconds.
    pub fn new(phase: Phase, score: f64, seconds: f64, stonewall: u64, fault: Option<String>) -> PhaseResult {
        let short = |limit: f64| phase.writes() && seconds < limit;
        let fault = fault
            .or_else(|| (score <= 0.0).then(|| "the result is 0".into()))
            .or_else(|| {
                short(stonewall as f64).then(|| "all data was written before the stonewall: raise the maximum".into())
            })
            .or_else(|| short(OFFICIAL_SECONDS).then(|| format!("shorter than {OFFICIAL_SECONDS} s")));
        PhaseResult { phase, score, seconds, fault }
    }
}

/// The three scores of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Score {
    /// Bandwidth in GiB/s.
    pub bandwidth: f64,
    /// Metadata in thousands of operations per second.
    pub metadata: f64,
    /// Total.
    pub total: f64,
}

impl Score {
    /// Computes the scores. Phases with the result 0 do not count, as in the original.
    pub fn of(results: &[PhaseResult]) -> Score {
        let mean = |bandwidth: bool| {
            let of_kind = results.iter().filter(|r| r.phase.is_bandwidth() == bandwidth && r.score > 0.0);
            let logs: Vec<f64> = of_kind.map(|r| r.score.ln()).collect();
            if logs.is_empty() { 0.0 } else { (logs.iter().sum::<f64>() / logs.len() as f64).exp() }
        };
        let (bandwidth, metadata) = (mean(true), mean(false));
        Score { bandwidth, metadata, total: (bandwidth * metadata).sqrt() }
    }
}

/// All results.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// The phases of each run.
    pub runs: Vec<Vec<PhaseResult>>,
}

impl Outcome {
    /// Returns the results of a phase in all runs.
    pub fn of(&self, phase: Phase) -> Vec<f64> {
        self.runs.iter().flatten().filter(|result| result.phase == phase).map(|result| result.score).collect()
    }

    /// Returns the scores of the runs that ended.
    pub fn scores(&self) -> Vec<Score> {
        self.runs.iter().filter(|run| run.len() == Phase::ALL.len()).map(|run| Score::of(run)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The results of the ES400NVX2 of ISC 2023 with ten clients, and their published scores.
    #[test]
    fn score_is_that_of_a_published_list() {
        let published = [
            (Phase::IorEasyWrite, 57.88),
            (Phase::IorEasyRead, 79.08),
            (Phase::IorHardWrite, 5.38),
            (Phase::IorHardRead, 50.77),
            (Phase::Find, 13_229.11),
            (Phase::MdtestEasyWrite, 344.70),
            (Phase::MdtestEasyStat, 1_276.31),
            (Phase::MdtestEasyDelete, 311.16),
            (Phase::MdtestHardWrite, 199.36),
            (Phase::MdtestHardRead, 391.09),
            (Phase::MdtestHardStat, 1_105.33),
            (Phase::MdtestHardDelete, 112.58),
        ];
        let results = published.map(|(phase, score)| PhaseResult::new(phase, score, 301.0, 300, None));
        assert!(results.iter().all(|r| r.fault.is_none()));
        let score = Score::of(&results);
        for (computed, published) in [(score.bandwidth, 33.43), (score.metadata, 603.39), (score.total, 142.03)] {
            assert!((computed / published - 1.0).abs() < 0.001, "{computed} {published}");
        }
    }

    #[test]
    fn short_phases_are_not_accepted() {
        let fault = |phase, score, seconds| PhaseResult::new(phase, score, seconds, 10, None).fault;
        assert_eq!(fault(Phase::IorEasyWrite, 1.0, 11.0).unwrap(), "shorter than 300 s");
        assert!(fault(Phase::MdtestHardWrite, 1.0, 9.0).unwrap().contains("before the stonewall"));
        assert_eq!(fault(Phase::IorEasyRead, 1.0, 1.0), None);
        assert_eq!(fault(Phase::Find, 0.0, 1.0).unwrap(), "the result is 0");
    }
}
