//! Tools that run on the files of a race. Programs must not notice them.
//!
//! The tools make the same calls as `lfs` through a mount, in the same order. Nothing prevents
//! conflicts with operations of programs. If a tool conflicts with a program, it may fail as its
//! documentation says. The file is then unchanged.
//!
//! * [`migrate`]: gives files other objects. [`mirror`]: adds, removes and resyncs mirrors.
//!   [`swap`]: swaps the layouts of two files.
//! * [`leaked_objects`]: checks the objects on the disks after the race.

pub mod leaked_objects;
pub mod migrate;
pub mod mirror;
pub mod swap;

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use sheen_client::{Caller, Client};
use sheen_rt::Rt;
use sheen_wire::{Errno, Fid, Result};

use super::{span::Span, stage::Stage};

const ROOT_USER: &Caller = &Caller::ROOT;
/// Longest pause between two tools, in microseconds.
const PAUSE_US_MAX: u64 = 10_000;

/// A task that runs tools one after another.
pub struct Tool {
    stage: Arc<Stage>,
    client: usize,
    hand: usize,
    rng: Rng,
}

impl Tool {
    /// Creates a task on the host of a random client.
    pub fn new(stage: &Arc<Stage>, hand: usize, seed: u64) -> Tool {
        let mut rng = Rng::with_seed(seed.wrapping_mul(1013).wrapping_add(hand as u64));
        Tool { stage: stage.clone(), client: rng.usize(0..stage.client_hosts.len()), hand, rng }
    }

    /// Returns the index of its client.
    pub fn client(&self) -> usize {
        self.client
    }

    /// Runs tools until the programs have no operations left.
    pub async fn run(mut self) {
        let weights = self.stage.plan.tools.as_ref().map_or([0; 3], |tools| tools.weights);
        while self.stage.left() > 0 {
            let pause = Duration::from_micros(self.rng.u64(0..PAUSE_US_MAX));
            self.rt().sleep(pause).await;
            let fid = self.file();
            match self.rng.u32(0..weights.iter().sum()) {
                n if n < weights[0] => self.migrate(fid).await,
                n if n < weights[0] + weights[1] => self.mirror(fid).await,
                _ => self.swap().await,
            }
        }
    }

    fn mount(&self) -> &Arc<Client> {
        &self.stage.client_hosts[self.client].client
    }

    fn rt(&self) -> &Rt {
        &self.stage.client_hosts[self.client].rt
    }

    fn note(&self, what: &str) {
        self.stage.world.note(&format!("client {} tool {}: {what}", self.client, self.hand));
    }

    /// Returns a random file of those that programs read and write.
    fn file(&mut self) -> Fid {
        match self.rng.u32(0..6) {
            0 => self.stage.log,
            1 => self.stage.counter,
            _ => self.stage.files[self.rng.usize(0..self.stage.files.len())],
        }
    }

    /// Runs a tool. It may fail with the errors `may`, and with others if its client is in trouble.
    async fn used(&self, what: &str, may: &[Errno], done: impl Future<Output = Result<()>>) {
        self.note(what);
        let from = self.stage.clock.tick();
        let done = done.await;
        let span = Span { from, to: self.stage.clock.tick() };
        self.note(&format!("{what}: {done:?}"));
        if let Err(errno) = done {
            let full = errno == Errno::ENOSPC && self.stage.plan.tight.is_some();
            let excused = self.stage.record().excuses(self.client, span, errno) || self.stage.may_be_unreached(errno);
            // The server drops the locks that an evicted client requests (ENOLCK), and its volatile
            // files (ENOENT).
            let lost = [Errno::ENOLCK, Errno::ENOENT].contains(&errno);
            let lost = lost && self.stage.record().is_troubled(self.client, span);
            let fine = may.contains(&errno) || full || excused || lost;
            let (client, plan) = (self.client, &self.stage.plan);
            assert!(fine, "client {client}: {what} at {span:?} failed with {errno}; {plan:?}");
        }
    }
}
