//! The link from Dresden to Freiberg, in "HPC File Systems in Wide Area Networks". Each server has
//! 10 Gb/s, the link 100 Gb/s over 60, 200 or 400 km of fibre.
//!
//! * The network is the model of `sheen lab wan` ([`Law`]), with the paper's `k` and base.
//! * Costs of operations are counted in round trips, as `sheen lab wan --files` counts them.
//!
//! The paper draws its measurements, and its text states few of them. So `k`, which the paper
//! fitted, cannot be fitted again without single points. But it can be compared with the statement
//! that led to it. One cost is calibrated: the rate of an OST. Nothing else is.

use crate::{
    chart::{Chart, Panel, Scale, Values},
    net::{
        args::Test,
        files::of_lustre,
        model::{Law, Model, in_flight},
        outcome::{MIB, Outcome, Rates},
        plan::Point as Request,
    },
    reproduce::point::{
        Basis::{self, Calibrated, Formula, Predicted},
        LESS, MORE, Point, Unit,
    },
    size::with_kib,
    table::Table,
};

/// Name of the system.
pub const SYSTEM: &str = "dresden";

/// Round trips in milliseconds.
const KM_60: f64 = 0.72;
const KM_200: f64 = 2.17;
const KM_400: f64 = 4.14;
const DISTANCES: [f64; 3] = [KM_60, KM_200, KM_400];
/// Sizes of RPCs: a page to 1 MiB.
const SIZES: [u64; 9] = [1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16, 1 << 17, 1 << 18, 1 << 19, LARGEST];
const LARGEST: u64 = 1 << 20;
/// Numbers of RPCs in flight, as `sheen lab wan` has them.
const COUNTS: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];
/// RPCs in flight of a mount: Lustre's default.
const OF_MOUNT: u64 = 8;
/// Part of its effect by equation 3 that a larger RPC has, by the text.
const HALF: f64 = 0.5;

/// MiB/s of the card of a server, and of the link.
const CARD: f64 = 10e9 / 8.0 / MIB;
const LINK: f64 = 100e9 / 8.0 / MIB;
/// Streams in parallel, each to an OST.
const STREAMS: f64 = 16.0;
/// MiB/s of an OST. A faster one would slow the streams down, which the text denies.
const OST: f64 = LINK / STREAMS;

const BASE: Request = request(SIZES[0], 1, KM_200);
/// The model of the paper. It states no `b0`: one RPC in a round trip is an assumption.
const LAW: Law =
    Law { k: 2.27, base: BASE, round_trip: KM_200, b0: 4096.0 / (KM_200 / 1e3) / MIB, peak: CARD, most: f64::INFINITY };

/// Parts of a round trip by which each further process delays an open, over 60 and over 200 km.
const FURTHER_60: f64 = 0.08;
const FURTHER_200: f64 = 0.06;
/// Requests of an open, and of a close.
const REQUESTS: f64 = 1.0;

const FIXED_PART: &str = "a part of the wait is a time of the MDS, which does not grow with the distance";
const ONLY_LARGER: &str = "k is about larger RPCs; equation 4 also divides by it where only number or distance change";

const fn request(size: u64, in_flight: u64, delay: f64) -> Request {
    Request { test: Test::Write, delay, size, in_flight }
}

/// Returns the bandwidth in MiB/s by equation 4.
fn bandwidth(request: Request) -> f64 {
    LAW.predict(request, request.delay)
}

/// Returns the rate in MiB/s of a client that writes to an OST beside other streams.
fn stream(round_trip: f64, streams: f64) -> f64 {
    bandwidth(request(LARGEST, OF_MOUNT, round_trip)).min(OST).min(LINK / streams)
}

/// Returns the milliseconds of a transfer by one client, with some round trips for its metadata.
fn transfer(mib: f64, trips: f64, round_trip: f64) -> f64 {
    trips * round_trip + mib / stream(round_trip, 1.0) * 1e3
}

/// Returns the part of its performance that the first write of a file loses from 200 to 400 km.
fn loss(mib: f64) -> f64 {
    let time = |round_trip| transfer(mib, of_lustre(1) as f64, round_trip);
    1.0 - time(KM_200) / time(KM_400)
}

/// Returns `k` by the fit of `sheen lab wan`, of a network in which larger RPCs have half the
/// effect.
fn fitted_k() -> Option<f64> {
    let mut outcome = Outcome { round_trips: DISTANCES.map(|trip| (trip, trip)).to_vec(), ..Outcome::default() };
    for round_trip in DISTANCES {
        for size in SIZES {
            for in_flight in COUNTS {
                let point = request(size, in_flight, round_trip);
                let effect = if size == BASE.size { 1.0 } else { HALF };
                let bandwidth = (effect * LAW.ideal(point, round_trip)).min(LAW.peak);
                outcome.rates.push(Rates { point, requests: vec![bandwidth * MIB / size as f64] });
            }
        }
    }
    Model::fit(&outcome, Test::Write).map(|model| model.k)
}

/// Returns the time of an open in round trips, if this many processes open at the same time.
fn open(processes: f64, further: f64) -> f64 {
    REQUESTS + further * (processes - 1.0)
}

fn ratio(place: &'static str, what: &'static str, stated: f64, predicted: f64, basis: Basis) -> Point {
    Point { system: SYSTEM, place, what, unit: Unit::Ratio, stated: [stated; 2], predicted, basis, lacks: "" }
}

fn trips(place: &'static str, what: &'static str, stated: f64, predicted: f64, basis: Basis) -> Point {
    Point { unit: Unit::Trips, ..ratio(place, what, stated, predicted, basis) }
}

/// Returns the stated values.
pub fn points() -> Vec<Point> {
    [network(), files(), clients()].concat()
}

/// Section 4: size, number in flight, distance.
fn network() -> Vec<Point> {
    let of = |above: Request, below: Request| bandwidth(above) / bandwidth(below);
    let at = |size, in_flight| request(size, in_flight, KM_200);
    let over_400 = |size, in_flight| request(size, in_flight, KM_400);
    let of_base = |request: Request| bandwidth(request) / LAW.b0;
    let page = BASE.size;
    let middle = 128 << 10;
    let by_fit = fitted_k().map(|k| Point {
        unit: Unit::Number,
        ..ratio("4.4", "k, if larger RPCs have half the effect", LAW.k, k, Predicted)
    });
    let by_law = [
        ratio("Fig. 2", "unthrottled: twice the data in flight", 2.0, of(at(page, 4), at(page, 2)), Formula),
        ratio("Fig. 2", "saturated: twice the data in flight", 1.0, of(at(LARGEST, 64), at(LARGEST, 32)), Formula),
        Point {
            lacks: ONLY_LARGER,
            ..ratio("4.4", "4 KiB: two in flight, of one", 2.0, of_base(at(page, 2)), Predicted)
        },
        Point {
            lacks: ONLY_LARGER,
            ..ratio("4.4", "4 KiB: over 400 km, of 200 km", 0.524, of_base(over_400(page, 1)), Predicted)
        },
        ratio("Fig. 3", "128 KiB: twice the number in flight", 2.0, of(at(middle, 2), at(middle, 1)), Formula),
        ratio("Fig. 3", "128 KiB: over 400 km, of 200 km", 0.524, of(over_400(middle, 2), at(middle, 2)), Formula),
        ratio("Fig. 4", "two in flight: twice the size", 2.0, of(at(2 * middle, 2), at(middle, 2)), Formula),
    ];
    by_law.into_iter().chain(by_fit).collect()
}

/// Section 5: one client.
fn files() -> Vec<Point> {
    let stripes = |stripes| of_lustre(stripes) as f64;
    let cached = stream(KM_400, 1.0) / stream(KM_200, 1.0);
    vec![
        Point {
            stated: LESS,
            ..ratio("Fig. 5", "first write: loss of 16 MiB, of 4 KiB's", 0.0, loss(16.0) / loss(1.0 / 256.0), Predicted)
        },
        Point {
            lacks: "the first stripe costs no round trip of its own",
            ..trips("Fig. 6", "new file of one stripe", 1.0, stripes(1), Predicted)
        },
        trips("Fig. 6", "each further stripe", 1.0, stripes(2) - stripes(1), Formula),
        trips("5.2", "new file of 4 stripes", 5.0, stripes(4), Formula),
        trips("5.2", "new file of 16 stripes", 17.0, stripes(16), Formula),
        ratio("Fig. 7", "cached, 16 MiB: 400 km, of 200 km", 1.0, cached, Predicted),
    ]
}

/// Section 6: up to 16 clients.
fn clients() -> Vec<Point> {
    let large = |round_trip| transfer(2048.0, REQUESTS, round_trip);
    let mean = open(STREAMS, FURTHER_200) / open(1.0, FURTHER_200);
    // The parts are about the least time, and the mean is at least as much. Of the two stated
    // parts, each is predicted from the other one.
    vec![
        trips("Fig. 10", "open over 400 km, least", 1.0, REQUESTS, Predicted),
        Point {
            lacks: FIXED_PART,
            ..trips("Fig. 10", "further process over 60 km, by 200 km", FURTHER_60, FURTHER_200, Predicted)
        },
        Point {
            lacks: FIXED_PART,
            ..trips("Fig. 10", "further process over 200 km, by 60 km", FURTHER_200, FURTHER_60, Predicted)
        },
        Point { stated: MORE, ..ratio("Fig. 11", "mean open of 16 processes, of one", 1.0, mean, Predicted) },
        trips("Fig. 12", "close, least", 1.0, REQUESTS, Predicted),
        ratio(
            "Fig. 13",
            "2 GiB: rate of each of 16, of one",
            1.0,
            stream(KM_60, STREAMS) / stream(KM_60, 1.0),
            Calibrated,
        ),
        ratio("Fig. 13", "2 GiB: time over 400 km, of 60 km", 1.0, large(KM_400) / large(KM_60), Predicted),
    ]
}

/// Draws Fig. 3 and 4 by the model.
pub fn charts() -> [Chart; 2] {
    let panel =
        |curves| Panel { title: "MiB/s, by equation 4".into(), scale: Scale::Log, values: Values::Curves(curves) };
    let chart = |title: &str, axis: &str, categories, curves| Chart {
        title: title.into(),
        axis: axis.into(),
        categories,
        series: DISTANCES.map(|trip| format!("{trip} ms")).to_vec(),
        panels: vec![panel(curves)],
    };
    let number = DISTANCES.map(|trip| COUNTS.map(|count| Some(bandwidth(request(128 << 10, count, trip)))).to_vec());
    let size = DISTANCES.map(|trip| SIZES.map(|size| Some(bandwidth(request(size, 2, trip)))).to_vec());
    [
        chart(
            "Fig. 3, Dresden to Freiberg: the model, RPCs of 128 KiB",
            "RPCs in flight",
            COUNTS.map(|count| count.to_string()).to_vec(),
            number.to_vec(),
        ),
        chart(
            "Fig. 4, Dresden to Freiberg: the model, two RPCs in flight",
            "size of an RPC",
            SIZES.map(with_kib).to_vec(),
            size.to_vec(),
        ),
    ]
}

/// Returns the points of Fig. 3 and 4 by the model: data in flight, and limits.
pub fn table() -> Table {
    let row = |request: Request| {
        let (trip, rate) = (request.delay, bandwidth(request));
        vec![
            trip.to_string(),
            with_kib(request.size),
            request.in_flight.to_string(),
            with_kib(in_flight(request) as u64),
            format!("{:.0}", in_flight(request) / LAW.capacity(trip) * 100.0),
            format!("{rate:.1}"),
            LAW.regime(request, trip, rate).name().to_owned(),
        ]
    };
    let of_distance = |trip| {
        let counts = COUNTS.map(|count| request(128 << 10, count, trip));
        let sizes = SIZES.map(|size| request(size, 2, trip));
        counts.into_iter().chain(sizes)
    };
    let columns = ["round trip, ms", "size", "in flight", "data in flight", "of the network's, %", "MiB/s", "regime"];
    let title = "Fig. 3 and 4, Dresden to Freiberg, by the model";
    Table::new(title, columns).with(DISTANCES.into_iter().flat_map(of_distance).map(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::model::Regime::{Saturated, Throttled, Unthrottled};

    #[test]
    fn regimes_follow_each_other_with_more_data_in_flight() {
        let regime = |size, in_flight| {
            let request = request(size, in_flight, KM_200);
            LAW.regime(request, KM_200, bandwidth(request))
        };
        let all = [(1 << 12, 1), (1 << 17, 1), (1 << 17, 8), (1 << 20, 4), (1 << 20, 8)];
        let expected = [Unthrottled, Unthrottled, Throttled, Throttled, Saturated];
        assert_eq!(all.map(|(size, in_flight)| regime(size, in_flight)), expected);
        assert!(LAW.capacity(KM_400) > LAW.capacity(KM_60));
    }

    #[test]
    fn fit_finds_the_half_effect_of_larger_requests() {
        let k = fitted_k().unwrap();
        assert!((k - 1.0 / HALF).abs() < 1e-6, "{k}");
    }

    #[test]
    fn rate_of_an_ost_from_16_streams_predicts_that_the_distance_does_not_matter() {
        assert!(bandwidth(request(LARGEST, OF_MOUNT, KM_400)) > OST, "without it, 400 km would be slower");
        assert_eq!(stream(KM_60, STREAMS), stream(KM_400, 1.0));
        assert!(loss(16.0) < loss(1.0));
    }

    #[test]
    fn figures_are_drawn_with_all_regimes() {
        for chart in charts() {
            assert!(chart.svg().unwrap().contains("Dresden to Freiberg"));
        }
        let table = table().markdown();
        let named = [" unthrottled", " throttled", " saturated"].map(|name| table.contains(name));
        assert_eq!(named, [true; 3], "{table}");
    }
}
