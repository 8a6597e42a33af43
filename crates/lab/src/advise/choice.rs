//! The choice: rates of all candidates, the recommended one, and the reason.

use serde::Serialize;

use crate::{
    predict::{
        costs::{Costs, Part, Prediction},
        load::{Direction, Load, Workload},
        mirrors::Mirrors,
        shape::Shape,
    },
    stats::counted,
};

/// Fewer stripes, and smaller parameters, are better if the job takes at most this part longer.
pub const TOLERANCE: f64 = 0.01;
/// A change is worth it from this gain.
pub const WORTH: f64 = 1.05;

/// A layout, and what the model says of it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Rated {
    /// The layout.
    pub shape: Shape,
    /// Predicted rates of the job's accesses.
    pub rates: Vec<(Direction, Prediction)>,
    /// Seconds of the job, with those of the resync if it is part of the job.
    pub seconds: f64,
    /// Seconds of a resync of all mirrors; `None`: there are none, or the model does not know.
    pub resync_seconds: Option<f64>,
}

impl Rated {
    /// Returns the rate of an access.
    pub fn rate(&self, direction: Direction) -> Option<f64> {
        self.rates.iter().find(|(of, _)| *of == direction).map(|(_, prediction)| prediction.rate)
    }

    /// Returns what limits the access that takes longest.
    pub fn limit(&self) -> Part {
        let slowest = self.rates.iter().min_by(|a, b| a.1.rate.total_cmp(&b.1.rate));
        slowest.map_or(Part::Shared, |(_, prediction)| prediction.limit)
    }
}

/// Where the files of a job are: what its rate depends on beside stripes.
#[derive(Clone, PartialEq, Debug)]
pub struct Site {
    /// Number of OSTs of the file system or pool.
    pub osts: u32,
    /// The costs of each of the job's accesses.
    pub costs: Vec<(Direction, Costs)>,
    /// The mirrors of each file.
    pub mirrors: Mirrors,
}

/// Rates a layout.
pub fn rate(workload: &Workload, shape: &Shape, site: &Site) -> Rated {
    let load = Load::of(workload, shape, site.osts);
    let read = load.over_mirrors(site.mirrors.read_at_once(workload), site.osts);
    let of = |direction: Direction| if direction == Direction::Read { &read } else { &load };
    let rates: Vec<_> =
        site.costs.iter().map(|(direction, costs)| (*direction, costs.predict(of(*direction)))).collect();
    let seconds: f64 = rates.iter().map(|(_, prediction)| load.mib / prediction.rate).sum();
    let resync_seconds = site.mirrors.resync_seconds(workload, shape, site.osts);
    let seconds = seconds + resync_seconds.filter(|_| site.mirrors.resync).unwrap_or(0.0);
    Rated { shape: *shape, rates, seconds, resync_seconds }
}

/// Returns the index of the recommended layout: the one with the fewest stripes of those that take
/// hardly longer than the best. The list begins with the fewest stripes.
pub fn choose(all: &[Rated]) -> Option<usize> {
    let best = all.iter().map(|rated| rated.seconds).reduce(f64::min)?;
    let good = all.iter().enumerate().filter(|(_, rated)| rated.seconds <= best * (1.0 + TOLERANCE));
    // The first of them: of several stripe sizes, the preferred one.
    good.min_by_key(|(_, rated)| rated.shape.stripes).map(|(index, _)| index)
}

/// Whether a layout is so much better than the present one that a change is worth it.
pub fn is_worth(present: &Rated, chosen: &Rated) -> bool {
    present.seconds / chosen.seconds >= WORTH
}

/// Returns the reason in a sentence. `now`: the present layout, or else the narrowest one.
pub fn reason(now: &Rated, chosen: &Rated) -> String {
    let stripes = counted(chosen.shape.stripes, "stripe");
    let limit = now.limit().name();
    if !is_worth(now, chosen) {
        let percent = (WORTH - 1.0) * 100.0;
        return format!("No layout is faster than {} by {percent:.0} %; limited by {limit}.", now.shape.name());
    }
    match now.limit() {
        Part::Objects => format!("One object is slower than its OST; {stripes} use several at once."),
        Part::Osts => {
            format!("The fullest OST limits it; {stripes} on {} share it.", counted(chosen.shape.osts, "OST"))
        }
        Part::Locks => format!("Nodes take turns with the locks of an object; {stripes} separate them."),
        Part::Tasks | Part::Nodes | Part::Inodes | Part::Jumps | Part::Shared | Part::Files => {
            format!("Limited by {limit}; {stripes} are the best for that.")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        advise::candidates::candidates,
        predict::{costs::COSTS, presets::preset},
    };

    const MI: u64 = 1 << 20;

    fn chosen(system: &str, job: Workload, osts: u32) -> Rated {
        let write = &preset(system).unwrap().write;
        let site = Site { osts, costs: vec![(Direction::Write, *write)], mirrors: Mirrors::ONE };
        let all: Vec<Rated> = candidates(&job, osts, 1)
            .iter()
            .filter(|shape| shape.stripe_size == job.transfer)
            .map(|shape| rate(&job, shape, &site))
            .collect();
        all[choose(&all).unwrap()].clone()
    }

    fn in_turn(nodes: u32, record: u64) -> Workload {
        Workload { tasks: nodes, nodes, transfer: record, block: record, size: 64 * record, files: false }
    }

    #[test]
    fn advice_for_one_ost_agrees_with_the_paper_on_overstriping() {
        let stripes = |system, record| chosen(system, in_turn(47, record), 1).shape.stripes;
        assert_eq!((stripes("flash", 16 * MI), stripes("flash", MI)), (8, 32), "section IV.B");
        assert_eq!(stripes("l300n", 16 * MI), 16, "section IV.B");
        assert!(stripes("l300n", MI) >= 32, "section IV.B");
        let alone = Workload { tasks: 8, nodes: 8, transfer: 4 * MI, block: 4096 * MI, size: 4096 * MI, files: false };
        assert!(chosen("flash", alone, 1).shape.stripes >= 2, "two for the limit of an object alone");
        for nodes in [4, 8, 16] {
            let chosen = chosen("l300n", in_turn(nodes, MI), 1);
            assert!(chosen.shape.stripes >= nodes, "as many as nodes: {nodes}, {:?}", chosen.shape);
        }
    }

    #[test]
    fn advice_agrees_with_the_striping_tips() {
        let files = Workload { files: true, block: 1024 * MI, size: 1024 * MI, ..in_turn(96, MI) };
        assert_eq!(chosen("stallo", files, 32).shape.stripes, 1, "many clients and many files: do not stripe");
        let shared = Workload { block: 1024 * MI, size: 1024 * MI, ..in_turn(96, MI) };
        assert_eq!(chosen("stallo", shared, 32).shape.osts, 32, "many clients, one file: stripe");
        let few = Workload { tasks: 2, nodes: 2, ..files };
        assert!(chosen("stallo", few, 32).shape.stripes >= 16, "few large files: stripe");
        let serial = Workload { tasks: 1, nodes: 1, files: false, ..files };
        assert_eq!(chosen("stallo", serial, 32).shape.osts, 32, "32 OSTs: 428 MiB/s");
    }

    #[test]
    fn reason_names_the_limit() {
        let job = in_turn(48, MI);
        let write = &preset("flash").unwrap().write;
        let shape = |stripes| Shape { stripes, osts: 1, stripe_size: MI, all_osts: None };
        let site = Site { osts: 1, costs: vec![(Direction::Write, *write)], mirrors: Mirrors::ONE };
        let rated = |stripes| rate(&job, &shape(stripes), &site);
        let text = reason(&rated(1), &rated(32));
        assert_eq!(text, "Nodes take turns with the locks of an object; 32 stripes separate them.");
        assert!(
            reason(&rated(48), &rated(32)).starts_with("No layout is faster than 48 stripes of 1 MiB on 1 OST by 5 %")
        );
        assert!(is_worth(&rated(1), &rated(32)) && !is_worth(&rated(48), &rated(32)));
    }

    /// One node writes a file of 1024 MiB, and eight nodes read it, on 4 OSTs of 100 MiB/s.
    fn with_mirrors(mirrors: Mirrors, stripes: u32) -> Rated {
        let ost = Costs { ost_mib: 0.01, ..Costs::from_array([1e-12; COSTS]) };
        let job = Workload { block: 128 * MI, size: 128 * MI, ..in_turn(8, MI) };
        let shape = Shape { stripes, osts: stripes, stripe_size: MI, all_osts: None };
        let costs = Direction::ALL.map(|direction| (direction, ost)).to_vec();
        rate(&job, &shape, &Site { osts: 4, costs, mirrors: Mirrors { copy: Some((ost, ost)), ..mirrors } })
    }

    #[test]
    fn writes_go_to_one_mirror_and_reads_to_those_that_are_up_to_date() {
        let rates = |mirrors: Mirrors| {
            let rated = with_mirrors(mirrors, 1);
            Direction::ALL.map(|direction| rated.rate(direction).unwrap().round())
        };
        assert_eq!(rates(Mirrors::ONE), [100.0, 100.0]);
        assert_eq!(rates(Mirrors { count: 2, ..Mirrors::ONE }), [100.0, 100.0], "the other one is stale");
        let both = rates(Mirrors { count: 2, fresh: 2, ..Mirrors::ONE });
        assert!(both[0] == 100.0 && (195.0..=200.0).contains(&both[1]), "{both:?}");
    }

    #[test]
    fn resync_counts_if_it_is_part_of_the_job() {
        let two = Mirrors { count: 2, ..Mirrors::ONE };
        let (alone, with_it) = (with_mirrors(two, 1), with_mirrors(Mirrors { resync: true, ..two }, 1));
        let seconds = alone.resync_seconds.unwrap();
        assert!((20.4..20.6).contains(&seconds), "1024 MiB read and written at 100 MiB/s: {seconds}");
        assert_eq!((alone.resync_seconds, with_it.seconds), (with_it.resync_seconds, alone.seconds + seconds));
        assert_eq!(with_mirrors(Mirrors::ONE, 1).resync_seconds, None);
        let wide = with_mirrors(two, 2).resync_seconds.unwrap();
        assert!(wide < seconds * 0.6, "two OSTs share each mirror: {wide}");
    }
}
