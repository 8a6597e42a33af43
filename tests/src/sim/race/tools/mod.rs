//! Tools that are used on the files of a race while programs race for them: to programs nothing may
//! be seen of it.
//!
//! They do what `lfs` does through a mount, in the same order, and of what programs may not do
//! meanwhile nothing is kept apart. A tool may fail, where somebody is in its way, as its
//! documentation says; the file is then what it was before.
//!
//! * [`migrate`]: files get other objects; [`mirror`]: mirrors come, go, and are brought up to
//!   date; [`swap`]: files exchange their bytes;
//! * [`left`]: what is on the disks when all is over.

pub mod left;
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

/// Which tools are used.
#[derive(Clone, Debug)]
pub struct Tools {
    /// How many at a time.
    pub hands: usize,
    /// How often each kind is chosen: migrations, mirrors, swaps.
    pub weights: [u32; 3],
}

impl Tools {
    /// `lfs migrate`, with `--block` and without.
    pub const MIGRATE: Tools = Tools { hands: 1, weights: [1, 0, 0] };
    /// `lfs mirror extend`, `resync`, `split`, and now and then a migration, which is for files
    /// that have one mirror.
    pub const MIRROR: Tools = Tools { hands: 1, weights: [1, 9, 0] };
    /// `lfs swap_layouts`.
    pub const SWAP: Tools = Tools { hands: 1, weights: [0, 0, 1] };

    /// Whether files have mirrors.
    pub fn mirrors(&self) -> bool {
        self.weights[1] > 0
    }

    /// Whether what is written to one file may go to another one.
    pub fn swaps(&self) -> bool {
        self.weights[2] > 0
    }
}

/// Who uses them, one after the other.
pub struct Tool {
    stage: Arc<Stage>,
    client: usize,
    hand: usize,
    rng: Rng,
}

impl Tool {
    /// On one of the clients' hosts.
    pub fn new(stage: &Arc<Stage>, hand: usize, seed: u64) -> Tool {
        let mut rng = Rng::with_seed(seed.wrapping_mul(1013).wrapping_add(hand as u64));
        Tool { stage: stage.clone(), client: rng.usize(0..stage.seats.len()), hand, rng }
    }

    /// On which.
    pub fn client(&self) -> usize {
        self.client
    }

    /// As long as programs have something to do.
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
        &self.stage.seats[self.client].client
    }

    fn rt(&self) -> &Rt {
        &self.stage.seats[self.client].rt
    }

    fn note(&self, what: &str) {
        self.stage.world.note(&format!("client {} tool {}: {what}", self.client, self.hand));
    }

    /// One that programs read and write.
    fn file(&mut self) -> Fid {
        match self.rng.u32(0..6) {
            0 => self.stage.log,
            1 => self.stage.counter,
            _ => self.stage.files[self.rng.usize(0..self.stage.files.len())],
        }
    }

    /// Runs a tool, which may fail with these errors, and with others where there is trouble.
    async fn used(&self, what: &str, may: &[Errno], done: impl Future<Output = Result<()>>) {
        self.note(what);
        let from = self.stage.clock.tick();
        let done = done.await;
        let span = Span { from, to: self.stage.clock.tick() };
        self.note(&format!("{what}: {done:?}"));
        if let Err(errno) = done {
            let full = errno == Errno::ENOSPC && self.stage.plan.tight.is_some();
            let excused = self.stage.record().excuses(self.client, span, errno) || self.stage.may_be_unreached(errno);
            // A lock that was asked for, or a file without a name, was lost with the client.
            let lost = [Errno::ENOLCK, Errno::ENOENT].contains(&errno);
            let lost = lost && self.stage.record().is_troubled(self.client, span);
            let fine = may.contains(&errno) || full || excused || lost;
            let (client, plan) = (self.client, &self.stage.plan);
            assert!(fine, "client {client}: {what} at {span:?} failed with {errno}; {plan:?}");
        }
    }
}
