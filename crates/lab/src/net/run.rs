//! Runs a measurement of the network.

use std::{io, time::Duration};

use crate::{
    net::{
        args::Test,
        clients, files,
        load::Load,
        outcome::{Outcome, Rates},
        plan::{Plan, Point},
        print::Printer,
    },
    session::Session,
    stop,
};

/// Duration of the measurement of a round trip.
const ROUND_TRIP_TIME: Duration = Duration::from_millis(100);

/// Runs a plan.
///
/// # Errors
/// Of a request, or an interruption by the user. `outcome` then has the results so far.
pub fn run(
    plan: &Plan,
    load: &Load,
    outcome: &mut Outcome,
    session: &mut Session,
    printer: &mut Printer,
) -> io::Result<()> {
    session.measure_noise();
    let mut delay = None;
    for point in plan.points() {
        if delay != Some(point.delay) {
            delay = Some(point.delay);
            let ping = Point { test: Test::Ping, size: 0, in_flight: 1, ..point };
            let done = load.run(ping, ROUND_TRIP_TIME)?;
            let round_trip = done.seconds() / done.requests.max(1) as f64 * 1e3;
            outcome.round_trips.push((point.delay, round_trip));
            session.above(|| printer.round_trip(point.delay, round_trip));
            session.measure_noise();
        }
        session.begin(&format!("{} of {} bytes, {} in flight", point.test.name(), point.size, point.in_flight));
        let mut rates = Rates { point, requests: Vec::new() };
        for _ in 0..plan.repetitions {
            stop::check()?;
            rates.add(load.run(point, plan.duration())?);
        }
        session.end(|| printer.point(&rates));
        outcome.rates.push(rates);
    }
    session.measure_noise();
    if let Some(dir) = &plan.files {
        session.part("files");
        outcome.files = files::measure(plan, dir, session)?;
        session.above(|| printer.files(&outcome.files));
        session.measure_noise();
        session.part("clients");
        outcome.clients = clients::measure(plan, dir, session)?;
        session.above(|| printer.clients(&outcome.clients));
        session.measure_noise();
    }
    Ok(())
}
