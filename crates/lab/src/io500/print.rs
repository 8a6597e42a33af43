//! The result block of the IO500.

use crate::{
    io500::{
        outcome::{OFFICIAL_SECONDS, PhaseResult, Score},
        phase::Phase,
    },
    output::Lines,
};

/// Prints a run.
pub struct Printer {
    /// Where to print.
    pub lines: Lines,
}

impl Printer {
    /// Prints what is known before the run.
    pub fn header(&mut self) {
        self.lines.line(&format!(
            "sheen lab io500 {} (phases, parameters and formula of the IO500; no official submission)",
            env!("CARGO_PKG_VERSION")
        ));
    }

    /// Prints the result of a phase, and the original's line for the timestamp.
    pub fn phase(&mut self, result: &PhaseResult) {
        let invalid = invalid(result.fault.is_some());
        let line = |mark: &str, name: &str, score: f64, unit: &str, seconds: f64, invalid: &str| {
            format!("[{mark}] {name:>20} {score:>15.6} {unit} : time {seconds:.3} seconds{invalid}")
        };
        let phase = result.phase;
        self.lines.line(&line("RESULT", phase.name(), result.score, phase.unit(), result.seconds, invalid));
        if phase == Phase::MdtestEasyWrite {
            self.lines.line(&line("      ", "timestamp", 0.0, "kIOPS", 0.0, ""));
        }
    }

    /// Prints that a run has no score, because it did not end.
    pub fn no_score(&mut self) {
        self.lines.line("[SCORE ] none: the run did not end");
    }

    /// Prints the scores of a run, and why it would not be accepted.
    pub fn score(&mut self, results: &[PhaseResult]) {
        let Score { bandwidth, metadata, total } = Score::of(results);
        let faults: Vec<String> = results
            .iter()
            .filter_map(|r| r.fault.as_ref().map(|fault| format!("{}: {fault}", r.phase.name())))
            .collect();
        let invalid = invalid(!faults.is_empty());
        self.lines.line(&format!(
            "[SCORE ] Bandwidth {bandwidth:.6} GiB/s : IOPS {metadata:.6} kiops : TOTAL {total:.6}{invalid}"
        ));
        if !faults.is_empty() {
            self.lines.line(&format!(
                "\n[INVALID]: the list accepts only runs without these; a write phase lasts {OFFICIAL_SECONDS} s or longer."
            ));
            faults.iter().for_each(|fault| self.lines.line(&format!("  {fault}")));
        }
    }
}

fn invalid(is: bool) -> &'static str {
    if is { " [INVALID]" } else { "" }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        sync::{Arc, Mutex},
    };

    use super::*;

    #[derive(Clone, Default)]
    struct Text(Arc<Mutex<Vec<u8>>>);

    impl Write for Text {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_are_those_of_the_io500() {
        let text = Text::default();
        let mut printer = Printer { lines: Lines::to(text.clone()) };
        let results = [
            PhaseResult::new(Phase::IorEasyWrite, 0.18662, 0.027, 1, None),
            PhaseResult::new(Phase::Find, 1486.435084, 0.118, 1, None),
        ];
        results.iter().for_each(|result| printer.phase(result));
        printer.score(&results);
        let printed = String::from_utf8(text.0.lock().unwrap().clone()).unwrap();
        for line in [
            "[RESULT]       ior-easy-write        0.186620 GiB/s : time 0.027 seconds [INVALID]",
            "[RESULT]                 find     1486.435084 kIOPS : time 0.118 seconds",
            "[SCORE ] Bandwidth 0.186620 GiB/s : IOPS 1486.435084 kiops : TOTAL 16.655285 [INVALID]",
        ] {
            assert!(printed.lines().any(|l| l == line), "{line}: {printed}");
        }
    }
}
