//! The lists of the IO500 in "Empowering Lustre Performance Evolution through IO500": ten clients,
//! and the ES400NV, ES400NVX and ES400NVX2 of DDN.
//!
//! * Scores: the formula of `sheen lab io500` from the twelve phases of each list.
//! * IOR: four costs of the preset ([`crate::predict::presets`]) are chosen by the four phases of
//!   the list ISC22. They predict both later lists.
//! * The costs of IOR Hard also predict the earlier lists, of other systems. The rate of their OSTs
//!   is from IOR Easy of the same list.
//! * Readahead: the text states how many pages were read ahead by Lustre 2.13 and 2.14. All lists
//!   but the first are assumed to have that of 2.14. A record that was not read ahead costs the
//!   same in all of them.
//!
//! There is no model of mdtest and find.

use crate::{
    io500::{
        outcome::{PhaseResult, Score},
        phase::Phase::{self, *},
    },
    predict::{
        costs::Costs,
        load::{Load, Workload},
        presets::{Preset, preset},
        shape::Shape,
    },
    reproduce::point::{
        Basis::{Calibrated, Formula, Predicted},
        MORE, Point, Unit,
    },
};

/// Name of the system.
pub const SYSTEM: &str = "es400nvx2";

/// Phases in the order of the table.
const PHASES: [Phase; 12] = [
    IorEasyWrite,
    IorEasyRead,
    IorHardWrite,
    IorHardRead,
    Find,
    MdtestEasyWrite,
    MdtestEasyStat,
    MdtestEasyDelete,
    MdtestHardWrite,
    MdtestHardRead,
    MdtestHardStat,
    MdtestHardDelete,
];

/// A column of the table.
#[derive(Clone, Copy, Debug)]
struct List {
    name: &'static str,
    /// Results of [`PHASES`].
    results: [f64; 12],
    /// Bandwidth, IOPS and score.
    scores: [f64; 3],
    system: Hardware,
    /// Whether reads with gaps were read ahead (Lustre 2.14).
    reads_ahead: bool,
}

/// The system of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hardware {
    /// An earlier one.
    Earlier,
    /// The ES400NVX2, in the list by which the costs are chosen.
    Calibrated,
    /// The ES400NVX2, in a later list.
    Later,
}

const LISTS: [List; 6] = [
    List {
        name: "Pre-SC19",
        results: [25.88, 39.94, 2.78, 8.99, 1735.41, 143.88, 455.03, 88.52, 32.33, 44.92, 20.41, 16.35],
        scores: [12.68, 91.41, 34.05],
        system: Hardware::Earlier,
        reads_ahead: false,
    },
    List {
        name: "SC19",
        results: [28.62, 41.72, 2.96, 42.19, 810.0, 152.84, 451.97, 132.76, 79.65, 172.59, 449.93, 75.15],
        scores: [19.65, 207.62, 63.87],
        system: Hardware::Earlier,
        reads_ahead: true,
    },
    List {
        name: "ISC20",
        results: [37.56, 45.95, 2.77, 40.81, 1698.0, 157.22, 453.51, 135.09, 90.47, 169.0, 446.75, 76.94],
        scores: [21.02, 232.69, 69.93],
        system: Hardware::Earlier,
        reads_ahead: true,
    },
    List {
        name: "ISC22",
        results: [55.95, 83.86, 5.02, 39.73, 6248.55, 270.04, 740.01, 223.61, 119.41, 194.33, 514.36, 101.98],
        scores: [31.10, 368.48, 107.05],
        system: Hardware::Calibrated,
        reads_ahead: true,
    },
    List {
        name: "SC22",
        results: [58.07, 77.56, 5.27, 49.36, 12_628.78, 312.9, 1278.5, 272.64, 157.4, 238.82, 1214.03, 122.44],
        scores: [32.90, 544.23, 133.81],
        system: Hardware::Later,
        reads_ahead: true,
    },
    List {
        name: "ISC23",
        results: [57.88, 79.08, 5.38, 50.77, 13_229.11, 344.7, 1276.31, 311.16, 199.36, 391.09, 1105.33, 112.58],
        scores: [33.43, 603.39, 142.03],
        system: Hardware::Later,
        reads_ahead: true,
    },
];

/// Pages that readahead provided and those that it did not, in IOR Hard Read: Lustre 2.13 and 2.14.
const PAGES_2_13: [f64; 2] = [3_340_631.0, 32_901_120.0];
const PAGES_2_14: [f64; 2] = [33_616_605.0, 4_444_696.0];

const CLIENTS: u32 = 10;
const TASKS: u32 = 160;
const OSTS: u32 = 8;
/// Stripes of the file of IOR Hard. More change nothing.
const STRIPES: u32 = 16;
/// Bytes of a record of IOR Hard.
const RECORD: u64 = 47_008;
/// Records of a task.
const RECORDS: u64 = 1024;
const MI: u64 = 1 << 20;
/// MiB of a GiB.
const GIB: f64 = 1024.0;

const OTHER_LOCKS: &str = "a lock changes more slowly with earlier servers and releases";
const OVERLAP: &str = "other tasks use the OSTs while one waits for a record that was not read ahead";
const NEWER: &str = "software of later releases, with which Easy Read became no faster";

impl List {
    fn result(&self, phase: Phase) -> Option<f64> {
        PHASES.iter().position(|of| *of == phase).and_then(|n| self.results.get(n).copied())
    }

    /// Returns the costs of a phase: those of the system, with OSTs and readahead of this list.
    fn costs(&self, phase: Phase, system: &Preset) -> Option<Costs> {
        let (costs, easy) = if phase.writes() { (system.write, IorEasyWrite) } else { (system.read, IorEasyRead) };
        let ost_mib = match self.system {
            Hardware::Earlier => ost(self.result(easy)?, &costs),
            Hardware::Calibrated | Hardware::Later => costs.ost_mib,
        };
        let pages = if self.reads_ahead { PAGES_2_14 } else { PAGES_2_13 };
        Some(Costs { ost_mib, jump: costs.jump * missed(pages) / missed(PAGES_2_14), ..costs })
    }

    fn point(&self, phase: Phase, what: &'static str, system: &Preset) -> Option<Point> {
        let easy = matches!(phase, IorEasyWrite | IorEasyRead);
        let predicted = self.costs(phase, system)?.predict(&load(easy)).rate / GIB;
        let lacks = match (self.system, phase) {
            (Hardware::Earlier, IorHardWrite) => OTHER_LOCKS,
            (Hardware::Earlier, IorHardRead) if self.reads_ahead => OVERLAP,
            (Hardware::Later, IorHardRead) => NEWER,
            _ => "",
        };
        let basis = if self.system == Hardware::Calibrated { Calibrated } else { Predicted };
        let stated = [self.result(phase)?; 2];
        Some(Point { system: SYSTEM, place: self.name, what, unit: Unit::Gib, stated, predicted, basis, lacks })
    }

    /// Returns the scores. The formula is that of `sheen lab io500`.
    fn score_points(&self) -> [Point; 3] {
        let results = PHASES.iter().zip(self.results);
        let results: Vec<PhaseResult> =
            results.map(|(phase, result)| PhaseResult::new(*phase, result, 300.0, 300, None)).collect();
        let Score { bandwidth, metadata, total } = Score::of(&results);
        let point = |what, unit, stated, predicted| Point {
            system: SYSTEM,
            place: self.name,
            what,
            unit,
            stated: [stated; 2],
            predicted,
            basis: Formula,
            lacks: "",
        };
        let [of_bandwidth, of_metadata, of_all] = self.scores;
        [
            point("bandwidth of the twelve phases", Unit::Gib, of_bandwidth, bandwidth),
            point("IOPS of the twelve phases", Unit::Kiops, of_metadata, metadata),
            point("score of the twelve phases", Unit::Number, of_all, total),
        ]
    }
}

/// Returns the part of pages that were not read ahead.
fn missed([hits, misses]: [f64; 2]) -> f64 {
    misses / (hits + misses)
}

/// Returns the seconds of an OST for a MiB, with which IOR Easy reaches a rate in GiB/s over the
/// links of the clients.
fn ost(rate: f64, costs: &Costs) -> f64 {
    let links = costs.node_mib / f64::from(CLIENTS);
    let all = 1.0 / (rate * GIB);
    // Inverse of the sum of times in `Costs::predict`.
    (all * all - links * links).max(0.0).sqrt() * f64::from(OSTS)
}

/// Returns the load of IOR Easy or Hard.
fn load(easy: bool) -> Load {
    let shape = |stripes: u32| Shape { stripes, osts: stripes.min(OSTS), stripe_size: MI, all_osts: None };
    let workload = |block, size| Workload { tasks: TASKS, nodes: CLIENTS, transfer: block, block, size, files: easy };
    match easy {
        true => Load::of(&workload(MI, RECORDS * MI), &shape(1), OSTS),
        false => Load::of(&workload(RECORD, RECORDS * RECORD), &shape(STRIPES), OSTS),
    }
}

/// Returns the gain by overstriping for 32 clients that write records of 1 MiB in turn, with 8 OSTs
/// as that of the L300N.
fn overstriping() -> Option<f64> {
    let costs = &preset("l300n")?.write;
    let clients = 32;
    let workload =
        Workload { tasks: clients, nodes: clients, transfer: MI, block: MI, size: RECORDS * MI, files: false };
    let rate = |stripes: u32| {
        let shape = Shape { stripes, osts: OSTS, stripe_size: MI, all_osts: None };
        costs.predict(&Load::of(&workload, &shape, OSTS)).rate
    };
    let best = [2, 4, 8].map(|of_ost| rate(of_ost * OSTS)).into_iter().fold(0.0, f64::max);
    Some(best / rate(OSTS))
}

/// Returns the stated values.
pub fn points() -> Vec<Point> {
    let mut points: Vec<Point> = LISTS.iter().flat_map(List::score_points).collect();
    let ratio = |place, what, stated, predicted, basis| Point {
        system: SYSTEM,
        place,
        what,
        unit: Unit::Ratio,
        stated,
        predicted,
        basis,
        lacks: "",
    };
    let read_ahead = |pages| 1.0 - missed(pages);
    points.push(ratio("Readahead", "pages read ahead, Lustre 2.13", [0.09; 2], read_ahead(PAGES_2_13), Formula));
    points.push(ratio("Readahead", "pages read ahead, Lustre 2.14", [0.88; 2], read_ahead(PAGES_2_14), Formula));
    points.extend(
        overstriping().map(|gain| ratio("Stripes", "shared file, gain by overstriping", MORE, gain, Predicted)),
    );
    let Some(system) = preset(SYSTEM) else { return points };
    for list in &LISTS {
        let easy = [(IorEasyWrite, "IOR Easy Write"), (IorEasyRead, "IOR Easy Read")];
        let hard = [(IorHardWrite, "IOR Hard Write"), (IorHardRead, "IOR Hard Read")];
        let easy = easy.into_iter().filter(|_| list.system != Hardware::Earlier);
        points.extend(easy.chain(hard).filter_map(|(phase, what)| list.point(phase, what, system)));
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_the_gains_that_the_text_states() {
        let stated = [2.2, 2.0, 2.0, 5.6, 7.6, 2.3, 2.8, 3.5, 6.1, 8.7, 54.1, 6.8, 2.6, 6.6, 4.1];
        let all = |list: &List| list.results.into_iter().chain(list.scores).collect::<Vec<f64>>();
        let (first, last) = (all(&LISTS[0]), all(&LISTS[5]));
        assert_eq!(first.len(), stated.len());
        for ((first, last), stated) in first.iter().zip(&last).zip(stated) {
            assert!((last / first - stated).abs() < 0.1, "{last} {first} {stated}");
        }
    }

    #[test]
    fn costs_of_one_list_predict_the_others() {
        let points = points();
        let of = |place, what| {
            let point = points.iter().find(|point| (point.place, point.what) == (place, what)).unwrap();
            (point.basis, point.error().unwrap())
        };
        for what in ["IOR Easy Write", "IOR Easy Read", "IOR Hard Write", "IOR Hard Read"] {
            let (basis, error) = of("ISC22", what);
            assert!(basis == Calibrated && error < 0.01, "{what}: {error}");
            let (basis, error) = of("SC22", what);
            assert!(basis == Predicted && error < 0.2, "{what}: {error}");
        }
        let (basis, error) = of("Pre-SC19", "IOR Hard Read");
        assert!(basis == Predicted && error < 0.15, "9 % of pages read ahead instead of 88 %: {error}");
    }

    #[test]
    fn more_stripes_than_clients_change_nothing_for_small_records() {
        let hard = load(false);
        assert_eq!((hard.at_once, hard.nodes, hard.ost_part), (10.0, 10.0, 0.125));
    }
}
