//! Costs of operations of several clients at once, in round trips: each writes 8 bytes to a file of
//! its own, in one directory. These are the measurements of section 6 of the paper.
//!
//! Each client is a mount of its own, whose process delays what it sends. All begin each operation
//! at the same time.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Barrier,
    thread,
    time::Instant,
};

use rustix::fs::OFlags;
use serde::Serialize;

use crate::{
    net::{
        files::{DELAY, slope},
        plan::Plan,
    },
    output::named,
    own_mounts::{OwnMounts, below},
    program::Sheen,
    session::Session,
    stop,
};

/// The operations, in their order.
pub const OPERATIONS: [&str; 3] = ["open", "write", "close"];
/// Data of a file: the smallest transfer of IOR.
const DATA: [u8; 8] = [0x5a; 8];

/// Costs of the operations of some clients.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ClientCosts {
    /// Number of clients.
    pub clients: u64,
    /// Round trips of each of [`OPERATIONS`]: the shortest of all clients and repetitions.
    pub least: [f64; 3],
    /// Their means.
    pub mean: [f64; 3],
}

/// Milliseconds of the operations of each client and repetition.
type Times = Vec<[f64; 3]>;

impl ClientCosts {
    fn new(clients: u64, delays: &[f64], times: &[Times]) -> ClientCosts {
        let cost = |of: fn(&[f64]) -> f64| {
            [0, 1, 2].map(|operation| {
                let all = |times: &Times| of(&times.iter().map(|times| times[operation]).collect::<Vec<_>>());
                slope(delays, &times.iter().map(all).collect::<Vec<_>>())
            })
        };
        let least = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
        let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
        ClientCosts { clients, least: cost(least), mean: cost(mean) }
    }
}

/// Returns the part of a round trip by which each further client delays the opens of all, as the
/// paper computes it: the slope of the shortest open.
pub fn of_further_client(all: &[ClientCosts]) -> Option<f64> {
    let clients: Vec<f64> = all.iter().map(|costs| costs.clients as f64).collect();
    let opens: Vec<f64> = all.iter().map(|costs| costs.least[0]).collect();
    (all.len() > 1).then(|| slope(&clients, &opens))
}

/// Measures the costs below `dir`. Removes its files and mounts, also after an error.
///
/// # Errors
/// Of an operation, or an interruption by the user.
pub fn measure(plan: &Plan, dir: &Path, session: &Session) -> io::Result<Vec<ClientCosts>> {
    let most = plan.clients.iter().copied().max().unwrap_or(1);
    session.begin("mounts for clients");
    let mounts = OwnMounts::new(dir, most as u32, "wan")?;
    let work = dir.join(format!("wan.clients.{}", std::process::id()));
    fs::create_dir(&work).map_err(|e| named("create", &work, &e))?;
    let measured = in_directory(plan, &work, &mounts, session);
    // The removal waits for these mounts.
    let undelayed = mounts.set_param(DELAY, 0);
    let removed = fs::remove_dir_all(&work).map_err(|e| named("remove", &work, &e));
    measured.and_then(|costs| undelayed.and(removed).map(|()| costs))
}

fn in_directory(plan: &Plan, work: &Path, mounts: &OwnMounts, session: &Session) -> io::Result<Vec<ClientCosts>> {
    Sheen::here()?.setstripe(work, &["-c", "1"])?;
    let below = below(work)?;
    let places: Vec<PathBuf> = mounts.mounts.iter().map(|mount| mount.join(&below)).collect();
    // The first files of a mount cost it more: connections, FIDs, grants.
    run(&places, "first")?;
    let mut all = Vec::new();
    for &clients in &plan.clients {
        session.begin(&format!("{clients} clients"));
        let mut times = Vec::new();
        for delay in &plan.delays {
            mounts.set_param(DELAY, (delay * 1e3).round())?;
            let mut of_delay = Vec::new();
            for repetition in 0..plan.repetitions {
                stop::check()?;
                let name = format!("{clients}-{delay}-{repetition}");
                of_delay.extend(run(&places[..clients as usize], &name)?);
            }
            times.push(of_delay);
        }
        all.push(ClientCosts::new(clients, &plan.delays, &times));
        session.end(|| {});
    }
    Ok(all)
}

/// Has a client in each directory write a file.
fn run(places: &[PathBuf], name: &str) -> io::Result<Times> {
    let barrier = &Barrier::new(places.len());
    thread::scope(|scope| {
        let client = |(number, place): (usize, &PathBuf)| {
            let path = place.join(format!("{name}-{number}"));
            scope.spawn(move || operations(&path, barrier).map_err(|e| named("measure", &path, &e)))
        };
        let clients: Vec<_> = places.iter().enumerate().map(client).collect();
        let ended = |client: thread::ScopedJoinHandle<'_, io::Result<[f64; 3]>>| {
            client.join().unwrap_or_else(|_| Err(io::Error::other("a client has panicked")))
        };
        clients.into_iter().map(ended).collect()
    })
}

/// Executes the operations of a client. Returns their times in milliseconds. A client that fails
/// meets the others at the barriers all the same.
fn operations(path: &Path, barrier: &Barrier) -> io::Result<[f64; 3]> {
    let since = |start: Instant| start.elapsed().as_secs_f64() * 1e3;
    let direct = OFlags::DIRECT.bits().cast_signed();
    barrier.wait();
    let start = Instant::now();
    let opened = OpenOptions::new().write(true).create_new(true).custom_flags(direct).open(path);
    let open = since(start);
    barrier.wait();
    let start = Instant::now();
    let written = opened.and_then(|mut file: File| file.write_all(&DATA).map(|()| file));
    let write = since(start);
    barrier.wait();
    let start = Instant::now();
    drop(written?);
    Ok([open, write, since(start)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_slopes_of_shortest_and_mean_times() {
        let delays = [1.0, 2.0, 4.0];
        let times = |trips: [f64; 2]| delays.map(|delay| trips.map(|trips| [0.3 + trips * delay, delay, 0.0]).to_vec());
        let costs = ClientCosts::new(2, &delays, &times([1.0, 2.0]));
        let is = |costs: [f64; 3], expected: [f64; 3]| costs.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9);
        assert!(is(costs.least, [1.0, 1.0, 0.0]) && is(costs.mean, [1.5, 1.0, 0.0]), "{costs:?}");
        let four = ClientCosts::new(4, &delays, &times([1.2, 2.0]));
        assert!((of_further_client(&[costs.clone(), four]).unwrap() - 0.1).abs() < 1e-9);
        assert_eq!(of_further_client(&[costs]), None);
    }
}
