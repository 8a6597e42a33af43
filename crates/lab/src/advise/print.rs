//! The table of a recommendation.

use crate::{
    advise::{
        advice::Advice,
        choice::{Rated, is_worth},
        rpcs::RpcAdvice,
    },
    output::Lines,
    predict::{load::Direction, shape::Shape},
    prober::describe,
};

/// Rows of the table of measurements: the best candidates.
const ROWS_MAX: usize = 12;

/// Prints a recommendation.
pub struct Printer {
    /// Where to print.
    pub lines: Lines,
}

impl Printer {
    /// Prints an advice.
    pub fn advice(&mut self, advice: &Advice) {
        if let Some(observed) = &advice.observed {
            self.lines.line(observed);
        }
        self.lines.line(&format!("{}, on {}", describe(&advice.workload), advice.basis.name));
        if !advice.are_small {
            self.lines.line("");
            self.table(advice.now.as_ref(), advice.chosen(), &advice.all);
        }
        self.line(&advice.reason);
        if let Some(command) = &advice.command {
            let gain = advice.gain().map(|gain| format!("   # {gain:.2} × as fast as now"));
            self.line(&format!("{command}{}", gain.unwrap_or_default()));
        }
        advice.notes.iter().for_each(|note| self.line(note));
        match &advice.rpcs {
            Ok(Some(rpcs)) => self.rpcs(rpcs),
            Ok(None) => {}
            Err(why) => self.line(&format!("No advice on RPC parameters: {why}.")),
        }
    }

    /// Prints an advice on RPC parameters. One line, if the present ones suffice.
    fn rpcs(&mut self, advice: &RpcAdvice) {
        if advice.recommended.is_some() {
            self.line(&format!("{:36}{:>12}{:>14}", "RPC parameter", "present", "recommended"));
        }
        for (name, now, then) in advice.rows() {
            self.lines.line(&format!("{name:36}{now:>12}{then:>14}"));
        }
        self.line(&advice.reason);
        if let Some(command) = advice.command() {
            self.line(&format!("{command}   # {:.2} × as fast as with the present values", advice.gain));
        }
    }

    /// Prints the present layout, the recommended one, and the best candidate for each other number
    /// of stripes.
    fn table(&mut self, present: Option<&Rated>, chosen: Option<&Rated>, all: &[Rated]) {
        self.lines.line(&format!("{:13}{:44}{:>12}{:>12}  limited by", "", "layout", "write MiB/s", "read MiB/s"));
        if let Some(present) = present {
            self.row("present", present);
        }
        if let Some(chosen) = chosen {
            // As fast as the present layout, which therefore remains.
            let remains = present.is_some_and(|present| !is_worth(present, chosen));
            self.row(if remains { "fewest" } else { "recommended" }, chosen);
        }
        for rated in best_sizes(all) {
            if chosen.is_none_or(|chosen| rated.shape != chosen.shape) {
                self.row("", rated);
            }
        }
    }

    fn row(&mut self, name: &str, rated: &Rated) {
        let rate = |direction| rated.rate(direction).map_or("-".into(), |rate| format!("{rate:.0}"));
        self.lines.line(&format!(
            "{name:13}{:44}{:>12}{:>12}  {}",
            rated.shape.name(),
            rate(Direction::Write),
            rate(Direction::Read),
            rated.limit().name()
        ));
    }

    /// Prints measured seconds of candidates, the best first. `reached`: the part of the best rate
    /// that the recommended one reaches.
    pub fn measured(&mut self, measured: &[(Shape, f64)], reached: Option<f64>) {
        self.lines.line("");
        self.lines.line(&format!("{:57}{:>12}", "measured", "seconds"));
        for (shape, seconds) in measured.iter().take(ROWS_MAX) {
            self.lines.line(&format!("{:13}{:44}{seconds:>12.3}", "", shape.name()));
        }
        if let Some(reached) = reached {
            self.lines.line(&format!("the recommended layout reaches {reached:.2} of the best rate"));
        }
    }

    /// Prints an empty line, and then a line.
    pub fn line(&mut self, text: &str) {
        self.lines.line("");
        self.lines.line(text);
    }
}

/// Returns, for each number of stripes, the candidate with the best stripe size.
fn best_sizes(all: &[Rated]) -> Vec<&Rated> {
    let mut best: Vec<&Rated> = Vec::new();
    for rated in all {
        match best.last_mut().filter(|last| last.shape.stripes == rated.shape.stripes) {
            Some(last) if rated.seconds < last.seconds => *last = rated,
            Some(_) => {}
            None => best.push(rated),
        }
    }
    best
}
