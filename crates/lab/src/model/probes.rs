//! The runs that calibrate a model. Each part of the file system limits some of them.

use sheen_layout::STRIPES_MAX;

use crate::{
    predict::{load::Workload, system::System},
    prober::Job,
};

const KI: u64 = 1 << 10;
const MI: u64 = 1 << 20;
/// Stripes on each OST of an overstriped file.
const OVERSTRIPED: usize = 4;
/// Transfers below this size move less data.
const SMALL: u64 = 64 * KI;

/// A layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Striping {
    /// One stripe on the first OST.
    One,
    /// Several stripes on the first OST.
    OverOne,
    /// One stripe; files are on one OST after the other.
    Each,
    /// A stripe on each OST.
    All,
    /// Several stripes on each OST.
    Over,
}

/// How tasks access the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Access {
    /// One file, of which each task has a contiguous part.
    Blocks,
    /// One file, which the tasks write transfer by transfer in turn.
    InTurn,
    /// A file for each task.
    Files,
}

/// Number of nodes, of all that there are.
#[derive(Clone, Copy)]
enum Nodes {
    One,
    All,
}

use Access::{Blocks, Files, InTurn};
use Nodes::{All as Every, One as Single};
use Striping::{All, Each, One, Over, OverOne};

/// Nodes, tasks of each node, transfer, accesses, layout.
const PROBES: &[(Nodes, u32, u64, Access, Striping)] = &[
    (Single, 1, 4 * KI, Blocks, One),
    (Single, 1, 64 * KI, Blocks, All),
    (Single, 1, MI, Blocks, One),
    (Single, 1, MI, Blocks, OverOne),
    (Single, 1, MI, Blocks, All),
    (Single, 1, 16 * MI, Blocks, Over),
    (Single, 4, 4 * KI, InTurn, All),
    (Single, 4, 4 * KI, Files, Each),
    (Single, 4, 64 * KI, Blocks, All),
    (Single, 4, MI, Files, Each),
    (Single, 4, MI, InTurn, All),
    (Single, 2, 16 * MI, Blocks, Over),
    (Every, 1, 4 * KI, InTurn, One),
    (Every, 1, 4 * KI, Files, Each),
    (Every, 1, 64 * KI, InTurn, One),
    (Every, 1, 64 * KI, InTurn, Over),
    (Every, 1, 64 * KI, Blocks, One),
    (Every, 1, 64 * KI, Files, Each),
    (Every, 1, MI, InTurn, One),
    (Every, 1, MI, InTurn, OverOne),
    (Every, 1, MI, InTurn, All),
    (Every, 1, MI, InTurn, Over),
    (Every, 1, MI, Blocks, One),
    (Every, 1, MI, Blocks, OverOne),
    (Every, 1, MI, Blocks, Over),
    (Every, 1, MI, Files, One),
    (Every, 1, MI, Files, Each),
    (Every, 1, 16 * MI, InTurn, One),
    (Every, 1, 16 * MI, Blocks, All),
    (Every, 1, 16 * MI, Files, All),
    (Every, 2, 4 * KI, Blocks, All),
    (Every, 2, 64 * KI, Files, All),
    (Every, 2, MI, InTurn, Over),
    (Every, 2, MI, Blocks, All),
    (Every, 2, 16 * MI, InTurn, Over),
];

/// Returns the runs with this many nodes, each of about `size` bytes.
pub fn probes(nodes: u32, size: u64, system: &System) -> Vec<Job> {
    let probe = |&(which, tasks, transfer, access, striping): &(Nodes, u32, u64, Access, Striping)| {
        let nodes = match which {
            Single => 1,
            Every => nodes,
        };
        let tasks = tasks * nodes;
        let of_run = if transfer < SMALL { size / 4 } else { size };
        let transfer = transfer.min(size.max(1));
        let transfers = (of_run / u64::from(tasks) / transfer).max(1);
        let size = transfers * transfer;
        let block = if access == InTurn { transfer } else { size };
        let workload = Workload { tasks, nodes, transfer, block, size, files: access == Files };
        Job { workload, layout: striping.words(system) }
    };
    PROBES.iter().map(probe).collect()
}

impl Striping {
    /// Returns the arguments of `lfs setstripe`.
    fn words(self, system: &System) -> Vec<String> {
        let (osts, first) = (system.osts, system.first_ost);
        let words = match self {
            One => format!("-c 1 -i {first}"),
            OverOne => format!("-o {}", vec![first.to_string(); OVERSTRIPED].join(",")),
            Each => "-c 1".to_owned(),
            All => format!("-c {osts}"),
            Over => format!("-C {}", (osts as usize * OVERSTRIPED).min(STRIPES_MAX)),
        };
        // A list of OSTs is one of the pool's already.
        let pool = system.key.pool.as_ref().filter(|_| self != OverOne);
        let pool = pool.into_iter().flat_map(|pool| ["-p", pool.as_str()]);
        words.split(' ').chain(["-S", "1m"]).chain(pool).map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::store::Key;

    fn system() -> System {
        System { key: Key::new("f", &[], "h"), osts: 4, first_ost: 0 }
    }

    #[test]
    fn probes_have_whole_transfers() {
        for probe in probes(3, 256 * MI, &system()) {
            let Workload { tasks, nodes, transfer, block, size, files } = probe.workload;
            assert!(size.is_multiple_of(transfer) && size >= transfer && size.is_multiple_of(block), "{probe:?}");
            assert!(nodes <= tasks && (!files || block == size), "{probe:?}");
            assert!(size * u64::from(tasks) <= 256 * MI, "{probe:?}");
        }
        assert!(probes(2, MI, &system()).iter().all(|probe| probe.workload.transfer <= MI));
        assert_eq!(Striping::Over.words(&system()), ["-C", "16", "-S", "1m"]);
        let pool = System { key: Key::new("f", &[], "h").of_pool("fast"), osts: 2, first_ost: 3 };
        assert_eq!(Striping::One.words(&pool), ["-c", "1", "-i", "3", "-S", "1m", "-p", "fast"]);
        assert_eq!(Striping::OverOne.words(&pool), ["-o", "3,3,3,3", "-S", "1m"]);
    }
}
