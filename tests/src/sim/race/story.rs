//! The run of a seed, from the start of the hosts to the check of the record.

use std::{sync::Arc, time::Duration};

use sheen_rt::{JoinHandle, sim::World};

use super::{
    judge::{Judged, judge},
    locks,
    plan::{Plan, Tools},
    program::{Numbers, Program},
    stage::Stage,
    tools::{self, Tool},
};
use crate::sim::{
    cluster::bad_network_config,
    scenario::{Trace, simulate},
};

/// Maximum duration of the faults.
const STORM_MAX: Duration = Duration::from_secs(10);
/// Time limit (virtual) within which everything ends after the last fault. Clients that were cut
/// off are back after 40 s, and locks of dead clients are free after 30 s.
const END: Duration = Duration::from_secs(150);

/// Runs a race with faults, stops the faults, waits for the end, and checks the record.
pub fn race(seed: u64, log: usize) -> Trace {
    race_as(seed, Plan::of(seed), log)
}

/// As [`race`], for files that may have DoM components.
pub fn race_on_mdt(seed: u64, log: usize) -> Trace {
    race_as(seed, Plan::beside(seed, None), log)
}

/// As [`race`], while files are migrated.
pub fn race_beside_migrations(seed: u64, log: usize) -> Trace {
    race_as(seed, Plan::beside(seed, Some(Tools::MIGRATE)), log)
}

/// As [`race`], for files that have mirrors.
pub fn race_for_mirrors(seed: u64, log: usize) -> Trace {
    race_as(seed, Plan::beside(seed, Some(Tools::MIRROR)), log)
}

/// As [`race`], while the layouts of two files are swapped.
pub fn race_beside_swaps(seed: u64, log: usize) -> Trace {
    race_as(seed, Plan::beside(seed, Some(Tools::SWAP)), log)
}

/// As [`race`], with the given plan.
pub fn race_as(seed: u64, plan: Plan, log: usize) -> Trace {
    simulate(seed, log, bad_network_config(seed), async |world| {
        let stage = Stage::set(world, seed, plan).await;
        let numbers = Arc::new(Numbers::default());
        let watch = locks::watch(&stage, seed);
        run(world, &stage, &numbers, seed).await;
        look(&stage, &numbers, seed).await;
        if stage.plan.tools.is_some() || stage.plan.on_mdt {
            if stage.plan.has_mirrors() {
                tools::mirror::check_mirrors(&stage, seed).await;
            }
            tools::leaked_objects::check_objects(&stage).await;
        }
        watch.abort();
        let mut record = std::mem::take(&mut *stage.record());
        match judge(&mut record) {
            Ok(Judged { undecided: false }) => {}
            Ok(_) => world.note("undecided"),
            Err(what) => panic!("{:?}\n{what}", stage.plan),
        }
    })
}

async fn run(world: &World, stage: &Arc<Stage>, numbers: &Arc<Numbers>, seed: u64) {
    let start = world.now();
    let plan = &stage.plan;
    let all = (0..plan.clients).flat_map(|client| (0..plan.programs).map(move |n| (client, n)));
    let mut programs: Vec<JoinHandle<()>> = all
        .map(|(client, n)| {
            let id = (client * plan.programs + n) as u64;
            let program = Program::new(stage, numbers, client, id, seed);
            stage.client_hosts[client].rt.spawn("program", program.run())
        })
        .collect();
    let hands = plan.tools.as_ref().map_or(0, |tools| tools.hands);
    programs.extend((0..hands).map(|hand| {
        let tool = Tool::new(stage, hand, seed);
        stage.client_hosts[tool.client()].rt.spawn("tool", tool.run())
    }));
    let trouble = stage.trouble(seed);
    while stage.left() > 0 && world.now().since(start) < STORM_MAX {
        stage.control_rt().sleep(Duration::from_millis(20)).await;
    }
    stage.calm(&trouble);
    let end = async {
        for program in programs {
            let _ = program.await;
        }
        while !stage.is_whole() {
            stage.control_rt().sleep(Duration::from_millis(100)).await;
        }
    };
    if stage.control_rt().timeout(END, end).await.is_err() {
        let (left, waiting) = (stage.left(), locks::waiting(stage));
        panic!("not finished {END:?} after the last fault; {left} operations are left; {:?}\n{waiting}", stage.plan);
    }
}

/// Reads everything on all living clients, one after another. All must see the same.
async fn look(stage: &Arc<Stage>, numbers: &Arc<Numbers>, seed: u64) {
    for client in stage.living() {
        let program = Program::new(stage, numbers, client, 1000 + client as u64, seed);
        stage.client_hosts[client].rt.spawn("look", program.look()).await.expect("no client dies after the race");
    }
}
