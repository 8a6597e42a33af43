//! The table of a measurement of the network.

use crate::{
    net::{
        clients::{self, ClientCosts},
        files::{Costs, OPERATIONS},
        model::{Model, Regime},
        node::Node,
        outcome::Rates,
    },
    output::Lines,
    size::human,
};

/// Prints a measurement.
pub struct Printer {
    /// Where to print.
    pub lines: Lines,
}

impl Printer {
    /// Prints what is known before the run.
    pub fn header(&mut self, from: Option<&Node>, to: &Node) {
        let from = from.map_or_else(String::new, |from| format!("from {from} "));
        self.lines.line(&format!("requests {from}to {to}, one connection"));
        self.lines.line("test         size  in flight         RPC/s       MiB/s [     min,      max]   ms/RPC");
    }

    /// Prints a measured round trip, in milliseconds.
    pub fn round_trip(&mut self, added: f64, measured: f64) {
        self.lines.line(&format!("round trip {measured:.3} ms ({added} ms added)"));
    }

    /// Prints the results of a point.
    pub fn point(&mut self, rates: &Rates) {
        let [middle, low, high] = rates.bandwidth();
        let point = rates.point;
        self.lines.line(&format!(
            "{:6} {:>10} {:>10} {:>13.0} {middle:>11.2} [{low:>8.2}, {high:>8.2}] {:>8.3}",
            point.test.name(),
            human(point.size),
            point.in_flight,
            rates.rate(),
            rates.milliseconds()
        ));
    }

    /// Prints the costs of operations on files.
    pub fn files(&mut self, all: &[Costs]) {
        let names: String = OPERATIONS.iter().map(|name| format!("{name:>8}")).collect();
        self.lines.line(&format!("\nround trips of operations on files\nstripes {names}   new file   Lustre"));
        for costs in all {
            // Adding 0 turns -0.0 into 0.0.
            let numbers: String =
                costs.round_trips.iter().map(|n| format!("{:>8.1}", (n * 10.0).round() / 10.0 + 0.0)).collect();
            self.lines.line(&format!(
                "{:7} {numbers} {:>10.1} {:>8}",
                costs.stripes,
                costs.of_new_file(),
                costs.of_lustre()
            ));
        }
    }

    /// Prints the costs of operations of several clients.
    pub fn clients(&mut self, all: &[ClientCosts]) {
        let names: String = clients::OPERATIONS.iter().map(|name| format!("{name:>16}")).collect();
        self.lines.line(&format!(
            "\nround trips of clients that write 8 bytes to a file each in one directory: least and mean\nclients{names}"
        ));
        for costs in all {
            let pair = |(least, mean): (&f64, &f64)| format!("{least:>10.1}{mean:>6.1}");
            let numbers: String = costs.least.iter().zip(&costs.mean).map(pair).collect();
            self.lines.line(&format!("{:7}{numbers}", costs.clients));
        }
        if let Some(part) = clients::of_further_client(all) {
            let percent = part * 100.0;
            self.lines.line(&format!("each further client adds {percent:.1} % of a round trip to the shortest open"));
        }
    }

    /// Prints a model with its errors.
    pub fn model(&mut self, name: &str, model: &Model) {
        let count = |regime| model.points.iter().filter(|p| p.regime == regime).count();
        self.lines.line(&format!(
            "\nmodel of {name}: k = {:.2}, b0 = {:.2} MiB/s ({}, {} in flight, {} ms added), peak {:.0} MiB/s",
            model.k,
            model.b0,
            human(model.base.size),
            model.base.in_flight,
            model.base.delay,
            model.peak
        ));
        let regimes = [Regime::Unthrottled, Regime::Throttled, Regime::Saturated];
        let regimes: Vec<String> = regimes.into_iter().map(|r| format!("{} {}", count(r), r.name())).collect();
        let errors = model.errors().map_or_else(
            || "no point is unthrottled: raise --delays".to_owned(),
            |(middle, most)| {
                format!("error of the unthrottled: median {:.1} %, at most {:.1} %", middle * 100.0, most * 100.0)
            },
        );
        self.lines.line(&format!("points: {}; {errors}", regimes.join(", ")));
    }
}
