//! The phases of the IO500.

use Phase::*;

/// A phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Each task writes its own file, in large transfers.
    IorEasyWrite,
    /// Each task creates empty files in its own directory.
    MdtestEasyWrite,
    /// All tasks write small records, in turn, to one file.
    IorHardWrite,
    /// All tasks create small files in one directory.
    MdtestHardWrite,
    /// Find the small files among all.
    Find,
    /// Read the large transfers.
    IorEasyRead,
    /// Stat of the empty files.
    MdtestEasyStat,
    /// Read the small records.
    IorHardRead,
    /// Stat of the small files.
    MdtestHardStat,
    /// Remove the empty files.
    MdtestEasyDelete,
    /// Read the small files.
    MdtestHardRead,
    /// Remove the small files.
    MdtestHardDelete,
}

impl Phase {
    /// All phases, in their order.
    pub const ALL: [Phase; 12] = [
        IorEasyWrite,
        MdtestEasyWrite,
        IorHardWrite,
        MdtestHardWrite,
        Find,
        IorEasyRead,
        MdtestEasyStat,
        IorHardRead,
        MdtestHardStat,
        MdtestEasyDelete,
        MdtestHardRead,
        MdtestHardDelete,
    ];

    /// Returns the name in the results.
    pub fn name(self) -> &'static str {
        match self {
            IorEasyWrite => "ior-easy-write",
            MdtestEasyWrite => "mdtest-easy-write",
            IorHardWrite => "ior-hard-write",
            MdtestHardWrite => "mdtest-hard-write",
            Find => "find",
            IorEasyRead => "ior-easy-read",
            MdtestEasyStat => "mdtest-easy-stat",
            IorHardRead => "ior-hard-read",
            MdtestHardStat => "mdtest-hard-stat",
            MdtestEasyDelete => "mdtest-easy-delete",
            MdtestHardRead => "mdtest-hard-read",
            MdtestHardDelete => "mdtest-hard-delete",
        }
    }

    /// Whether the result is a bandwidth in GiB/s. The others are in thousands of operations per
    /// second.
    pub fn is_bandwidth(self) -> bool {
        matches!(self, IorEasyWrite | IorEasyRead | IorHardWrite | IorHardRead)
    }

    /// Returns the unit of the result.
    pub fn unit(self) -> &'static str {
        if self.is_bandwidth() { "GiB/s" } else { "kIOPS" }
    }

    /// Whether the phase has a stonewall, so that the rules set its minimum duration.
    pub fn writes(self) -> bool {
        matches!(self, IorEasyWrite | IorHardWrite | MdtestEasyWrite | MdtestHardWrite)
    }
}
