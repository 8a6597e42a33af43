//! The plan of a race: its parameters, drawn from the seed.

use fastrand::Rng;

use super::bytes::MayRepeat;
use crate::sim::{
    OSSES,
    striping::{ON_MDT, STRIPINGS, Striping},
};

/// Maximum number of clients.
pub const CLIENTS_MAX: usize = 16;

/// The parameters of a race, which the seed determines.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of clients.
    pub clients: usize,
    /// Programs on each client.
    pub programs: usize,
    /// Number of OSTs.
    pub osts: usize,
    /// Number of files that are read and written at random.
    pub files: usize,
    /// Total number of operations.
    pub ops: usize,
    /// Relative frequencies of the kinds of operations: on data, on names, on the log, under the
    /// fcntl lock.
    pub weights: [u32; 4],
    /// Whether connections break.
    pub breaks: bool,
    /// Whether a client is cut off until it is evicted.
    pub cuts: bool,
    /// Whether a client dies.
    pub deaths: bool,
    /// Whether mounts have a kernel above them that caches pages.
    pub kernels: bool,
    /// Maximum offset of a write in bytes.
    pub reach: u64,
    /// Free bytes on an OST's disk, if they are so few that the disk gets full.
    pub tight: Option<u64>,
    /// Whether the MDT has a data service, and files may have DoM components.
    pub on_mdt: bool,
    /// Tools that run on the files. Programs must not notice them.
    pub tools: Option<Tools>,
}

impl Plan {
    /// Returns the plan of a seed. Most plans have few clients and operations: most bugs need few,
    /// and more seeds find more bugs.
    pub fn of(seed: u64) -> Plan {
        let mut rng = Rng::with_seed(seed ^ 0x9ace);
        let clients = match rng.u32(0..100) {
            0..45 => 2,
            45..70 => 3,
            70..82 => 4,
            82..93 => rng.usize(5..=8),
            _ => rng.usize(9..=CLIENTS_MAX),
        };
        let weights = match rng.u32(0..8) {
            0..3 => [10, 0, 0, 0],
            3 => [0, 10, 0, 0],
            4 => [0, 0, 10, 2],
            _ => [6, 3, 2, 1],
        };
        let tight = (rng.u32(0..10) < 2).then(|| rng.u64(16..260) << 10);
        // New files would find no OST with enough free space.
        let weights = if tight.is_some() { [8, 0, 2, 0] } else { weights };
        Plan {
            clients,
            programs: rng.usize(1..=if clients > 4 { 1 } else { 2 }),
            osts: rng.usize(1..=2),
            files: rng.usize(1..=2),
            ops: 40 + rng.usize(0..40) + 2 * clients,
            weights,
            breaks: rng.u32(0..10) < 5,
            cuts: rng.u32(0..10) < 3,
            deaths: rng.u32(0..10) < 3,
            kernels: rng.bool(),
            reach: [8 << 10, 100 << 10, 260 << 10][rng.usize(0..3)],
            tight,
            on_mdt: false,
            tools: None,
        }
    }

    /// Returns the plan of a seed for a race with tools, or with files that may have DoM
    /// components.
    pub fn beside(seed: u64, tools: Option<Tools>) -> Plan {
        let plan = Plan::of(seed);
        let mut rng = Rng::with_seed(seed ^ 0x7001);
        let weights = match rng.u32(0..8) {
            0..4 => [10, 0, 0, 0],
            4 => [0, 0, 10, 2],
            _ if plan.tight.is_some() => [8, 0, 2, 0],
            _ => [6, 2, 3, 1],
        };
        let tools = tools.map(|tools| Tools { hands: rng.usize(1..=2), ..tools });
        let files = if tools.as_ref().is_some_and(Tools::swaps) { 2 } else { plan.files };
        Plan { weights, files, osts: rng.usize(1..=OSSES.len()), on_mdt: rng.bool() || tools.is_none(), tools, ..plan }
    }

    /// Returns whether files have two mirrors from the start. If they may have DoM components, they
    /// get mirrors later.
    pub fn begins_mirrored(&self) -> bool {
        !self.on_mdt && self.has_mirrors()
    }

    /// Returns the changes of files that may be executed twice.
    pub fn may_repeat(&self) -> MayRepeat {
        match &self.tools {
            None => MayRepeat::None,
            Some(tools) if tools.mirrors() => MayRepeat::Any,
            Some(_) => MayRepeat::OfSeveral,
        }
    }

    /// Returns whether files may have mirrors.
    pub fn has_mirrors(&self) -> bool {
        self.tools.as_ref().is_some_and(Tools::mirrors)
    }

    /// Returns whether tools swap the first two files.
    pub fn swaps(&self) -> bool {
        self.tools.as_ref().is_some_and(Tools::swaps)
    }

    /// Draws a layout for a file.
    pub fn striping(&self, rng: &mut Rng) -> Striping {
        let inline_dom = if self.on_mdt { ON_MDT.len() } else { 0 };
        // With these weights, half of the layouts have a DoM component.
        match rng.usize(0..STRIPINGS.len() + inline_dom * 3) {
            n if n < STRIPINGS.len() => STRIPINGS[n],
            n => ON_MDT[(n - STRIPINGS.len()) % ON_MDT.len()],
        }
    }
}

/// The tools of a race.
#[derive(Clone, Debug)]
pub struct Tools {
    /// Number of tools that run at a time.
    pub hands: usize,
    /// Relative frequencies: migrations, mirrors, swaps.
    pub weights: [u32; 3],
}

impl Tools {
    /// `lfs migrate`, with `--block` and without.
    pub const MIGRATE: Tools = Tools { hands: 1, weights: [1, 0, 0] };
    /// `lfs mirror extend`, `resync`, `split`, and some migrations, which work only on files with
    /// one mirror.
    pub const MIRROR: Tools = Tools { hands: 1, weights: [1, 9, 0] };
    /// `lfs swap_layouts`.
    pub const SWAP: Tools = Tools { hands: 1, weights: [0, 0, 1] };

    /// Returns whether files get mirrors.
    pub fn mirrors(&self) -> bool {
        self.weights[1] > 0
    }

    /// Returns whether data written to one file may move to another file.
    pub fn swaps(&self) -> bool {
        self.weights[2] > 0
    }
}
