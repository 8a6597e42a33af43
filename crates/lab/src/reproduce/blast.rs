//! BLAST on Titan, in "Evaluating Dynamic File Striping For Lustre" (Fig. 9 to 11).
//!
//! Each node searches the whole database for its share of the queries. Its time is the sum of three
//! parts, in units of the computing time of one of eight nodes:
//!
//! * computing, which more nodes share;
//! * reading the database: more bytes in a row of stripes are faster, up to a limit of the node;
//! * requests and locks of each object, which wait for those of the other nodes.
//!
//! The paper states speedups on 8 nodes, from which the costs are. Its Fig. 11, on 16 to 512 nodes,
//! is a drawing without numbers; the text about it only says which striping takes longer.

use crate::workloads::patterns::{BLAST, Experiment, FIG11, Factors};

/// Name of the system.
pub const SYSTEM: &str = "titan";
/// Numbers of nodes in Fig. 11.
pub const NODES: [u32; 6] = [16, 32, 64, 128, 256, 512];

/// Nodes of Fig. 9 and 10.
const FEW_NODES: u32 = 8;
/// Bytes of the database.
const DATABASE: u64 = 79 << 30;
/// Time of reading the database, times the MiB in a row of stripes.
const READ_ROW: f64 = 2.52;
/// MiB in a row from which a node reads no faster.
const ROW_MAX: f64 = 8.0;
/// Time that each node adds for each object of a file, over the whole database.
const CONTENTION: f64 = 2e-5;
/// As in the paper.
const FULL_SIZE: Factors = Factors { bytes: 1, widths: 1, osts: 128 };
const MIB: f64 = 1_048_576.0;

/// Returns the time of a search on this many nodes.
pub fn time(striping: &Experiment, nodes: u32) -> f64 {
    let (mut time, mut start) = (f64::from(FEW_NODES) / f64::from(nodes), 0);
    for piece in striping.pieces(FULL_SIZE) {
        let end = piece.end.unwrap_or(DATABASE);
        let part = (end - start) as f64 / DATABASE as f64;
        let row = piece.count as f64 * piece.size as f64 / MIB;
        time += part * (READ_ROW / row.min(ROW_MAX) + CONTENTION * f64::from(nodes) * piece.count as f64);
        start = end;
    }
    time
}

/// Returns how much faster an experiment is than `blast.1` on 8 nodes. `None`: there is no such
/// experiment.
pub fn speedup(name: &str) -> Option<f64> {
    let time = |name: &str| BLAST.iter().find(|of| of.name == name).map(|of| time(of, FEW_NODES));
    Some(time("blast.1")? / time(name)?)
}

/// Returns the time of a striping of Fig. 11 divided by that of another one, for each of [`NODES`].
/// Empty: there is none of this name.
pub fn ratios(name: &str, base: &str) -> Vec<f64> {
    let named = |name: &str| FIG11.iter().find(|of| of.name == name);
    let (Some(striping), Some(base)) = (named(name), named(base)) else { return Vec::new() };
    NODES.iter().map(|&nodes| time(striping, nodes) / time(base, nodes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_nodes_share_the_computing_and_contend_for_objects() {
        let [narrow, wide] = [0, 2].map(|n| &FIG11[n]);
        assert!(time(narrow, 16) < time(narrow, 8));
        assert!(time(wide, 512) - time(narrow, 512) > time(wide, 16) - time(narrow, 16));
        assert_eq!((speedup("blast.1"), speedup("blast.99")), (Some(1.0), None));
        assert!(ratios("16 OSTs", "none").is_empty() && ratios("dynamic", "dynamic") == [1.0; 6]);
    }
}
